"""Notices when the loop stands still, and names the line of the trigger that holds it: a thread looks from outside."""

import os
import selectors
import sys
import threading
import time
import traceback
from asyncio import events
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from stannel.protocol.triggering import Blocking
from stannel.triggerer.host.loglines import Output, clean
from stannel.triggerer.host.places import is_authors, is_foreign, is_hosts
from stannel.triggerer.host.scope import owner
from stannel.triggerer.host.wire import Wire

_REPEAT_SECONDS = 1.0
_MOST_STACK_LINES = 60
_RUN_CODE = events.Handle._run.__code__


class Turns(selectors.EpollSelector):
    """The loop's selector, which counts its turns. `busy_since` is 0.0 while the loop waits for something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.busy_since = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.busy_since = 0.0
        ready = super().select(timeout)
        self.count += 1
        self.busy_since = time.monotonic()
        return ready


@dataclass(frozen=True)
class Place:
    """Where code stands."""

    file: str
    line: int
    function: str
    stack: list[str]


@dataclass
class _Block:
    """One callback of the loop that does not end. The frame is kept: as long as it is, no other can be taken for it."""

    frame: FrameType
    turn: int
    since: float
    told_at: float = 0.0
    trigger_id: int | None = None


class Watch:
    """The thread. It compares what it sees at short intervals, and speaks when the same callback still runs."""

    def __init__(
        self, turns: Turns, wire: Wire, output: Output, *, patience: float, is_excused: Callable[[], bool]
    ) -> None:
        self._turns, self._wire, self._output = turns, wire, output
        self._patience, self._is_excused = patience, is_excused
        self._main, self._parent = threading.get_ident(), os.getppid()
        self._block: _Block | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            is_idle = self._turns.busy_since == 0.0
            time.sleep(self._patience / (2 if is_idle else 4))
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        if self._turns.busy_since == 0.0 or self._is_excused():
            self._is_over(now)
            return
        frame, innermost = self._callback()
        block = self._block
        if frame is None or block is None or block.frame is not frame or block.turn != self._turns.count:
            self._is_over(now)
            self._block = None if frame is None else _Block(frame, self._turns.count, now)
            return
        if now - block.since >= self._patience and now - block.told_at >= _REPEAT_SECONDS and innermost is not None:
            self._tell(block, frame, innermost, now)
        # Nobody can tell a stuck loop that its parent is gone.
        if os.getppid() != self._parent:
            os._exit(1)

    def _callback(self) -> tuple[FrameType | None, FrameType | None]:
        """The frame of the callback that the loop runs at this moment, and the innermost frame inside it."""
        innermost = found = sys._current_frames().get(self._main)
        while found is not None and found.f_code is not _RUN_CODE:
            found = found.f_back
        return found, innermost

    def _tell(self, block: _Block, callback: FrameType, innermost: FrameType, now: float) -> None:
        place = place_of(innermost, callback)
        seconds = now - block.since
        trigger_id = _whose(callback)
        if not block.told_at:
            self._output.say(
                trigger_id,
                "warning",
                f"The trigger blocks the event loop: {place.function}() at {place.file}:{place.line} has kept it for "
                f"{seconds:.1f} seconds, and no other trigger runs meanwhile. Await what it waits for, or move it to a "
                "thread with asyncio.to_thread().",
            )
        block.told_at, block.trigger_id = now, trigger_id
        self._wire.report(
            Blocking(trigger_id, seconds, clean(place.file), place.line, clean(place.function), place.stack)
        )
        self._wire.flush()

    def _is_over(self, now: float) -> None:
        block, self._block = self._block, None
        if block is not None and block.told_at:
            text = f"The event loop goes on; the trigger blocked it for {now - block.since:.1f} seconds"
            self._output.say(block.trigger_id, "warning", text)


def _whose(callback: FrameType) -> int | None:
    handle = callback.f_locals.get("self")
    context = getattr(handle, "_context", None)
    found = None if context is None else context.get(owner)
    return None if found is None else found.id


def place_of(innermost: FrameType, callback: FrameType | None = None) -> Place:
    """The innermost line of an author's code, or else of an installed package, or else of anybody."""
    frames = []
    frame: FrameType | None = innermost
    while frame is not None and frame is not callback:
        frames.append(frame)
        frame = frame.f_back
    chosen = _first(frames, is_authors) or _first(frames, is_foreign) or innermost
    outermost_first = [frame for frame in reversed(frames) if not is_hosts(frame.f_code.co_filename)]
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in outermost_first)
    stack = [clean(line) for entry in summary.format() for line in entry.rstrip("\n").split("\n")]
    return Place(chosen.f_code.co_filename, chosen.f_lineno, chosen.f_code.co_name, stack[-_MOST_STACK_LINES:])


def _first(frames: list[FrameType], condition: Callable[[str], bool]) -> FrameType | None:
    return next((frame for frame in frames if condition(frame.f_code.co_filename)), None)
