"""One poll and those who read it: the life of a shared stream from its first subscriber to its last."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from stannel.triggers.base import BaseEventTrigger
from stannel.triggers.stream_bell import Bell, Waiter
from stannel.triggers.stream_log import Log, PollFailure, Reader
from stannel.triggers.stream_producer import PollTerminated, SubscriberOverflow

# A reader that has not moved in this many turns of the loop is slow; until then it may only not have had its turn.
_TURNS = 3


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How streams treat those who are slow, late, away or failing. The defaults promise only what is documented."""

    max_subscriber_queue: int = 1024
    ack_timeout: float = 300.0
    cohort_grace_period: float = 0.0
    overflow: Literal["fail", "block"] = "fail"
    advance_concurrency: int = 1
    advance_retries: int = 8
    advance_backoff: float = 0.1
    max_in_flight: int | None = None
    linger: float = 0.0
    redeliveries: int = 5
    redelivery_backoff: float = 1.0
    cohort: Callable[[Hashable], Collection[int]] | None = None
    already_stored: Callable[[Hashable, str], bool] | None = None


class Surroundings(Protocol):
    """What a group knows of where it lives."""

    options: StreamOptions
    log: logging.Logger
    now: Callable[[], float]

    def ended(self, group: "SharedStreamGroup[Any]") -> None:
        """The group takes no subscribers any more. Called before anything else can happen."""

    def deserted(self, group: "SharedStreamGroup[Any]") -> None:
        """Nobody has come back to the group; it may be stopped."""

    def gone(self, group: "SharedStreamGroup[Any]") -> None:
        """Nothing of the group is left."""


R = TypeVar("R", bound=Reader)


