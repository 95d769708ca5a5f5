"""Hears the end of children whose fork server is gone: the kernel gave them to us, or to the base server."""

import asyncio
import os
import signal

from stannel.supervisor.child import Child
from stannel.supervisor.control import Exited
from stannel.supervisor.exits import Exit
from stannel.supervisor.groups import signal_group

# Ends of processes nobody asked for (daemons that a task left behind) are forgotten after this many.
_REMEMBERED_ENDS = 1000
_HEARSAY_SECONDS = 1.0
_AGAIN_SECONDS = 0.01


class Orphans:
    """The children without a server, and the ends that other servers told of."""

    def __init__(self) -> None:
        self._ends: dict[int, Exited] = {}
        self._children: dict[int, Child] = {}

    def adopt(self, child: Child, pid: int) -> None:
        """Take over a child that lived or died while its server did."""
        self._children[pid] = child
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            self._settle(pid, loop.time() + _HEARSAY_SECONDS)
            return
        loop.add_reader(pidfd, self._dead, pid, pidfd)

    def heard(self, notice: Exited) -> None:
        """A server reaped a process that was not forked by it."""
        child = self._children.pop(notice.pid, None)
        if child is not None:
            child.ended(Exit(status=notice.status, max_rss_kib=notice.max_rss_kib))
            return
        self._ends[notice.pid] = notice
        if len(self._ends) > _REMEMBERED_ENDS:
            del self._ends[next(iter(self._ends))]

    def _dead(self, pid: int, pidfd: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(pidfd)
        os.close(pidfd)
        self._settle(pid, loop.time() + _HEARSAY_SECONDS)

    def _settle(self, pid: int, deadline: float) -> None:
        end = self._ends.pop(pid, None) or _reaped(pid)
        if end is not None:
            self.heard(end)
            return
        if pid not in self._children:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < deadline:
            # Its server is not quite gone yet, or another parent has reaped it and the notice is under way.
            loop.call_later(_AGAIN_SECONDS, self._settle, pid, deadline)
        else:
            self._children.pop(pid).ended(Exit())


def _reaped(pid: int) -> Exited | None:
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        signal_group(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return None
    return Exited(pid, status, usage.ru_maxrss)
