"""Which files of the DAG folder an import has read: when one of them changes, its result may."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST = 2000
_LISTING = frozenset({"os.listdir", "os.scandir"})
_IMPORTLIB = "<frozen importlib"


def loaded_modules() -> Iterator[str]:
    """The source files of everything that is imported now."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            yield file


class Reads:
    """Notes every file that is opened and every folder that is listed below `folder`, from `start` on.

    So a DAG file that builds its DAGs from the YAML files next to it is imported again when one of them changes.
    """

    def __init__(self, folder: Path) -> None:
        self._inside = str(folder) + os.sep
        self._read: set[str] = set()
        self._written: set[str] = set()

    def start(self) -> None:
        """Begin; there is no way to stop, for the process ends with the import."""
        sys.addaudithook(self._hear)

    def paths(self) -> set[str]:
        """Absolute paths; listed folders end with a slash. What the import has written itself is left out."""
        return self._read - self._written

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._opened(*args)
        elif event in _LISTING and not sys._getframe(1).f_code.co_filename.startswith(_IMPORTLIB):
            self._listed(args[0])

    def _opened(self, path: Any, _mode: Any, flags: Any) -> None:
        inside = self._path(path)
        # The bytecode of a module is read in place of the module, which is known from `sys.modules`.
        if inside is None or inside.endswith(".pyc") or len(self._read) >= _MOST:
            return
        if isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY:
            self._written.add(inside)
        else:
            self._read.add(inside)

    def _listed(self, path: Any) -> None:
        inside = self._path("." if path is None else path)
        if inside is not None and len(self._read) < _MOST:
            self._read.add(f"{inside.rstrip(os.sep)}/")

    def _path(self, path: Any) -> str | None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str):
            return None
        absolute = os.path.abspath(path)
        return absolute if f"{absolute}{os.sep}".startswith(self._inside) else None
