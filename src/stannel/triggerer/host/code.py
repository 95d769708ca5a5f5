"""Finds the code of triggers, and tells which files it came from, so that changed code gets a new host."""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from stannel.errors import StannelError
from stannel.sdk.load import import_from, load_dags, module_name
from stannel.triggers.base import BaseTrigger
from stannel.triggers.loading import find_trigger

_DAG_MODULE = "stannel_dag_"
_OWN = "stannel"
# How far the time of a file may lie behind the clock when it is written now.
_CLOCK_STEP_NS = 10_000_000
# Never equal to a real fingerprint: nobody can say which version of the file was read.
_UNSURE = "changed while it was imported"


class Code:
    """The classes of triggers. A class that was found once is never looked for again, whatever becomes of its file."""

    def __init__(self, dags_folder: str) -> None:
        self._folder = Path(dags_folder).resolve()
        self._classes: dict[str, type[BaseTrigger]] = {}
        self._known: frozenset[str] = frozenset(sys.modules)
        self._known_count = len(sys.modules)
        self._looked_at = time.time_ns()
        import_from(str(self._folder))
        sys.meta_path.append(DagFiles(self._folder))

    def known(self, classpath: str) -> type[BaseTrigger] | None:
        """The class, if it was found before."""
        return self._classes.get(classpath)

    def find(self, classpath: str) -> type[BaseTrigger]:
        """The class, imported if need be; that may take long, and run any code. `TriggerNotFound` says why not."""
        if classpath not in self._classes:
            self._note_unchanged()
            importlib.invalidate_caches()
            self._classes[classpath] = find_trigger(classpath)
        return self._classes[classpath]

    def newly_loaded(self) -> dict[str, str]:
        """The files imported since the last call, with their fingerprints."""
        if self._note_unchanged():
            return {}
        began, self._looked_at = self._looked_at, time.time_ns()
        modules = dict(sys.modules)
        new = (_file_of(name, module) for name, module in modules.items() if name not in self._known)
        found = {file: fingerprint(file, began, self._looked_at) for file in new if file is not None}
        self._known, self._known_count = frozenset(modules), len(modules)
        return {file: mark for file, mark in found.items() if mark is not None}

    def _note_unchanged(self) -> bool:
        """True: nothing was imported, so that whatever is imported from now on was read after this moment."""
        if len(sys.modules) != self._known_count:
            return False
        self._looked_at = time.time_ns()
        return True


class DagFiles(importlib.abc.MetaPathFinder):
    """Finds DAG files under the names they have in task processes, for classes that are defined in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_DAG_MODULE) or "." in fullname:
            return None
        for file in _python_files(self._folder):
            if module_name(file) == fullname:
                loader = _DagFileLoader(file, self._folder)
                return importlib.machinery.ModuleSpec(fullname, loader, origin=str(file))
        return None


class _DagFileLoader(importlib.abc.Loader):
    """Imports a DAG file as task processes do."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._file, self._folder = file, folder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        try:
            return load_dags(self._file, self._folder).module
        except StannelError as error:
            raise ImportError(str(error), name=spec.name, path=str(self._file)) from error

    def exec_module(self, module: ModuleType) -> None:
        """The file was run when its DAGs were collected."""


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                yield Path(parent, name).resolve()


def _file_of(name: str, module: object) -> str | None:
    """The file to watch. None: the module belongs to Python or to the engine, or is no file at all."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == _OWN:
        return None
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def fingerprint(file: str, began: int, now: int) -> str | None:
    """Which version of the file was imported between these moments. None: there is no such file to watch."""
    try:
        stat = os.stat(file)
    except OSError:
        return None
    if began - _CLOCK_STEP_NS <= stat.st_mtime_ns <= now:
        return _UNSURE
    return f"{stat.st_mtime_ns}-{stat.st_size}"
