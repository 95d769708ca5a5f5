"""The small functions and classes that Airflow code imports and Stannel itself does not need."""

import contextlib
import hashlib
import importlib
import os
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from stannel.model.states import RunState, TaskState
from stannel.sdk.exceptions import AirflowConfigException
from stannel.settings import stannel_home

T = TypeVar("T")

# What `airflow.__version__` says: the version whose author-facing names this shim follows. Packages compare against it.
version = "3.3.0"
AIRFLOW_HOME = str(stannel_home(os.environ))

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_MISSING = object()


class EnvironmentSettings:
    """`conf`: what the environment sets as `STANNEL__SECTION__KEY` or `AIRFLOW__SECTION__KEY`.

    Task and parsing processes see no other settings: the engine's own, with its secrets, stay with the engine.
    """

    def get(self, section: str, key: str, fallback: Any = _MISSING, **_options: Any) -> Any:
        for prefix in ("STANNEL", "AIRFLOW"):
            value = os.environ.get(f"{prefix}__{section.upper()}__{key.upper()}")
            if value is not None:
                return value
        if fallback is _MISSING:
            raise AirflowConfigException(
                f"[{section}] {key} is not set; tasks see settings of the environment only "
                f"(STANNEL__{section.upper()}__{key.upper()})."
            )
        return fallback

    def has_option(self, section: str, key: str) -> bool:
        return self.get(section, key, fallback=None) is not None

    def getboolean(self, section: str, key: str, fallback: Any = _MISSING) -> bool:
        return self._as(to_boolean, section, key, fallback)

    def getint(self, section: str, key: str, fallback: Any = _MISSING) -> int:
        return self._as(int, section, key, fallback)

    def getfloat(self, section: str, key: str, fallback: Any = _MISSING) -> float:
        return self._as(float, section, key, fallback)

    def getlist(self, section: str, key: str, fallback: Any = _MISSING, delimiter: str = ",") -> list[str]:
        return self._as(lambda text: [part.strip() for part in text.split(delimiter)], section, key, fallback)

    def _as(self, convert: Callable[[Any], T], section: str, key: str, fallback: Any) -> T:
        value = self.get(section, key, fallback)
        return convert(value) if isinstance(value, str) else value


conf = EnvironmentSettings()


class State:
    """Every state under its lower-case and upper-case name."""

    success = SUCCESS = TaskState.SUCCESS
    failed = FAILED = TaskState.FAILED
    running = RUNNING = TaskState.RUNNING
    queued = QUEUED = TaskState.QUEUED
    scheduled = SCHEDULED = TaskState.SCHEDULED
    skipped = SKIPPED = TaskState.SKIPPED
    removed = REMOVED = TaskState.REMOVED
    deferred = DEFERRED = TaskState.DEFERRED
    up_for_retry = UP_FOR_RETRY = TaskState.UP_FOR_RETRY
    up_for_reschedule = UP_FOR_RESCHEDULE = TaskState.UP_FOR_RESCHEDULE
    upstream_failed = UPSTREAM_FAILED = TaskState.UPSTREAM_FAILED
    NONE = None
    task_states = (None, *(state for state in TaskState if state is not TaskState.NONE))
    dag_states = tuple(RunState)
    finished = frozenset({SUCCESS, FAILED, SKIPPED, UPSTREAM_FAILED, REMOVED})
    unfinished = frozenset(task_states) - finished


def to_boolean(text: str | bool | None) -> bool:
    """True for the words people use to say yes."""
    return str(text).strip().lower() in _TRUE


def apply_defaults(function: T) -> T:
    """Nothing: every operator applies `default_args` itself."""
    return function


def days_ago(n: int, hour: int = 0, minute: int = 0, second: int = 0, microsecond: int = 0) -> datetime:
    """The given time of day, `n` days ago, in UTC."""
    now = datetime.now(UTC).replace(hour=hour, minute=minute, second=second, microsecond=microsecond)
    return now - timedelta(days=n)


def md5(data: bytes = b"") -> Any:
    """An MD5 hash for purposes that are not security."""
    return hashlib.md5(data, usedforsecurity=False)


def exactly_one(*values: Any) -> bool:
    """True if one of the values is truthy and all others are not."""
    return sum(1 for value in values if value) == 1


def prune_dict(value: Any, mode: str = "strict") -> Any:
    """The structure without what is None ("strict") or without what is falsy ("truthy")."""
    if mode not in ("strict", "truthy"):
        raise ValueError(f"mode must be 'strict' or 'truthy', not {mode!r}")

    def keeps(item: Any) -> bool:
        return bool(item) if mode == "truthy" else item is not None

    if isinstance(value, dict):
        pruned = {key: prune_dict(item, mode) for key, item in value.items() if keeps(item)}
        return {key: item for key, item in pruned.items() if item or not isinstance(item, dict | list)}
    if isinstance(value, list):
        items = [prune_dict(item, mode) for item in value if keeps(item)]
        return [item for item in items if item or not isinstance(item, dict | list)]
    return value


def chunks(items: Sequence[T], chunk_size: int) -> Iterator[Sequence[T]]:
    """The sequence in pieces of at most `chunk_size`."""
    if chunk_size <= 0:
        raise ValueError("the size of a chunk must be a positive number")
    for start in range(0, len(items), chunk_size):
        yield items[start : start + chunk_size]


def merge_dicts(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both dicts, the second over the first, also inside nested dicts."""
    merged = dict(first)
    for key, value in second.items():
        known = merged.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[key] = merge_dicts(known, value) if both else value  # type: ignore[arg-type]
    return merged


def as_flattened_list(nested: Iterable[Iterable[T]]) -> list[T]:
    """The items of all inner lists in one list."""
    return [item for inner in nested for item in inner]


def convert_camel_to_snake(text: str) -> str:
    """`CamelCase` as `camel_case`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()


def import_string(dotted_path: str) -> Any:
    """The object at `package.module.Name`."""
    module, dot, name = dotted_path.rpartition(".")
    if not dot:
        raise ImportError(f"{dotted_path!r} is not the path of something inside a module")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise ImportError(f"the module {module!r} has no {name!r}") from None


def qualname(thing: Any, use_qualname: bool = False) -> str:
    """`module.Name` of a class, function or object's class."""
    named = thing if hasattr(thing, "__name__") else type(thing)
    return f"{named.__module__}.{named.__qualname__ if use_qualname else named.__name__}"


def is_valid_dotpath(path: Any) -> bool:
    """True for a text of at least two names joined by dots."""
    parts = path.split(".") if isinstance(path, str) else []
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def iter_namespace(namespace: ModuleType) -> Iterator[Any]:
    """The modules directly inside a package."""
    return pkgutil.iter_modules(namespace.__path__, f"{namespace.__name__}.")


@contextlib.contextmanager
def patch_environ(new_env_variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the block runs."""
    before = {name: os.environ.get(name) for name in new_env_variables}
    os.environ.update(new_env_variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
