"""A fork that costs little: only what a process with a single thread needs is done again in the child.

`os.fork` runs code in the child that resets locks other threads may have held. There are none here, and running that
code copies more memory than all the rest of a small task. So the C library's fork is called, and of the functions that
modules have registered for a fork, those that only repair locks are left out.
"""

import _random
import contextlib
import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

_Hook = Callable[[], object]

_ONLY_FOR_THREADS = frozenset({"asyncio.events", "concurrent.futures.thread", "logging", "threading", "weakref"})

_before: list[_Hook] = []
_after_in_parent: list[_Hook] = []
_after_in_child: list[_Hook] = []
_register = os.register_at_fork
_seed = _random.Random.seed


def _library_fork() -> Callable[[], int] | None:
    # Without a global lock the interpreter has locks of its own, which only `os.fork` knows how to repair.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    try:
        function: Callable[[], int] = ctypes.PyDLL(None).fork
    except (OSError, AttributeError):
        return None
    return function


_fork = _library_fork()


def note_fork_hooks() -> None:
    """From now on, remember what modules register for a fork. To be called before the modules are imported."""
    os.register_at_fork = _noted


def fork() -> int:
    """Like `os.fork`, for a process with a single thread."""
    if _fork is None:
        return os.fork()
    for hook in reversed(_before):
        _run(hook)
    pid = _fork()
    if pid == 0:
        _start_again()
    else:
        for hook in _after_in_parent:
            _run(hook)
    # -1 keeps its reason to itself; asking again in Python's way either works or raises it.
    return pid if pid >= 0 else os.fork()


def release_free_memory() -> None:
    """Give pages that hold nothing back to the system, so that no fork has to copy their entries."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _start_again() -> None:
    """Make chance differ from child to child, and run what modules have registered."""
    random: Any = sys.modules.get("random")
    if random is not None:
        # What `random.seed()` comes down to, without the Python code around it.
        _seed(random._inst)
        random._inst.gauss_next = None
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    for hook in _after_in_child:
        _run(hook)


def _noted(
    *, before: _Hook | None = None, after_in_child: _Hook | None = None, after_in_parent: _Hook | None = None
) -> None:
    given: dict[str, Any] = {"before": before, "after_in_child": after_in_child, "after_in_parent": after_in_parent}
    _register(**{when: hook for when, hook in given.items() if hook is not None})
    for hooks, hook in ((_before, before), (_after_in_child, after_in_child), (_after_in_parent, after_in_parent)):
        if hook is not None and not _is_needless(hook):
            hooks.append(hook)


def _is_needless(hook: _Hook) -> bool:
    owner = getattr(hook, "__self__", None)
    module = getattr(hook, "__module__", None) or getattr(type(owner), "__module__", "")
    return module in _ONLY_FOR_THREADS or module in ("random", "_random")


def _run(hook: _Hook) -> None:
    try:
        hook()
    except Exception:  # noqa: BLE001 - as with os.fork: a hook that fails is told of, and the fork goes on
        traceback.print_exc()
