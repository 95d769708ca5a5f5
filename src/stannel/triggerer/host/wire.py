"""The host's end of the socket: commands in, reports out, from any thread, never half a frame.

What is said within one turn of the loop leaves in one write, log lines first.
"""

import asyncio
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from typing import TypeVar

from stannel.protocol.decoding import UNREADABLE
from stannel.protocol.errors import ProtocolBroken
from stannel.protocol.frames import DEFAULT_FRAME_LIMIT, Frames
from stannel.protocol.triggering import (
    Answer,
    Command,
    HostSetup,
    Logged,
    LogRecord,
    Report,
    decode_command,
    frame,
)

_CHUNK = 256 * 1024
_LINES_AT_ONCE = 256
_LONG_LINE = 8 * 1024
# Beyond this the triggerer does not keep up, and lines are what can be done without.
_MOST_UNSENT = 8 * 1024 * 1024
_POLL_SECONDS = 0.2

T = TypeVar("T")
# Code that belongs to no trigger runs in here.
_NOBODY = Context()


class ReportTooLarge(Exception):
    """The report cannot be sent; nothing was."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it takes {size} bytes, and {DEFAULT_FRAME_LIMIT} is the most that can be sent")


class Wire:
    """The socket. `loop`, `take` and `on_end` are set once the loop is there."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._frames = Frames()
        self._arrived: deque[Command] = deque()
        self._lock = threading.RLock()
        self._reports: deque[bytes] = deque()
        self._lines: deque[LogRecord] = deque()
        self._dropped: dict[int | None, int] = {}
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_flush_due = self._is_writing = self._is_over = False
        self._main = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._take: Callable[[Command], None] = lambda command: None
        self._on_answer: Callable[[Answer], None] = lambda answer: None
        self._on_end: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """Nobody listens any more."""
        return self._is_over

    @property
    def is_on_main_thread(self) -> bool:
        return threading.get_ident() == self._main

    def read_setup(self) -> HostSetup | None:
        """The first command, waited for. None: the triggerer left without a word."""
        while not self._arrived:
            select.select([self._sock], [], [])
            self._receive()
            if self._is_over:
                return None
        setup = self._arrived.popleft()
        return setup if isinstance(setup, HostSetup) else None

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        take: Callable[[Command], None],
        on_answer: Callable[[Answer], None],
        on_end: Callable[[], None],
    ) -> None:
        """Read on this loop from now on."""
        self._loop, self._take, self._on_answer, self._on_end = loop, take, on_answer, on_end
        loop.add_reader(self._sock, self._on_readable)
        loop.call_soon(self._deliver)

    # --- in --------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._receive()
        self._deliver()
        if self._is_over and self._loop is not None:
            self._loop.remove_reader(self._sock)
            self._on_end()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
            if not data:
                self._is_over = True
            self._arrived.extend(map(decode_command, self._frames.feed(data)))
        except BlockingIOError:
            return
        except (OSError, ProtocolBroken, *UNREADABLE):
            self._is_over = True

    def _deliver(self) -> None:
        while self._arrived:
            command = self._arrived.popleft()
            if isinstance(command, Answer):
                self._on_answer(command)
            else:
                self._take(command)

    def pump(self, is_done: Callable[[], bool], seconds: float, beat: Callable[[], None]) -> None:
        """Wait for an answer on the loop's own thread, while the loop stands; other commands are kept for later."""
        assert self._loop is not None
        deadline = time.monotonic() + seconds
        kept: deque[Command] = deque()
        while not is_done() and not self._is_over and (left := deadline - time.monotonic()) > 0:
            self.flush()
            writers = [self._sock] if self._unsent else []
            select.select([self._sock], writers, [], min(left, _POLL_SECONDS))
            self._receive()
            beat()
            for command in self._arrived:
                if isinstance(command, Answer):
                    self._on_answer(command)
                else:
                    kept.append(command)
            self._arrived.clear()
        if kept:
            self._arrived.extend(kept)
            self._loop.call_soon(self._deliver, context=_NOBODY)

    # --- out -------------------------------------------------------------------------------------------------------

    def report(self, message: Report) -> None:
        """Say it with the others of this turn. What cannot be encoded raises, and nothing is said."""
        data = frame(message)
        if len(data) > DEFAULT_FRAME_LIMIT:
            raise ReportTooLarge(len(data))
        self._reports.append(data)
        self._flush_soon()

    def log(self, record: LogRecord, *, is_vital: bool = False) -> None:
        """Send the line soon. While nobody reads, lines are counted instead of kept, unless they are vital."""
        if self._unsent_bytes > _MOST_UNSENT and not is_vital:
            with self._lock:
                self._dropped[record.trigger_id] = self._dropped.get(record.trigger_id, 0) + 1
            return
        self._lines.append(record)
        if len(self._lines) >= _LINES_AT_ONCE or len(record.event) > _LONG_LINE:
            self.flush()
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._is_flush_due or self._loop is None:
            return
        self._is_flush_due = True
        if self.is_on_main_thread:
            self._loop.call_soon(self.flush, context=_NOBODY)
        else:
            self._loop.call_soon_threadsafe(self.flush, context=_NOBODY)

    def flush(self) -> None:
        """Send what was said, as far as the socket takes it now."""
        with self._lock:
            self._is_flush_due = False
            lines, reports = _taken(self._lines), _taken(self._reports)
            if self._dropped and self._unsent_bytes < _MOST_UNSENT // 2:
                dropped, self._dropped = self._dropped, {}
                lines.extend(_drop_line(trigger_id, count) for trigger_id, count in dropped.items())
            if lines:
                reports.insert(0, frame(Logged(lines)))
            if reports:
                data = memoryview(b"".join(reports))
                self._unsent.append(data)
                self._unsent_bytes += len(data)
            self._write()
            self._watch_writable()

    def flush_all(self, seconds: float) -> None:
        """Send everything, before the end."""
        deadline = time.monotonic() + seconds
        self.flush()
        while self._unsent and not self._is_over and (left := deadline - time.monotonic()) > 0:
            select.select([], [self._sock], [], left)
            self.flush()

    def _write(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                return
            except OSError:
                self._unsent.clear()
                self._unsent_bytes = 0
                return
            self._unsent_bytes -= sent
            if sent == len(data):
                self._unsent.popleft()
            else:
                self._unsent[0] = data[sent:]

    def _watch_writable(self) -> None:
        if self._loop is None or bool(self._unsent) == self._is_writing:
            return
        if not self.is_on_main_thread:
            self._loop.call_soon_threadsafe(self.flush, context=_NOBODY)
            return
        self._is_writing = bool(self._unsent)
        if self._is_writing:
            self._loop.add_writer(self._sock, self.flush)
        else:
            self._loop.remove_writer(self._sock)


def _taken(queue: deque[T]) -> list[T]:
    """All there was; what other threads add meanwhile stays for the next time."""
    return [queue.popleft() for _ in range(len(queue))]


def _drop_line(trigger_id: int | None, count: int) -> LogRecord:
    text = f"{count} lines are missing here: they were written faster than they could be taken."
    return LogRecord(trigger_id, datetime.now(UTC).isoformat(), "warning", "stannel.triggerer", text)
