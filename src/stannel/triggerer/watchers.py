"""What is special about watchers among the triggers held here: they have no end, only pauses, and some stay together.

A watcher that ends begins again: at once when it fired, ever later when it failed, held back when it only repeats
itself. Those that read one stream have one process; they are closed, moved and given back as one.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from stannel.model.ids import new_id
from stannel.model.trigger import CancelReason, Event, Failure, Firing, Paced
from stannel.protocol.triggering import Confirmed, Fired, Registered
from stannel.triggerer.ends import End, Ends
from stannel.triggerer.held import Closing, Course, Held, Phase, Stream
from stannel.triggerer.host_process import HostProcess
from stannel.triggerer.hosts import Hosts
from stannel.triggerer.pacing import Pace, pause_after_failure

log = logging.getLogger(__name__)

_DIGEST_SHOWN = 16
_HELD_BACK = "it fires the same at once whenever it is started: its condition stays true, so it is held back"
_encode = msgspec.msgpack.Encoder().encode


class WatcherLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The longest pause in seconds, and how often a watcher may repeat itself."""

    longest: float = 60.0
    repeats: int = 5


class WatchersOwner(msgspec.Struct, frozen=True):
    """Who is told what becomes of watchers."""

    # These are not held any more, and are to be given back.
    release: Callable[[Sequence[Held]], None]
    note: Callable[[Held, str, str], None]


