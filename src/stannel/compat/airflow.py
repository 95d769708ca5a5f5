"""Serves the import name `airflow` from Stannel's own objects, so that existing DAG files run unchanged.

Two finders do it. The first answers for the modules of `names.TABLE`. The last, behind Python's own, turns any other
`airflow...` import into an error that says what is the matter; in between, installed provider packages are found.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from stannel.compat.names import ALSO, TABLE
from stannel.sdk import environment

_ROOT = "airflow"


def _sentence(module: str, name: str) -> str:
    return (
        f"Stannel does not offer {module}.{name} yet. "
        "stannel.compat.airflow.offered() lists the Airflow names it has; stannel.sdk is its own API."
    )


@cache
def _names_of(module: str) -> dict[str, str]:
    """Where each name of a served module really lives."""
    entry = TABLE.get(module, {})
    if isinstance(entry, str):
        where = entry
        entry = dict.fromkeys(importlib.import_module(where).__all__, where)
    return {**entry, **ALSO.get(module, {})}


def _modules() -> set[str]:
    """The modules of the table and the packages above them."""
    found = {_ROOT}
    for name in TABLE:
        while name:
            found.add(name)
            name = name.rpartition(".")[0]
    return found


def offered() -> list[str]:
    """Every Airflow name that can be imported, as `module:name`, in order."""
    return sorted(f"{module}:{name}" for module in TABLE for name in _names_of(module))


class _ShimModule(ModuleType):
    """A module of the table; each name is looked up when it is first used."""

    def __getattr__(self, name: str) -> Any:
        where = _names_of(self.__name__).get(name)
        if where is None:
            # Python probes modules for names of its own; those are no business of the author.
            if name.startswith("__"):
                raise AttributeError(name)
            raise AttributeError(_sentence(self.__name__, name))
        module, colon, attribute = where.partition(":")
        found = importlib.import_module(module)
        value = found if colon and not attribute else getattr(found, attribute or name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_names_of(self.__name__)})


class _Loader:
    """Makes the module; there is no code to run in it."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _ShimModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__all__ = sorted(name for name in _names_of(module.__name__) if not name.startswith("_"))  # type: ignore[attr-defined]


class _Served:
    """First finder: the modules of the table."""

    def __init__(self) -> None:
        self._modules = _modules()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = _installed_beside(fullname)
        return spec


def _installed_beside(fullname: str) -> list[str]:
    """Folders of installed provider packages: what they hold and the table does not is imported from there."""
    if not fullname.startswith(f"{_ROOT}.providers"):
        return []
    folders = (Path(entry or ".", *fullname.split(".")) for entry in sys.path)
    return [str(folder) for folder in folders if folder.is_dir()]


class _Missing:
    """Last finder: nobody else knew the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{_ROOT}."):
            module, _, name = fullname.rpartition(".")
            # Not a ModuleNotFoundError: `from airflow.x import y` would swallow that and say less.
            raise ImportError(_sentence(module, name))
        return None


_finders: list[Any] = []


def install() -> None:
    """Serve `airflow` from now on, and read `AIRFLOW_VAR_*` and `AIRFLOW_CONN_*` too. A second call does nothing."""
    if _finders:
        return
    _finders.extend([_Served(), _Missing()])
    sys.meta_path.insert(0, _finders[0])
    sys.meta_path.append(_finders[1])
    environment.also_read("AIRFLOW")


def install_if_absent() -> bool:
    """Serve `airflow` unless Apache Airflow itself can be imported. True: it is served by Stannel."""
    if not _finders and not airflow_is_installed():
        install()
    return bool(_finders)


def airflow_is_installed() -> bool:
    """True if Apache Airflow is there; its provider packages alone, which share the name, do not count."""
    if _ROOT in sys.modules:
        return not isinstance(sys.modules[_ROOT], _ShimModule)
    spec = importlib.machinery.PathFinder.find_spec(_ROOT)
    return spec is not None and spec.origin is not None
