"""Hears of changes in the DAG folder from the kernel, on a thread of its own."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

log = logging.getLogger(__name__)

# Editors truncate, write and rename: what happens within a step of the last change belongs to it.
_STEP_MS = 50
_LONGEST_BURST_MS = 500
_RECURSIVE, _DEBUG, _POLLING, _POLL_MS, _SKIP_FORBIDDEN = True, False, False, 0, True


class Watch:
    """Calls `on_change`, from another thread, after each burst of changes. Raises `OSError` if it cannot watch."""

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._identity = _identity(folder)
        if self._identity is None:
            raise FileNotFoundError(f"there is no folder {folder}")
        self._on_change = on_change
        self._stopping = threading.Event()
        self._notify = _notify(folder)
        self._thread = threading.Thread(target=self._run, name="dag-folder-watch", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """False: the folder was replaced by another one, or watching has ended."""
        return self._thread.is_alive() and _identity(self._folder) == self._identity

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with self._notify:
            while True:
                try:
                    changes = self._notify.watch(_LONGEST_BURST_MS, _STEP_MS, 0, self._stopping)
                except (WatchfilesRustInternalError, RuntimeError) as error:
                    log.warning("The DAG folder is no longer watched; it is looked at now and then: %s", error)
                    return
                if isinstance(changes, str):
                    return
                if any(matters(self._folder, path) for _, path in changes):
                    self._on_change()


def _notify(folder: Path) -> RustNotify:
    try:
        return RustNotify([str(folder)], _DEBUG, _POLLING, _POLL_MS, _RECURSIVE, _SKIP_FORBIDDEN)
    except WatchfilesRustInternalError as error:
        raise OSError(str(error)) from error


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def matters(folder: Path, path: str) -> bool:
    """Caches and hidden folders (.git, .venv) change all the time and never hold DAGs."""
    *folders, _ = os.path.relpath(path, folder).split(os.sep)
    return not any(part == "__pycache__" or (part.startswith(".") and part != "..") for part in folders)
