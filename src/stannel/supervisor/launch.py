"""The seam between watching an attempt and starting its process: a fork, a JVM, a binary."""

import os
import signal
import socket
from collections.abc import Callable
from typing import Protocol

from stannel.errors import StannelError
from stannel.model.run import Attempt
from stannel.supervisor.exits import Exit


class CannotStart(StannelError):
    """No process was started for the attempt, and no code of the task ran. `detail` is for the task's log."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.detail = reason, detail


class Process(Protocol):
    """What a supervisor needs of the process it watches."""

    @property
    def pid(self) -> int | None:
        """None: it does not exist yet."""

    @property
    def exit(self) -> Exit | None:
        """None: it has not ended yet, as far as anybody heard."""

    def watch(self, on_birth: Callable[[], None], on_exit: Callable[[], None]) -> None:
        """Call `on_birth` when it has a pid, `on_exit` when it and its group are gone; at once if that is so."""

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole process group, as soon as there is one."""


class Wires:
    """Our ends of an attempt's four streams: non-blocking descriptors that the supervisor reads, writes and closes."""

    __slots__ = ("comm", "logs", "stderr", "stdout")

    def __init__(self, comm: int, logs: int, stdout: int, stderr: int) -> None:
        self.comm, self.logs, self.stdout, self.stderr = comm, logs, stdout, stderr


class Launch(Protocol):
    """How attempts of some kind get their process."""

    async def start(self, attempt: Attempt) -> tuple[Process, Wires]:
        """Start the attempt's process. `CannotStart`: there is none, and why."""


def wire_pairs() -> tuple[Wires, list[int]]:
    """Our ends, and the child's ends in the order comm, logs, stdout, stderr. `CannotStart`: none are left."""
    pairs: list[tuple[int, int]] = []
    try:
        for make in (_socket_pair, os.pipe, os.pipe, os.pipe):
            pairs.append(make())
            os.set_blocking(pairs[-1][0], False)
    except OSError as error:
        for fd in (fd for pair in pairs for fd in pair):
            os.close(fd)
        raise CannotStart(f"no streams can be made for its process: {error.strerror}") from error
    return Wires(*(ours for ours, _ in pairs)), [theirs for _, theirs in pairs]


def _socket_pair() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()
