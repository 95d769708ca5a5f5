"""What every producer for a shared stream must keep, as tests: derive a class, say where the broker is, run pytest.

    class TestMyProducer(ProducerConformance):
        def broker(self):
            return my_broker()  # an async context manager that gives a BrokerInTest

The tests are plain functions that run a loop of their own, so no plug-in of pytest is needed.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamManager, SharedStreamProducer

ACCEPTED = AdvanceOutcome(acked=1, failed=0)
FAILED = AdvanceOutcome(acked=0, failed=1)
REJECTED = AdvanceOutcome(acked=0, failed=0, rejected=1)
UNREAD = AdvanceOutcome(acked=0, failed=0)
_KEY = ("producer-conformance",)


class BrokerInTest(ABC):
    """One queue of a broker that is empty when a test begins, and how the test looks at it.

    Its producers must redeliver soon after a failure, and at most `max_deliveries` times in all.
    """

    lanes: ClassVar[Sequence[str]] = ("a",)
    max_deliveries: ClassVar[int] = 2
    many: ClassVar[int] = 120
    has_identities: ClassVar[bool] = True
    keeps_order_on_reopening: ClassVar[bool] = True

    @abstractmethod
    def producer(self) -> SharedStreamProducer:
        """A new producer of the queue; it goes on where the last one was."""

    @abstractmethod
    async def publish(self, text: str, lane: str) -> None:
        """Put an event into a lane of the queue."""

    @abstractmethod
    def text_of(self, raw_event: Any) -> str:
        """The text that was published."""

    @abstractmethod
    async def dead_letters(self) -> list[str]:
        """The texts at the queue's dead-letter place."""

    async def interrupt(self) -> None:
        """Break the connections of all producers, as a restarted server does."""
        raise NotImplementedError


