"""Plug-ins are found by entry point, so a broker, an executor or a coordinator is a file that nobody imports."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from stannel.errors import DuplicatePlugin, PluginBroken, PluginMissing


def plugin_names(group: str) -> tuple[str, ...]:
    """The names installed under an entry point group such as `stannel.executors`, sorted; nothing is imported."""
    return tuple(sorted(_offers(group)))


@cache
def load_plugin(group: str, name: str) -> Any:
    """Import the plug-in `name` of a group, once per process."""
    offers = _offers(group).get(name)
    if not offers:
        raise PluginMissing(group, name, installed=plugin_names(group))

    first, *others = offers
    if others:
        raise DuplicatePlugin(group, name, _described(first), _described(others[0]))
    return _import(group, first)


@cache
def _offers(group: str) -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=group):
        offers = found.setdefault(entry_point.name, [])
        # An editable install may list the same distribution twice.
        if all(_described(offer) != _described(entry_point) for offer in offers):
            offers.append(entry_point)
    return found


def _import(group: str, entry_point: EntryPoint) -> Any:
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        extra = _extra(entry_point)
        if extra and not _is_own_module(entry_point, error.name):
            raise PluginMissing(group, entry_point.name, extra, package=_distribution(entry_point)) from error
        raise _broken(group, entry_point, error) from error
    except Exception as error:
        raise _broken(group, entry_point, error) from error


def _broken(group: str, entry_point: EntryPoint, error: Exception) -> PluginBroken:
    reason = f"{type(error).__name__}: {error}"
    return PluginBroken(group, entry_point.name, _distribution(entry_point), reason)


def _extra(entry_point: EntryPoint) -> str | None:
    """The extra that brings this plug-in's client library: the one it names, else the one named like it."""
    if entry_point.extras:
        return str(entry_point.extras[0])
    offered = entry_point.dist.metadata.get_all("Provides-Extra", []) if entry_point.dist else []
    return entry_point.name if entry_point.name in offered else None


def _is_own_module(entry_point: EntryPoint, missing: str | None) -> bool:
    return missing is None or missing.partition(".")[0] == entry_point.module.partition(".")[0]


def _distribution(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist else "an unnamed package"


def _described(entry_point: EntryPoint) -> str:
    return f"{_distribution(entry_point)} ({entry_point.value})"
