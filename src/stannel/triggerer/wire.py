"""The parent's end of the wire to a host: reads and writes at the same time, and never waits for either."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

_CHUNK = 256 * 1024
# What may stand in a socket while its process dies, with room to spare.
_LAST_CHUNKS = 64


class Wire:
    """A connected stream socket. Unlike a task's, it is read while something waits to be sent: both sides may speak."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, take: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._loop, self._fd, self._take, self._on_end = loop, fd, take, on_end
        self._unsent: deque[memoryview] = deque()
        self._is_reading = True
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._pump)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def is_reading(self) -> bool:
        return self._is_reading

    def send(self, data: bytes) -> None:
        """Send now or when there is room. A process that no longer listens is no error: its end tells more."""
        if self._fd < 0:
            return
        is_first = not self._unsent
        self._unsent.append(memoryview(data))
        if is_first and not self._write():
            self._loop.add_writer(self._fd, self._go_on)

    def pause(self) -> None:
        if self._is_reading and self._fd >= 0:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if not self._is_reading and self._fd >= 0:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._pump)

    def drain(self) -> None:
        """Read what is there, then close."""
        for _ in range(_LAST_CHUNKS):
            if not self._pump():
                break
        self.close()

    def close(self) -> None:
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        fd, self._fd = self._fd, -1
        os.close(fd)
        self._unsent.clear()
        self._on_end()

    def _pump(self) -> bool:
        """Read once. False: nothing is there at the moment, or never again."""
        if self._fd < 0:
            return False
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

    def _go_on(self) -> None:
        if self._write() and self._fd >= 0:
            self._loop.remove_writer(self._fd)

    def _write(self) -> bool:
        """Send what there is room for. False: some is left."""
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = os.write(self._fd, part)
            except BlockingIOError:
                return False
            except OSError:
                self._unsent.clear()
                return True
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return False
            self._unsent.popleft()
        return True
