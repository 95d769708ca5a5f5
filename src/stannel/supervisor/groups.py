"""Process groups and orphans: what POSIX and Linux offer to make sure that nothing of an attempt outlives it."""

import contextlib
import ctypes
import os
import signal
import threading

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def become_subreaper() -> bool:
    """Become the parent of every orphan among one's descendants. False: this system does not offer it."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> bool:
    """Be killed when the thread that started this process is gone. False: this system does not offer it."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> bool:
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    return bool(prctl(option, value, 0, 0, 0) == 0)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that `pid` leads, or `pid` alone if it leads none yet. Gone already: nothing happens."""
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def children_of_this_process() -> list[int]:
    """Every direct child, adopted ones included. Empty where the system does not tell."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as children:
                found += map(int, children.read().split())
    return found


def threads_of_this_process() -> int:
    """How many threads there are; a fork copies only the one that calls it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def holder_of(inode: int) -> int | None:
    """The process, other than this one, that was forked with the socket of this inode. None: nobody has it open."""
    wanted, own = f"socket:[{inode}]", str(os.getpid())
    holders = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid == own:
            continue
        with contextlib.suppress(OSError):
            if any(_link(f"/proc/{pid}/fd/{fd}") == wanted for fd in os.listdir(f"/proc/{pid}/fd")):
                holders.append(int(pid))
    # Forks of the fork hold the socket too; the one that was forked first leads the session.
    return next((pid for pid in holders if _leads_session(pid)), holders[0] if holders else None)


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
