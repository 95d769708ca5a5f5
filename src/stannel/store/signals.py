"""Wake-ups across threads and processes of one machine: a socket per listener, in a folder beside the database.

A wake-up carries nothing but its topic; whoever is woken looks in the store. A lost one costs a sweep, never data.
"""

import contextlib
import errno
import os
import select
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from stannel.model.ids import new_id

_LONGEST_MILLISECONDS = 2**31 - 1


class Listener(Protocol):
    """Something that is told when one of its topics was woken."""

    def fileno(self) -> int: ...
    def drain(self) -> bool:
        """Forget the wake-ups that came so far. True: there were some."""
        ...

    def close(self) -> None: ...


def wait(listener: Listener, seconds: float) -> bool:
    """Sleep until woken or until the time is up. True: woken. Wake-ups that came are forgotten."""
    if listener.drain():
        return True
    readable(listener.fileno(), seconds=seconds)
    return listener.drain()


def readable(*descriptors: int, seconds: float | None) -> list[int]:
    """Sleep until some of the descriptors can be read or the time is up; which ones. `seconds` None: for ever."""
    # Unlike select.select, this takes descriptors above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    patience = None if seconds is None else min(max(seconds, 0.0) * 1000, _LONGEST_MILLISECONDS)
    return [descriptor for descriptor, _ in poll.poll(patience)]


class SocketListener:
    """A bound datagram socket; its file name starts with the topics it waits for."""

    def __init__(self, folder: "SignalFolder", topics: Iterable[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path = folder.path / f"{'+'.join(sorted(topics))}.{os.getpid()}.{new_id()[-12:]}"
        self._socket.bind(folder.address(self._path.name))

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> bool:
        woken = False
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(16):
                woken = True
        return woken

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


class SignalFolder:
    """The listeners of one database, found by name."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        # Socket addresses end at 108 bytes; a path through this descriptor is always short.
        self._folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def address(self, name: str) -> str:
        return f"/proc/self/fd/{self._folder}/{name}"

    def listen(self, *topics: str) -> SocketListener:
        return SocketListener(self, topics)

    def wake(self, topics: set[str]) -> None:
        """Tell every listener of these topics."""
        for name in os.listdir(self._folder_path()):
            if topics.isdisjoint(name.partition(".")[0].split("+")):
                continue
            try:
                self._socket.sendto(b"!", self.address(name))
            except OSError as error:
                self._forget_if_dead(name, error)

    def close(self) -> None:
        self._socket.close()
        os.close(self._folder)

    def _folder_path(self) -> str:
        return f"/proc/self/fd/{self._folder}"

    def _forget_if_dead(self, name: str, error: OSError) -> None:
        # A full buffer means it has wake-ups to read already; only a refused one has no process behind it any more.
        if error.errno == errno.ECONNREFUSED:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address(name))
