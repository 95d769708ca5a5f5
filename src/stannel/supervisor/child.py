"""A process that was ordered from a fork server, from the order to its end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from stannel.supervisor.control import Spawn
from stannel.supervisor.exits import Exit
from stannel.supervisor.groups import signal_group

_KILL_SECONDS = 1.0


class Child:
    """A process that was ordered. It may not exist yet; signals sent until then reach it when it does."""

    __slots__ = ("_early", "_on_birth", "_on_exit", "exit", "fds", "pid", "spawn", "tries")

    def __init__(self, spawn: Spawn, fds: Sequence[int]) -> None:
        self.spawn = spawn
        self.fds = fds
        self.pid: int | None = None
        self.exit: Exit | None = None
        self.tries = 0
        self._on_birth: Callable[[], None] | None = None
        self._on_exit: Callable[[], None] | None = None
        self._early: signal.Signals | None = None

    def watch(self, on_birth: Callable[[], None], on_exit: Callable[[], None]) -> None:
        """Call `on_birth` when it has a pid, `on_exit` when it and its group are gone; at once if that is so."""
        self._on_birth, self._on_exit = on_birth, on_exit
        if self.pid is not None:
            on_birth()
        if self.exit is not None:
            on_exit()

    async def wait(self, patience: float) -> Exit | None:
        """The end of the process, killed if it has not come after `patience` seconds. None: it cannot be killed."""
        gone = asyncio.Event()
        self.watch(_nothing, gone.set)
        for seconds in (patience, _KILL_SECONDS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await gone.wait()
                break
            self.signal(signal.SIGKILL)
        return self.exit

    def signal(self, number: signal.Signals) -> None:
        """Signal the child's whole process group."""
        if self.exit is not None:
            return
        if self.pid is None:
            self._early = number if self._early != signal.SIGKILL else self._early
        else:
            signal_group(self.pid, number)

    def born(self, pid: int) -> None:
        self.pid = pid
        self.release()
        if self._early is not None:
            signal_group(pid, self._early)
        if self._on_birth is not None:
            self._on_birth()

    def release(self) -> None:
        """Close our copies of the child's descriptors: it has them, or never will."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def ended(self, end: Exit) -> None:
        if self.exit is None:
            self.release()
            self.exit = end
            if self._on_exit is not None:
                self._on_exit()


def _nothing() -> None:
    """For those who only want to hear of the end."""
