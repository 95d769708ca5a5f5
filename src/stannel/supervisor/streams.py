"""Reads a task process's streams at all times, and writes to it without ever waiting for it."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

_CHUNK = 64 * 1024
# What may pile up in a socket or pipe while its process dies, with room to spare; more is read round by round.
_CHUNKS_AT_ONCE = 32


class Stream:
    """One descriptor, closed as soon as its other end is. While something waits to be sent, nothing is read."""

    __slots__ = ("_fd", "_is_reading", "_loop", "_on_end", "_on_sent", "_take", "_unsent")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        take: Callable[[bytes], None],
        on_end: Callable[[], None],
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        self._loop, self._fd = loop, fd
        self._take, self._on_end, self._on_sent = take, on_end, on_sent
        self._unsent: deque[memoryview] | None = None
        self._is_reading = True
        loop.add_reader(fd, self._pump)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def is_blocked(self) -> bool:
        """Whether the process has yet to read what was sent to it."""
        return self._unsent is not None

    def send(self, data: bytes) -> None:
        """Send now or when there is room. A process that no longer listens is no error: its end tells more."""
        if self._fd < 0:
            return
        if self._unsent is not None:
            self._unsent.append(memoryview(data))
            return
        try:
            sent = os.write(self._fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):
            self._unsent = deque([memoryview(data)[sent:]])
            self.pause()
            self._loop.add_writer(self._fd, self._send_rest)

    def pause(self) -> None:
        if self._is_reading and self._fd >= 0:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if not self._is_reading and self._fd >= 0 and self._unsent is None:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._pump)

    def drain(self) -> None:
        """Read what is there without waiting; whatever comes later is read as it comes."""
        for _ in range(_CHUNKS_AT_ONCE):
            if self._fd < 0 or not self._pump():
                break
        if self._fd >= 0 and self._unsent is not None:
            self._stop_sending()
            self.resume()

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._unsent is not None:
            self._stop_sending()
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        self._on_end()

    def _pump(self) -> bool:
        """Read once. False: nothing is there at the moment, or never again."""
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        self._take(data)
        return True

    def _send_rest(self) -> None:
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = os.write(self._fd, part)
            except BlockingIOError:
                return
            except OSError:
                break
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return
            self._unsent.popleft()
        self._stop_sending()
        self.resume()
        if self._on_sent is not None:
            self._on_sent()

    def _stop_sending(self) -> None:
        self._unsent = None
        self._loop.remove_writer(self._fd)