class Watchers:
    """The watchers of one keeper."""

    def __init__(
        self, hosts: Hosts, ends: Ends, name: str, limits: WatcherLimits, clock: Callable[[], datetime]
    ) -> None:
        self._hosts, self._ends, self._name, self._limits, self._clock = hosts, ends, name, limits, clock
        self._loop = asyncio.get_running_loop()
        self._streams: dict[tuple[str, str | None], Stream] = {}
        self.owner: WatchersOwner | None = None
        self.is_leaving = False

    # --- coming and going ------------------------------------------------------------------------------------------

    def adopt(self, claimed: Iterable[Held]) -> None:
        """These are held from now on; they are not started yet."""
        touched: dict[int, Stream] = {}
        for one in claimed:
            trigger = one.trigger
            key = None if trigger.watch is None else trigger.watch.stream_key
            if key is None:
                continue
            stream = self._streams.setdefault((key, trigger.queue), Stream(key, trigger.queue))
            stream.members[one.id] = one
            one.stream = stream
            if stream.closing is Closing.RELEASE:
                one.phase = Phase.LEAVING
            touched[id(stream)] = stream
        for stream in touched.values():
            if stream.closing is None:
                self._hosts.tell_members(stream)

    def start(self, one: Held) -> None:
        """Have it run now, or when its pause is over."""
        course = _course(one)
        if one.phase is not Phase.RUNNING or self.is_leaving or (one.stream is not None and one.stream.closing):
            return
        left = 0.0 if course.next_at is None else (course.next_at - self._clock()).total_seconds()
        if left > 0:
            self._rest(one, left)
            return
        course.next_at, course.timer = None, None
        course.has_failed = course.has_fired = False
        course.started = time.monotonic()
        self._hosts.start([one])

    def restart(self, one: Held) -> None:
        """A person wants it to begin anew, now."""
        course = _course(one)
        course.next_at, course.attempts, course.pace = None, 0, None
        if one.host is not None:
            self._hosts.cancel([one], CancelReason.RESTARTED)
        elif self._rouse(course):
            self.start(one)

    def dropped(self, one: Held) -> None:
        """It is not held any more. With the last of a stream, that is closed."""
        self._rouse(_course(one))
        stream, one.stream = one.stream, None
        if stream is None or stream.members.get(one.id) is not one:
            return
        del stream.members[one.id]
        if stream.members:
            # Later, for others of the stream may be dropped with it: a process that hears of one after the other would
            # no longer wait for those whose answers another owner is going to give.
            self._loop.call_soon(self._tell, stream)
            return
        del self._streams[stream.key, stream.queue]
        if _is_open(stream) and stream.closing is None:
            self._close(stream)

    def stop(self) -> None:
        """Start nothing more."""
        self.is_leaving = True

    # --- what hosts say --------------------------------------------------------------------------------------------

    def fired(self, host: HostProcess, one: Held, report: Fired) -> None:
        """Every event counts, until the process has let go of the watcher."""
        if one.phase not in (Phase.RUNNING, Phase.LEAVING, Phase.STOPPING):
            return
        course, event = _course(one), report.event
        if not course.has_fired and report.number is None:
            self._note_pace(one, course, event)
        course.has_fired, course.attempts = True, 0
        identity = event.identity
        if identity is None:
            identity = new_id() if report.position is None else f"{course.digest[:_DIGEST_SHOWN]}/{report.position}"
        firing = self._firing(one, msgspec.structs.replace(event, identity=identity))
        self._ends.add(self._name, firing, None if report.number is None else (host, report.number))

    def failed(self, one: Held, failure: Failure) -> None:
        """It ended badly, or could not begin."""
        if one.phase is not Phase.RUNNING:
            return
        course = _course(one)
        if course.has_failed:
            return
        course.has_failed = True
        course.attempts += 1
        pause = pause_after_failure(course.attempts, random.random(), self._limits.longest)
        course.next_at = self._clock() + timedelta(seconds=pause)
        self._say(
            one, f"The watcher failed and is tried again in {pause:.1f} s (attempt {course.attempts + 1})", "error"
        )
        self._ends.add(self._name, self._firing(one, failure, again_at=course.next_at))

    def ended(self, one: Held) -> None:
        """Its process has let go of it, though nobody told it to."""
        course = _course(one)
        if not course.has_failed and course.pace is not None and (pause := course.pace.pause) > 0:
            course.next_at = self._clock() + timedelta(seconds=pause)
        self._go_on(one)

    def let_go(self, one: Held) -> bool:
        """Its process has let go of it, and it is to be given back. True: nothing else has to be waited for."""
        if one.stream is None:
            return True
        self._close_if_quiet(one.stream)
        return False

    def stream_ended(self, host: HostProcess, key: str) -> None:
        """A process has closed a stream that had no place there any more."""
        for stream in [one for one in self._streams.values() if one.key == key and one.host is host]:
            # One that came back meanwhile is opened anew.
            if stream.closing is not None:
                self._is_closed(stream)

    # --- what the store says ---------------------------------------------------------------------------------------

    def confirm(self, results: Iterable[tuple[End, bool | None]]) -> None:
        """Tell the processes what is stored."""
        numbers: dict[HostProcess, list[int]] = {}
        for end, ok in results:
            if ok and end.source is not None and isinstance(end.firing.what, Event):
                host, number = end.source
                numbers.setdefault(host, []).append(number)
        for host, some in numbers.items():
            if not host.is_over:
                host.send(Confirmed(some))

    # --- streams ---------------------------------------------------------------------------------------------------

    def give_away(self, stream: Stream) -> None:
        """Stop everyone who reads it, close it, and give it back: all others may open it then."""
        self._close_for(stream, Closing.RELEASE)

    def move(self, running: Iterable[Held]) -> None:
        """Have these begin anew in another process; their streams are closed first."""
        for one in running:
            if one.stream is None:
                self._hosts.cancel([one], CancelReason.RESTARTED)
            elif one.stream.closing is None:
                self._close_for(one.stream, Closing.RESTART)

    def _close_for(self, stream: Stream, closing: Closing) -> None:
        stream.closing = closing
        reason = CancelReason.MOVED if closing is Closing.RELEASE else CancelReason.RESTARTED
        for one in stream.members.values():
            if closing is Closing.RELEASE and one.phase is Phase.RUNNING:
                one.phase = Phase.LEAVING
            self._rouse(_course(one))
        self._hosts.cancel(stream.members.values(), reason)
        self._close_if_quiet(stream)

    def _close_if_quiet(self, stream: Stream) -> None:
        if stream.is_running or stream.closing is None:
            return
        if _is_open(stream):
            self._close(stream)
        else:
            self._is_closed(stream)

    def _close(self, stream: Stream) -> None:
        assert stream.host is not None
        stream.host.send(Registered(stream.key, []))

    def _is_closed(self, stream: Stream) -> None:
        closing, stream.closing, stream.host = stream.closing, None, None
        members = list(stream.members.values())
        if closing is Closing.RELEASE and self.owner is not None:
            self.owner.release(members)
        elif closing is Closing.RESTART:
            for one in members:
                self._go_on(one)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _tell(self, stream: Stream) -> None:
        if stream.members and stream.closing is None:
            self._hosts.tell_members(stream)

    def _go_on(self, one: Held) -> None:
        if one.stream is not None and one.stream.closing is not None:
            self._close_if_quiet(one.stream)
        else:
            self.start(one)

    def _rest(self, one: Held, seconds: float) -> None:
        course = _course(one)
        self._rouse(course)
        course.timer = self._loop.call_later(seconds, self._rested, one)

    def _rested(self, one: Held) -> None:
        course = _course(one)
        course.timer = course.next_at = None
        if one.phase is Phase.RUNNING and one.host is None:
            self.start(one)

    @staticmethod
    def _rouse(course: Course) -> bool:
        """End its rest. False: it did not rest."""
        timer, course.timer = course.timer, None
        if timer is None:
            return False
        timer.cancel()
        return True

    def _note_pace(self, one: Held, course: Course, event: Event) -> None:
        if course.pace is None:
            course.pace = Pace(self._limits.repeats, self._limits.longest)
        course.pace.fired(_encode((event.payload, event.identity)), time.monotonic() - course.started)
        if course.pace.is_held_back == course.is_held_back:
            return
        course.is_held_back = course.pace.is_held_back
        trouble = _HELD_BACK if course.is_held_back else None
        if trouble is not None:
            log.warning("Watcher %s: %s", one.id, trouble)
            self._say(one, f"The watcher is held back: {trouble}", "warning")
        self._ends.add(self._name, self._firing(one, Paced(trouble=trouble)))

    def _firing(self, one: Held, what: Event | Failure | Paced, again_at: datetime | None = None) -> Firing:
        return Firing(id=one.id, epoch=one.epoch, what=what, is_watch=True, again_at=again_at)

    def _say(self, one: Held, text: str, level: str) -> None:
        if self.owner is not None:
            self.owner.note(one, text, level)


def _course(one: Held) -> Course:
    assert one.course is not None
    return one.course


def _is_open(stream: Stream) -> bool:
    """Whether a process may have the stream open."""
    return stream.host is not None and not stream.host.is_over and not stream.host.is_draining