class OpenStream:
    """A producer being read, as the engine does it: by a task that can be stopped at any point."""

    def __init__(self, broker: BrokerInTest, patience: float) -> None:
        self.producer = broker.producer()
        self._broker, self._patience = broker, patience
        self._events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._stream: Any = self.producer.open_stream()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for raw, payload in self._stream:
            self._events.put_nowait((self._broker.text_of(raw), payload))

    async def next(self) -> tuple[str, Any]:
        """The next event. What the stream raised, if it has ended."""
        waiting = asyncio.create_task(self._events.get())
        await asyncio.wait({waiting, self._task}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        waiting.cancel()
        if self._task.done():
            self._task.result()
            raise AssertionError("The stream returned; it must go on for ever, or raise.")
        raise AssertionError(f"No event came within {self._patience:g} s.")

    async def take(self, count: int) -> dict[str, Any]:
        """So many events, as text and payload, in the order they came."""
        return dict([await self.next() for _ in range(count)])

    async def until(self, text: str) -> Any:
        """The payload of the next event with that text; what comes before it is accepted."""
        while True:
            found, payload = await self.next()
            if found == text:
                return payload
            await self.settle([payload], ACCEPTED)

    async def settle(self, payloads: Sequence[Any], outcome: AdvanceOutcome) -> None:
        """Tell the producer what became of these, in the way the engine does."""
        items = [AdvanceItem(payload, outcome) for payload in payloads]
        if not self.producer.commits_cumulatively or outcome.acked or outcome.rejected:
            await self.producer.advance(items)
            return
        for item in items:
            await self.producer.dead_letter(item)
            await self.producer.advance([item])

    async def stop_reading(self) -> None:
        """Stop in the middle of whatever it does; it can still be told about events."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._stream.aclose()

    async def close(self) -> None:
        await self.stop_reading()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error
        await self.producer.aclose()

    async def abandon(self) -> None:
        """Close it whatever state it is in."""
        await self.stop_reading()
        await self.producer.aclose()


class ProducerConformance:
    """The promises of a producer. `patience` is how many seconds a test waits for what must come."""

    patience: ClassVar[float] = 15.0

    def broker(self) -> AbstractAsyncContextManager[BrokerInTest]:
        """An empty queue on the broker, as an async context manager."""
        raise NotImplementedError(f"{type(self).__name__} has no broker().")

    # --- reading -----------------------------------------------------------------------------------------------------

    def test_events_come_in_the_order_of_their_lane(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            async with self._open(broker) as stream:
                sent = await _publish(broker, 12)
                came = list(await stream.take(12))
                for lane in broker.lanes:
                    assert _of(lane, came) == _of(lane, sent)

        self._run(check)

    def test_an_event_that_is_published_while_the_stream_waits_comes_at_once(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            async with self._open(broker) as stream:
                for number in range(3):
                    await broker.publish(f"event {number}", broker.lanes[0])
                    assert list(await stream.take(1)) == [f"event {number}"]

        self._run(check)

    def test_events_of_one_lane_have_equal_lanes_and_those_of_others_have_not(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            async with self._open(broker) as stream:
                await _publish(broker, 2 * len(broker.lanes))
                came = await stream.take(2 * len(broker.lanes))
                lane_of = stream.producer.get_advance_lane
                lanes = {lane: {lane_of(came[text]) for text in _of(lane, came)} for lane in broker.lanes}
                assert all(len(found) == 1 for found in lanes.values())
                assert len(set.union(*lanes.values())) == len(broker.lanes)

        self._run(check)

    # --- advancing ---------------------------------------------------------------------------------------------------

    def test_what_was_not_advanced_comes_again_after_reopening(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            sent = await _publish(broker, 6)
            async with self._open(broker) as stream:
                await stream.take(6)
            async with self._open(broker) as stream:
                again = list(await stream.take(6))
                assert sorted(again) == sorted(sent)
                if broker.keeps_order_on_reopening:
                    assert all(_of(lane, again) == _of(lane, sent) for lane in broker.lanes)

        self._run(check)

    def test_what_was_advanced_never_comes_again_and_nothing_else_is_passed_over(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            for number in range(6):
                await broker.publish(f"event {number}", lane)
            async with self._open(broker) as stream:
                came = await stream.take(6)
                await stream.settle([came["event 0"]], ACCEPTED)
                await stream.settle([came["event 1"], came["event 2"]], ACCEPTED)
            async with self._open(broker) as stream:
                assert sorted(await stream.take(3)) == ["event 3", "event 4", "event 5"]

        self._run(check)

    def test_each_lane_advances_for_itself(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            sent = await _publish(broker, 3 * len(broker.lanes))
            first, *others = broker.lanes
            async with self._open(broker) as stream:
                came = await stream.take(len(sent))
                await stream.settle([came[text] for text in _of(first, sent)], ACCEPTED)
            await broker.publish(f"{first}: marker", first)
            left = [text for lane in others for text in _of(lane, sent)]
            async with self._open(broker) as stream:
                assert sorted(await stream.take(len(left) + 1)) == sorted([*left, f"{first}: marker"])

        self._run(check)

    def test_a_large_batch_is_advanced_as_a_whole(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            for number in range(broker.many):
                await broker.publish(f"event {number}", lane)
            async with self._open(broker) as stream:
                came = await stream.take(broker.many)
                await stream.settle([*came.values()], ACCEPTED)
            await self._nothing_is_left(broker)

        self._run(check)

    def test_advancing_twice_changes_nothing(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            for text in ("accepted", "rejected", "left"):
                await broker.publish(text, lane)
            async with self._open(broker) as stream:
                came = await stream.take(3)
                for _ in range(2):
                    await stream.settle([came["accepted"]], ACCEPTED)
                    await stream.settle([came["rejected"]], REJECTED)
            async with self._open(broker) as stream:
                assert list(await stream.take(1)) == ["left"]
            assert await self._dead_letters(broker, 1) == ["rejected"]

        self._run(check)

    def test_what_is_settled_can_be_advanced_after_the_stream_was_closed(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            await broker.publish("event", broker.lanes[0])
            stream = OpenStream(broker, self.patience)
            try:
                came = await stream.take(1)
                await stream.stop_reading()
                await stream.settle([came["event"]], ACCEPTED)
            finally:
                await stream.abandon()
            await self._nothing_is_left(broker)

        self._run(check)

    # --- what was not accepted ---------------------------------------------------------------------------------------

    def test_a_rejected_event_goes_to_the_dead_letters_and_never_comes_again(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            for text in ("good", "bad", "fine"):
                await broker.publish(text, lane)
            async with self._open(broker) as stream:
                came = await stream.take(3)
                outcomes = {"good": ACCEPTED, "bad": REJECTED, "fine": ACCEPTED}
                await stream.producer.advance([AdvanceItem(came[text], outcomes[text]) for text in came])
                assert await self._dead_letters(broker, 1) == ["bad"]
            await self._nothing_is_left(broker)

        self._run(check)

    def test_a_failed_event_comes_again_or_is_kept_as_a_dead_letter(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            await broker.publish("failing", lane)
            async with self._open(broker) as stream:
                came = await stream.take(1)
                await stream.settle([came["failing"]], FAILED)
                if stream.producer.commits_cumulatively:
                    assert await self._dead_letters(broker, 1) == ["failing"]
                else:
                    await stream.settle([await stream.until("failing")], ACCEPTED)
                    assert await broker.dead_letters() == []
            await self._nothing_is_left(broker)

        self._run(check)

    def test_an_event_that_always_fails_ends_as_a_dead_letter(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            await broker.publish("poison", broker.lanes[0])
            async with self._open(broker) as stream:
                deliveries = 1 if stream.producer.commits_cumulatively else broker.max_deliveries
                for _ in range(deliveries):
                    await stream.settle([await stream.until("poison")], FAILED)
                assert await self._dead_letters(broker, 1) == ["poison"]
                await broker.publish("marker", broker.lanes[0])
                assert list(await stream.take(1)) == ["marker"]

        self._run(check)

    def test_an_event_that_nobody_read_is_not_lost(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            await broker.publish("unread", broker.lanes[0])
            async with self._open(broker) as stream:
                came = await stream.take(1)
                if stream.producer.commits_cumulatively:
                    [refused] = await asyncio.gather(stream.settle([came["unread"]], UNREAD), return_exceptions=True)
                    assert isinstance(refused, Exception), "dead_letter() took an event that nobody read."
                else:
                    await stream.settle([came["unread"]], UNREAD)
            async with self._open(broker) as stream:
                assert list(await stream.take(1)) == ["unread"]
            assert await broker.dead_letters() == []

        self._run(check)

    # --- identities --------------------------------------------------------------------------------------------------

    def test_an_identity_is_kept_when_the_event_comes_again_and_no_two_events_share_one(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            await _publish(broker, 6)
            seen: list[dict[str, str | None]] = []
            for _ in range(2):
                async with self._open(broker) as stream:
                    identity_of = stream.producer.get_event_identity
                    came = await stream.take(6)
                    seen.append({text: identity_of(payload) for text, payload in came.items()})
            assert seen[0] == seen[1]
            if broker.has_identities:
                assert None not in seen[0].values()
                assert len(set(seen[0].values())) == 6

        self._run(check)

    # --- ends --------------------------------------------------------------------------------------------------------

    def test_stopping_in_the_middle_loses_nothing(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            sent = await _publish(broker, 30)
            for taken in (1, 7, 0):
                stream = OpenStream(broker, self.patience)
                try:
                    await stream.take(taken)
                finally:
                    await stream.abandon()
            async with self._open(broker) as stream:
                assert sorted(await stream.take(30)) == sorted(sent)

        self._run(check)

    def test_a_producer_that_was_never_opened_can_be_closed(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            await broker.producer().aclose()

        self._run(check)

    def test_a_broken_connection_is_mended_or_told_and_nothing_is_lost(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            if type(broker).interrupt is BrokerInTest.interrupt:
                return
            await _publish(broker, 4)
            stream = OpenStream(broker, self.patience)
            try:
                came = await stream.take(2)
                await broker.interrupt()
                await broker.publish("afterwards", broker.lanes[0])
                missing = {"afterwards", *_texts(broker, 4)} - set(came)
                missing -= await self._seen_until_told(stream, missing)
            finally:
                await stream.abandon()
            async with self._open(broker) as again:
                while missing:
                    missing.discard((await again.next())[0])

        self._run(check)

    # --- together with the engine ------------------------------------------------------------------------------------

    def test_in_a_shared_stream_only_what_every_subscriber_has_stored_is_advanced(self) -> None:
        async def check(broker: BrokerInTest) -> None:
            lane = broker.lanes[0]
            for text in ("stored", "half stored"):
                await broker.publish(text, lane)
            manager = SharedStreamManager()
            first, second = (_Subscriber(manager, number, broker) for number in (1, 2))
            await asyncio.gather(first.fires(2, self.patience), second.fires(2, self.patience))
            manager.confirm_persisted([*first.numbers, second.numbers[0]])
            await manager.stop_all()
            await asyncio.gather(first.stop(), second.stop())
            async with self._open(broker) as stream:
                assert list(await stream.take(1)) == ["half stored"]

        self._run(check)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _run(self, check: Callable[[BrokerInTest], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            async with self.broker() as broker:
                await check(broker)

        asyncio.run(run())

    @asynccontextmanager
    async def _open(self, broker: BrokerInTest) -> AsyncIterator[OpenStream]:
        stream = OpenStream(broker, self.patience)
        try:
            yield stream
        except BaseException:
            await stream.abandon()
            raise
        await stream.close()

    async def _nothing_is_left(self, broker: BrokerInTest) -> None:
        await broker.publish("marker", broker.lanes[0])
        async with self._open(broker) as stream:
            assert list(await stream.take(1)) == ["marker"]

    async def _dead_letters(self, broker: BrokerInTest, count: int) -> list[str]:
        async with asyncio.timeout(self.patience):
            while len(found := await broker.dead_letters()) < count:  # noqa: ASYNC110 - no broker tells about them
                await asyncio.sleep(0.02)
        return found

    async def _seen_until_told(self, stream: OpenStream, wanted: set[str]) -> set[str]:
        """What comes of these; the stream may end by an error, but must not just stay silent."""
        seen: set[str] = set()
        while not wanted <= seen:
            try:
                text, _ = await stream.next()
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - telling is as good as mending
                return seen
            seen.add(text)
        return seen


class _Reader(BaseEventTrigger):
    """A trigger that fires every event of the broker it is given."""

    broker: ClassVar[BrokerInTest]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stannel.testing.producer_conformance._Reader", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent("alone")

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in shared_stream:
            yield TriggerEvent(raw)


class _Subscriber:
    """Runs a trigger as the engine's host does, and leaves it to the test to say what is stored."""

    def __init__(self, manager: SharedStreamManager, number: int, broker: BrokerInTest) -> None:
        self.numbers: list[int] = []
        self._fired = asyncio.Semaphore(0)
        self._manager, self._id = manager, number
        trigger = _reader_of(broker)()
        events = manager.subscribe(trigger_id=number, trigger=trigger, key=_KEY)
        self._task = asyncio.create_task(self._run(trigger.filter_shared_stream(events)))

    async def _run(self, events: AsyncIterator[TriggerEvent]) -> None:
        async for _ in events:
            number = self._manager.bind_pending_event(trigger_id=self._id, key=_KEY)
            assert number is not None
            self.numbers.append(number)
            self._fired.release()

    async def fires(self, count: int, patience: float) -> None:
        async with asyncio.timeout(patience):
            for _ in range(count):
                await self._fired.acquire()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def _reader_of(broker: BrokerInTest) -> type[_Reader]:
    class Acked(_Reader):
        @classmethod
        def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
            return broker.producer()

    return Acked


def _texts(broker: BrokerInTest, count: int) -> list[str]:
    lanes = broker.lanes
    return [f"{lanes[number % len(lanes)]}: event {number}" for number in range(count)]


async def _publish(broker: BrokerInTest, count: int) -> list[str]:
    """So many events, dealt out to the lanes; each text begins with its lane."""
    texts = _texts(broker, count)
    for text in texts:
        await broker.publish(text, text.partition(":")[0])
    return texts


def _of(lane: str, texts: Sequence[str] | dict[str, Any]) -> list[str]:
    return [text for text in texts if text.startswith(f"{lane}:")]
