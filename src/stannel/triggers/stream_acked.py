"""A stream whose broker is told what was stored: the poll, the pump and the clock around the ledger."""

import asyncio
import sys
from asyncio import current_task
from collections.abc import AsyncGenerator, Collection, Hashable, Iterable
from contextvars import ContextVar
from typing import Any

from stannel.triggers.base import BaseEventTrigger
from stannel.triggers.ledger import Ledger
from stannel.triggers.stream_bell import Waiter
from stannel.triggers.stream_entries import Batch, Lane, Subscriber
from stannel.triggers.stream_figures import StreamFigures, figures
from stannel.triggers.stream_group import SharedStreamGroup, Surroundings
from stannel.triggers.stream_log import Log
from stannel.triggers.stream_producer import AckTimeout, PollTerminated, SharedStreamProducer

_LONGEST_BACKOFF = 30.0

# Whom the running task reads for: how a filter is found that says nothing about itself. Tasks that it starts inherit
# this variable, so the task is noted too.
window: "ContextVar[tuple[AckedGroup, Subscriber, asyncio.Task[Any] | None] | None]" = ContextVar(
    "window", default=None
)


class AckedGroup(SharedStreamGroup[Subscriber]):
    """The stream of one key in ack mode."""

    is_acked = True

    def __init__(self, key: Hashable, trigger: BaseEventTrigger, around: Surroundings, number: int) -> None:
        self.ledger = Ledger(number=number, limit=around.options.max_subscriber_queue, on_ready=self._wake_pump)
        self.number = number
        super().__init__(key, trigger, around)
        self.bind = self.ledger.bind
        self._producer: SharedStreamProducer | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._idle_pumps: list[asyncio.Future[None]] = []
        self._clock: asyncio.Task[None] | None = None
        self._backing_off: dict[Lane, asyncio.TimerHandle] = {}
        self._desertion: asyncio.TimerHandle | None = None
        self._is_broken = False
        self.refresh_cohort()

    def _new_log(self) -> Log[Any, Subscriber]:
        return self.ledger

    # --- subscribers -------------------------------------------------------------------------------------------------

    def _join(self, trigger_id: int) -> Subscriber:
        subscriber = self.ledger.join(trigger_id, self._around.now())
        self.refresh_cohort()
        if self._desertion is not None:
            self._desertion.cancel()
            self._desertion = None
        self._signal_room()
        return subscriber

    def unsubscribe(self, trigger_id: int) -> None:
        subscriber = self.subscriptions.pop(trigger_id)
        if subscriber.id in self._cohort():
            self.ledger.leave(subscriber, stays=True)
        elif self._is_member(subscriber):
            self.ledger.leave(subscriber)
        self._left(subscriber)

    def finish(self, trigger_id: int) -> None:
        subscriber = self.subscriptions.pop(trigger_id)
        if self._is_member(subscriber):
            self.ledger.leave(subscriber, stays=True)
            if subscriber.id not in self._cohort() and not self.ledger.excuse(subscriber, keeps_results=True):
                self._begin_anew()
        self._left(subscriber)

    def lapse(self, trigger_id: int, *, blamed: bool) -> None:
        subscriber = self.subscriptions.pop(trigger_id)
        if subscriber.id in self._cohort() or (self._options.linger > 0 and self._is_member(subscriber)):
            self.ledger.lapse(subscriber, blamed=blamed, redeliveries=self._options.redeliveries)
            self._bell.loop.call_later(self._options.linger, self._give_up, subscriber)
        elif self._is_member(subscriber):
            self.ledger.drop(subscriber)
        self._left(subscriber)

    def _give_up(self, subscriber: Subscriber) -> None:
        """It has had its time to come back. Who is registered keeps its place without end."""
        if self._is_member(subscriber) and not subscriber.durable:
            self.ledger.drop(subscriber)

    def _is_member(self, subscriber: Subscriber) -> bool:
        return self.ledger.readers.get(subscriber.id) is subscriber

    def _left(self, subscriber: Subscriber) -> None:
        if subscriber.waiter is not None:
            self._bell.forget(subscriber.waiter)
        self._signal_room()
        if not self.subscriptions and self._options.linger > 0 and self._desertion is None:
            self._desertion = self._bell.loop.call_later(self._options.linger, self._around.deserted, self)

    @property
    def may_stop(self) -> bool:
        if self.subscriptions:
            return False
        return self._options.linger <= 0 or not (self.ledger.readers or self.ledger.owes_results)

    def _cohort(self) -> Collection[int]:
        return () if self._options.cohort is None else self._options.cohort(self.key)

    def refresh_cohort(self) -> None:
        """Owe what comes from now on to those who are registered; those who are so no longer are not waited for."""
        if self._options.cohort is None:
            return
        registered, is_complete = self._cohort(), True
        for subscriber in [*self.ledger.readers.values()]:
            subscriber.durable = subscriber.id in registered
            if not subscriber.durable and not subscriber.online:
                is_complete = self.ledger.excuse(subscriber) and is_complete
        if not is_complete:
            self._begin_anew()
        for trigger_id in registered:
            if trigger_id not in self.ledger.readers and trigger_id not in self.subscriptions:
                self.ledger.expect(trigger_id, self._around.now())
        self._signal_room()

    def _begin_anew(self) -> None:
        """Events are left that nobody here owes: their broker repeats them to those who read next."""
        if not self.subscriptions:
            # Whoever comes opens it anew. What is still to be confirmed and advanced here is.
            self._around.ended(self)
            return
        self._end(
            PollTerminated(
                f"The shared stream {self.key!r} begins anew: one who read it is gone, and left events that nobody "
                "else was to handle. Its broker delivers them again."
            )
        )
        if self._task is not None and not self._is_winding_up:
            self._task.cancel()

    async def _deliver(self, reader: Subscriber) -> AsyncGenerator[Any, None]:
        ledger, bell = self.ledger, self._bell
        waiter = reader.waiter = Waiter(bell)
        mine, blocks = (self, reader, current_task()), self._options.overflow == "block"
        if reader.attempts and reader.tried == reader.at:
            await asyncio.sleep(_backoff(self._options.redelivery_backoff, reader.attempts))
        while True:
            if reader.failure is not None:
                raise reader.failure.error()
            entry = ledger.next(reader)
            if blocks and self._room is not None:
                self._signal_room()
            if entry is not None:
                if window.get() is not mine:
                    mine = (self, reader, current_task())
                    window.set(mine)
                yield entry.raw
            else:
                await (waiter if len(ledger.readers) > 1 else bell.alone())

    # --- results -----------------------------------------------------------------------------------------------------

    def identity(self, trigger_id: int) -> str | None:
        """A name for the result bound last, equal when the broker repeats the event. None: the producer has none."""
        subscriber = self.subscriptions.get(trigger_id)
        if subscriber is None or self._producer is None:
            return None
        entry = subscriber.current
        if entry is None or subscriber.bound_to is not entry:
            return None
        event = self._producer.get_event_identity(entry.payload)
        return None if event is None else f"{event}/{subscriber.made}"

    def confirm(self, sequences: Iterable[int]) -> None:
        self.ledger.confirm(sequences)

    def figures(self) -> StreamFigures:
        return figures(self.key, self.ledger, self._around.now())

    # --- the poll ----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        producer = self._producer = self._class.create_shared_stream_producer(self._kwargs)
        self.ledger.cuts_at_failures = producer.commits_cumulatively
        self._start_pump()
        ledger, bell, now, lane_of = self.ledger, self._bell, self._around.now, producer.get_advance_lane
        options, items, known, admit = self._options, ledger.items, False, ledger.admit
        is_special = options.max_in_flight is not None or options.linger > 0 or options.already_stored is not None
        self._stream = producer.open_stream()
        async for raw, payload in self._stream:
            lane = lane_of(payload)
            if is_special:
                await self._wait_for_readers()
                known = self._is_stored(payload)
            if len(items) >= ledger.attention:
                await self._make_room()
            admit(raw, payload, lane, now(), known)
            if bell.waiting:
                bell.ring()

    async def _wait_for_readers(self) -> None:
        """Wait while too much is outstanding, or while those who left may come back and nobody else is here."""
        most = self._options.max_in_flight or sys.maxsize
        while self.ledger.outstanding >= most or (self._options.linger > 0 and not self.subscriptions):
            await self._wait_for_room()

    def _is_stored(self, payload: Any) -> bool:
        if self._options.already_stored is None or self._producer is None:
            return False
        identity = self._producer.get_event_identity(payload)
        return identity is not None and self._options.already_stored(self.key, identity)

    def _fail(self, reader: Subscriber, error: Exception) -> None:
        self.ledger.fail(reader)
        if reader.online:
            self._tell(reader, error)

    # --- deadlines ---------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(max(0.01, self._options.ack_timeout / 10))
            self.refresh_cohort()
            self.expire()

    def expire(self) -> None:
        timeout = self._options.ack_timeout
        for subscriber in self.ledger.expire(self._around.now(), timeout):
            if self.subscriptions.get(subscriber.id) is subscriber:
                self._tell(
                    subscriber,
                    AckTimeout(
                        f"Trigger {subscriber.id} did not finish an event of the shared stream {self.key!r} within "
                        f"{timeout:g} s; the event counts as failed, and its broker may deliver it again."
                    ),
                )
        self._signal_room()

    # --- the pump ----------------------------------------------------------------------------------------------------

    def _start_pump(self) -> None:
        create = self._bell.loop.create_task
        for number in range(self._options.advance_concurrency):
            name = f"shared-stream-advance-pump[{self.key!r}]" + (f"#{number + 1}" if number else "")
            self._pumps.append(create(self._pump(), name=name))
        self._clock = create(self._keep_time(), name=f"shared-stream-ack-timeout[{self.key!r}]")

    def _wake_pump(self) -> None:
        while self._idle_pumps:
            idle = self._idle_pumps.pop()
            if not idle.done():
                idle.set_result(None)
                return

    async def _pump(self) -> None:
        while not self._is_broken:
            batch = self.ledger.take()
            if batch is not None:
                await self._advance(batch)
            elif self._is_winding_up:
                return
            else:
                idle = self._bell.loop.create_future()
                self._idle_pumps.append(idle)
                await idle

    async def _advance(self, batch: Batch) -> None:
        assert self._producer is not None
        try:
            if batch.is_unhandled:
                await self._producer.dead_letter(batch.items[0])
            await self._producer.advance(batch.items)
        except asyncio.CancelledError as error:
            task = current_task()
            if task is not None and task.cancelling():
                raise
            # The broker's library gave up by itself; to the stream that is an error like any other.
            self._advance_failed(error)
        except Exception as error:  # noqa: BLE001 - it is given to the producer, or to every subscriber
            if self._may_retry(batch, error):
                self._retry_later(batch.lane, error)
            else:
                self._advance_failed(error)
        else:
            self.ledger.done(batch)
            self._signal_room()
            if not self.subscriptions and not self._is_over and self.may_stop:
                self._around.deserted(self)

    def _may_retry(self, batch: Batch, error: Exception) -> bool:
        if self._is_winding_up or batch.lane.tries >= self._options.advance_retries or self._producer is None:
            return False
        return self._producer.may_retry_advance(error)

    def _retry_later(self, lane: Lane, error: Exception) -> None:
        lane.tries += 1
        delay = _backoff(self._options.advance_backoff, lane.tries)
        self._around.log.warning(
            "Producer advance raised; it is tried again in %.1f s (%d of %d) key=%r lane=%r",
            delay, lane.tries, self._options.advance_retries, self.key, lane.key, exc_info=error,
        )  # fmt: skip
        self._backing_off[lane] = self._bell.loop.call_later(delay, self._retry, lane)

    def _retry(self, lane: Lane) -> None:
        self._backing_off.pop(lane).cancel()
        self.ledger.again(lane)

    def _advance_failed(self, error: BaseException) -> None:
        self._is_broken = True
        self._end(error)
        self._around.log.error(
            "Producer advance raised; terminating shared-stream group key=%r", self.key, exc_info=error
        )
        if self._task is not None and not self._is_winding_up:
            self._task.cancel()

    async def _wind_up(self) -> None:
        """Advance what is settled, leave the rest to the broker, and close the producer."""
        if self._desertion is not None:
            self._desertion.cancel()
        if self._clock is not None:
            self._clock.cancel()
        for lane in [*self._backing_off]:
            self._retry(lane)
        for idle in self._idle_pumps:
            if not idle.done():
                idle.set_result(None)
        if self._pumps:
            await asyncio.wait(self._pumps)
        if self._producer is not None:
            try:
                await self._producer.aclose()
            except Exception:
                self._around.log.exception(
                    "Producer aclose raised; the shared stream is closed all the same key=%r", self.key
                )


def _backoff(first: float, tries: int) -> float:
    return float(min(_LONGEST_BACKOFF, first * 2 ** (tries - 1)))
