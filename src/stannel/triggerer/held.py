"""A trigger in this triggerer's hands, from the claim to the moment when its process has let go of it."""

import asyncio
import time
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from stannel.model.states import TriggerState
from stannel.model.trigger import CancelReason, Trigger, Watch
from stannel.protocol.triggering import TriggerStart, Waiter
from stannel.triggerer.pacing import Pace

if TYPE_CHECKING:
    from stannel.triggerer.host_process import HostProcess

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Trigger).decode


class Phase(Enum):
    """What is still to come. In the last one only the process has something left to do."""

    RUNNING = auto()
    ENDING = auto()
    LEAVING = auto()
    # Of a watcher that nobody wants any more: what it still has to say counts.
    STOPPING = auto()
    KILLING = auto()
    OVER = auto()


class Part:
    """Some of the triggers of a process that grew too large: they share another, which takes nobody else."""

    __slots__ = ("host", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.host: HostProcess | None = None


class Closing(Enum):
    """Why a stream is closed here: to be opened by another triggerer, or by another process of this one."""

    RELEASE = auto()
    RESTART = auto()


class Stream:
    """Watchers that read one stream. One process runs them all, and they are given away together or not at all."""

    __slots__ = ("alone", "closing", "host", "key", "members", "queue")

    def __init__(self, key: str, queue: str | None) -> None:
        self.key, self.queue = key, queue
        self.members: dict[int, Held] = {}
        self.host: HostProcess | None = None
        self.alone = False
        self.closing: Closing | None = None

    @property
    def is_running(self) -> bool:
        return any(one.host is not None for one in self.members.values())


class Course:
    """How a watcher has fared since it is here."""

    __slots__ = ("attempts", "digest", "has_failed", "has_fired", "is_held_back", "next_at", "pace", "started", "timer")

    def __init__(self, watch: Watch) -> None:
        self.digest, self.attempts, self.next_at = watch.digest, watch.attempts, watch.next_at
        self.has_failed = self.has_fired = self.is_held_back = False
        self.pace: Pace | None = None
        self.started = 0.0
        self.timer: asyncio.TimerHandle | None = None


class Held:
    """One trigger. Its definition is kept packed: thousands of them wait here for a long time."""

    __slots__ = (
        "_packed",
        "alone",
        "cancelled",
        "course",
        "deaths",
        "epoch",
        "host",
        "id",
        "part",
        "phase",
        "since",
        "startup",
        "stream",
        "successor",
        "told_epoch",
    )

    def __init__(self, trigger: Trigger, *, startup: bytes | None = None) -> None:
        self.id, self.epoch = trigger.id, trigger.epoch
        # The epoch its process was told: a trigger that is claimed again while it runs here just goes on.
        self.told_epoch = trigger.epoch
        self.phase = Phase.RUNNING if trigger.state is TriggerState.WAITING else Phase.KILLING
        self.host: HostProcess | None = None
        self.cancelled: CancelReason | None = None
        self.since = time.monotonic()
        self.alone = False
        self.part: Part | None = None
        self.deaths = 0
        self.startup = startup
        self.successor: Held | None = None
        # None of a trigger that a task waits for.
        self.course = None if trigger.watch is None else Course(trigger.watch)
        self.stream: Stream | None = None
        self._packed = _encode(trigger)

    @property
    def trigger(self) -> Trigger:
        return _decode(self._packed)

    def start(self) -> TriggerStart:
        """How its process is told of it."""
        trigger = self.trigger
        self.told_epoch = self.epoch
        return TriggerStart(
            id=self.id,
            epoch=self.epoch,
            classpath=trigger.classpath,
            kwargs=trigger.kwargs,
            waiter=None if self.course is not None else _waiter(trigger),
            timeout_after=trigger.deadline_at,
            only_kill=self.phase is Phase.KILLING,
            startup=self.startup,
            assets=[] if trigger.watch is None else list(trigger.watch.assets),
        )

    def again(self) -> "Held":
        """The same trigger, to be started anew when its process has let go of it."""
        fresh = Held(self.trigger, startup=self.startup)
        fresh.epoch, fresh.alone, fresh.deaths, fresh.phase = self.epoch, self.alone, self.deaths, self.phase
        fresh.part = self.part
        return fresh


def _waiter(trigger: Trigger) -> Waiter:
    return Waiter(
        trigger.attempt_id,
        trigger.dag_id,
        trigger.run_id,
        trigger.task_id,
        trigger.map_index,
        trigger.try_number,
    )