class SharedStreamGroup(Generic[R]):
    """The stream of one key: a poll, its log, and a place in it for each subscriber."""

    is_acked = False

    def __init__(self, key: Hashable, trigger: BaseEventTrigger, around: Surroundings) -> None:
        self.key = key
        self.subscriptions: dict[int, R] = {}
        self._class = type(trigger)
        self._kwargs = trigger.serialize()[1]
        self._around = around
        self._options = around.options
        self._bell = Bell(asyncio.get_running_loop())
        self._log: Log[Any, R] = self._new_log()
        self._room: asyncio.Future[None] | None = None
        self.bind: Callable[[R], int | None] = _bind_nothing
        self._is_over = False
        self._is_winding_up = False
        self._stream: AsyncIterator[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def _new_log(self) -> Log[Any, R]:
        return Log(self._options.max_subscriber_queue)

    def start(self) -> None:
        self._task = self._bell.loop.create_task(self._poll(), name=f"shared-stream-poll[{self.key!r}]")
        self._task.add_done_callback(lambda _: self._around.gone(self))

    # --- subscribers -------------------------------------------------------------------------------------------------

    def subscribe(self, trigger_id: int) -> AsyncIterator[Any]:
        """The raw events from now on. They wait for the reader though it has not begun to read."""
        if trigger_id in self.subscriptions:
            raise RuntimeError(
                f"Trigger {trigger_id} is already subscribed to the shared stream {self.key!r}; unsubscribe it first."
            )
        reader = self.subscriptions[trigger_id] = self._join(trigger_id)
        return self._deliver(reader)

    def _join(self, trigger_id: int) -> R:
        reader: Any = Reader(trigger_id, self._log.end)
        self._log.add(reader)
        return reader  # type: ignore[no-any-return]

    def unsubscribe(self, trigger_id: int) -> None:
        """It reads no more, and is done with what it has read."""
        reader = self.subscriptions.pop(trigger_id)
        self._log.remove(reader)
        if reader.waiter is not None:
            self._bell.forget(reader.waiter)
        self._signal_room()

    def finish(self, trigger_id: int) -> None:
        """It reads no more, and is done with the event it was on; what it has not read it does not owe."""
        self.unsubscribe(trigger_id)

    def lapse(self, trigger_id: int, *, blamed: bool) -> None:
        """It reads no more, and is not done with the event it was on."""
        self.unsubscribe(trigger_id)

    @property
    def may_stop(self) -> bool:
        """Nobody is left, and nothing is to be waited for."""
        return not self.subscriptions

    async def _deliver(self, reader: R) -> AsyncGenerator[Any, None]:
        log, items, readers, bell = self._log, self._log.items, self._log.readers, self._bell
        waiter, blocks = Waiter(bell), self._options.overflow == "block"
        reader.waiter = waiter
        while True:
            if reader.failure is not None:
                raise reader.failure.error()
            index = reader.at - log.base
            if index < len(items):
                reader.at += 1
                if blocks and self._room is not None:
                    self._signal_room()
                yield items[index]
            else:
                if len(bell.waiting) + 1 == len(readers) and not bell.is_rung:
                    # All others sleep and none is being woken: all have read everything. Idle streams keep no events.
                    log.clear()
                await (waiter if len(readers) > 1 else bell.alone())

    # --- the poll ----------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        try:
            if self._options.cohort_grace_period > 0:
                await asyncio.sleep(self._options.cohort_grace_period)
            await self._read()
        except Exception as error:
            # Not an await between the error and this: nobody may join a stream that is dead.
            self._end(error)
            self._around.log.error(
                "Shared stream poll failed; its subscribers are told, and the next one opens it anew key=%r",
                self.key,
                exc_info=error,
            )
        else:
            self._end(self._terminated())
        finally:
            self._is_winding_up = True
            await self._close_stream()
            await self._wind_up()

    async def _read(self) -> None:
        log, items, bell = self._log, self._log.items, self._bell
        self._stream = self._class.open_shared_stream(self._kwargs)
        async for raw in self._stream:
            if len(items) >= log.attention:
                await self._make_room()
            items.append(raw)
            if bell.waiting:
                bell.ring()

    async def _make_room(self) -> None:
        """Wait until the log may grow. Who had its turns and did not move is failed or waited for, as options say."""
        log, limit = self._log, self._log.limit
        log.trim()
        if not log.readers:
            # A source that never pauses, read by nobody, would keep everybody else from their turn.
            await asyncio.sleep(0)
        if len(log.items) < limit:
            return
        stood: dict[R, tuple[int, int]] = {}
        while lagging := log.lagging(limit):
            if self._options.overflow == "block":
                # Not for each event that is read: the poll and the slowest reader would take turns for ever.
                while log.lagging(limit - limit // 4):
                    await self._wait_for_room()
                continue
            turns = {reader: _turns_stood(reader, stood.get(reader)) for reader in lagging}
            for reader in [reader for reader, (_, count) in turns.items() if count > _TURNS]:
                del turns[reader]
                self._overflow(reader)
            stood = turns
            if stood:
                await asyncio.sleep(0)
        log.trim()

    async def _wait_for_room(self) -> None:
        self._room = self._bell.loop.create_future()
        try:
            await self._room
        finally:
            self._room = None

    def _signal_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _overflow(self, reader: R) -> None:
        limit = self._options.max_subscriber_queue
        self._fail(
            reader,
            SubscriberOverflow(
                f"Trigger {reader.id} on the shared stream {self.key!r} exceeded maxsize={limit} events not read yet; "
                "raise [triggerer] shared_stream_subscriber_queue_size or make its filter faster."
            ),
        )

    def _fail(self, reader: R, error: Exception) -> None:
        self._log.remove(reader)
        self._tell(reader, error)

    def _tell(self, reader: R, error: BaseException) -> None:
        if reader.failure is None:
            reader.failure = PollFailure(error)
        self._bell.ring()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException) -> None:
        """Take no more subscribers and tell those there are, all before anything else can happen."""
        if self._is_over:
            return
        self._is_over = True
        self._around.ended(self)
        for reader in self.subscriptions.values():
            self._tell(reader, error)

    def _terminated(self) -> PollTerminated:
        return PollTerminated(
            f"The shared stream {self.key!r} of {self._class.__name__} returned, but it is expected to run for the "
            "lifetime of the group. Its subscribers have failed, and the next one opens it anew."
        )

    async def _close_stream(self) -> None:
        """What is half read is closed now, and not when the garbage collector finds it."""
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            try:
                await close()
            except Exception:
                self._around.log.exception(
                    "The shared stream raised while it was closed; it is closed key=%r", self.key
                )

    async def _wind_up(self) -> None:
        """Called once when the poll is over, for whatever reason."""

    async def stop(self) -> None:
        """End the poll and wait until it is wound up. Nobody is told."""
        self._is_over = True
        if self._task is None:
            return
        if not self._is_winding_up and not self._task.cancelling():
            self._task.cancel()
        await asyncio.wait([self._task])


def _bind_nothing(reader: Reader) -> int | None:
    """No broker is told what is stored, so nobody waits for it."""
    return None


def _turns_stood(reader: Reader, before: tuple[int, int] | None) -> tuple[int, int]:
    if before is None or before[0] != reader.at:
        return reader.at, 1
    return reader.at, before[1] + 1
