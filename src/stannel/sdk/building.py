"""Which DAG and task group is being written right now: what `with DAG(...)` opens and tasks look up."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

# One DAG file is imported at a time in its process, so plain lists are enough.
_dags: list[Any] = []
_groups: list[Any] = []
_registers: list[list[Any]] = []

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"


def current_dag() -> Any:
    """The innermost open DAG. None: no `with DAG(...)` is open."""
    return _dags[-1] if _dags else None


def current_group() -> Any:
    """The innermost open task group of the open DAG. None: no group is open in it."""
    return _groups[-1] if _groups else None


def open_dag(dag: Any) -> None:
    _dags.append(dag)
    _groups.append(dag.task_group)


def close_dag() -> None:
    _dags.pop()
    _groups.pop()


def open_group(group: Any) -> None:
    _groups.append(group)


def close_group() -> None:
    _groups.pop()


@contextmanager
def registered_dags() -> Iterator[list[Any]]:
    """Every DAG that announces itself while the block runs; nothing open before is visible inside."""
    found: list[Any] = []
    outer_dags, outer_groups = _dags[:], _groups[:]
    _dags.clear()
    _groups.clear()
    _registers.append(found)
    try:
        yield found
    finally:
        _registers.pop()
        _dags[:], _groups[:] = outer_dags, outer_groups


def register_dag(dag: Any) -> None:
    """Announce a DAG that need not be assigned to a global to be found."""
    if _registers and not any(known is dag for known in _registers[-1]):
        _registers[-1].append(dag)


def warn(message: str) -> None:
    """Tell the author something about the line being executed in their own file."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<")):
        frame = frame.f_back
    if frame is not None:
        warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno)


def defining_file() -> str:
    """The file a DAG is written in; while a DAG file is loaded, the one whose top level runs, whoever helps it."""
    nearest = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_PACKAGE, "<")):
            nearest = nearest or code.co_filename
            if not _registers or code.co_name == "<module>":
                return code.co_filename
        frame = frame.f_back
    return nearest or ""
