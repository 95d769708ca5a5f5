"""Shared streams for tests: a source and a broker in memory, triggers that read them, and a host for these."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Any

from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamManager, SharedStreamProducer

KEY = ("test", "stream")


async def turns(count: int = 12) -> None:
    """Let everything that can happen without waiting happen."""
    for _ in range(count):
        await asyncio.sleep(0)


class Source:
    """What a stream reads: events that the test gives, an error, or an end."""

    def __init__(self) -> None:
        self._given: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.opened_with: list[dict[str, Any]] = []

    def give(self, *events: Any) -> None:
        for event in events:
            self._given.put_nowait(("event", event))

    def fail(self, error: BaseException) -> None:
        self._given.put_nowait(("error", error))

    def end(self) -> None:
        self._given.put_nowait(("end", None))

    async def read(self, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        self.opened_with.append(kwargs)
        while True:
            kind, value = await self._given.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value


class Broker(SharedStreamProducer):
    """A broker in memory. The payload of an event is its lane and its number: ("a", 1), then ("a", 2)."""

    def __init__(self) -> None:
        self.source = Source()
        self.batches: list[list[AdvanceItem]] = []
        self.closed = 0
        self.made = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.may_advance = asyncio.Event()
        self.may_advance.set()
        self.errors: list[Exception] = []
        self._numbers: dict[Hashable, int] = {}

    def give(self, *lanes: Hashable) -> None:
        for lane in lanes:
            self._numbers[lane] = self._numbers.get(lane, 0) + 1
            self.source.give((lane, self._numbers[lane]))

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        async for payload in self.source.read({}):
            yield {"lane": payload[0], "number": payload[1]}, payload

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        lane: Hashable = broker_payload[0]
        return lane

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.may_advance.wait()
            if self.errors:
                raise self.errors.pop(0)
            self.batches.append(list(batch))
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        self.closed += 1

    @property
    def advanced(self) -> list[Any]:
        """The payloads the broker was told about, in that order."""
        return [item.broker_payload for batch in self.batches for item in batch]

    @property
    def outcomes(self) -> dict[Any, tuple[int, int, int]]:
        """How each event ended: acked, failed, rejected."""
        return {
            item.broker_payload: (item.outcome.acked, item.outcome.failed, item.outcome.rejected)
            for batch in self.batches
            for item in batch
        }


class Reading(BaseEventTrigger):
    """Fires for every raw event that `wants` accepts."""

    source: Source

    def __init__(self, wants: Callable[[Any], bool] = lambda raw: True, **kwargs: Any) -> None:
        super().__init__()
        self.wants = wants
        self.kwargs = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "support.streams.Reading", self.kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent("alone")

    def shared_stream_key(self) -> Hashable:
        return KEY

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in shared_stream:
            if self.wants(raw):
                yield TriggerEvent(raw)


def reading(source: Source) -> type[Reading]:
    """A class of triggers that read this source, and tell no broker."""

    class Unacked(Reading):
        @classmethod
        def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            return source.read(kwargs)

    return Unacked


def acking(broker: SharedStreamProducer) -> type[Reading]:
    """A class of triggers that read this broker and let it advance."""

    class Acked(Reading):
        @classmethod
        def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
            if isinstance(broker, Broker):
                broker.made += 1
            return broker

    return Acked


class Pull:
    """A subscriber that the test moves by hand, one event at a time."""

    def __init__(self, manager: SharedStreamManager, trigger_id: int, trigger: Any, key: Hashable = KEY) -> None:
        self.manager, self.trigger_id, self.key = manager, trigger_id, key
        self.events = manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        self._pull: asyncio.Task[Any] | None = None

    def next(self) -> "asyncio.Task[Any]":
        """Ask for the next event without waiting for it."""
        if self._pull is None:
            self._pull = asyncio.create_task(anext(self.events))  # type: ignore[arg-type]
        return self._pull

    async def take(self) -> Any:
        """The next event. It must be there."""
        pull = self.next()
        await turns()
        assert pull.done(), "there is no event to take"
        self._pull = None
        return pull.result()

    async def is_waiting(self) -> bool:
        pull = self.next()
        await turns()
        return not pull.done()

    def fire(self) -> int | None:
        """The trigger gives an event; its number."""
        return self.manager.bind_pending_event(trigger_id=self.trigger_id, key=self.key)

    async def leave(self) -> None:
        await self._cancel()
        await self.manager.unsubscribe(self.trigger_id, self.key)

    async def break_off(self, error: BaseException | None = None) -> None:
        """The filter ends in the middle of an event."""
        await self._cancel()
        await self.manager.left(self.trigger_id, self.key, error=error)

    async def _cancel(self) -> None:
        if self._pull is not None and not self._pull.done():
            self._pull.cancel()
            await asyncio.wait([self._pull])


class Hosted:
    """A trigger run as a host runs it: everything it fires is bound, and waits to be confirmed."""

    def __init__(self, manager: SharedStreamManager, trigger_id: int, trigger: Any, key: Hashable = KEY) -> None:
        self.fired: list[Any] = []
        self.numbers: list[int | None] = []
        self.error: BaseException | None = None
        self._manager, self._id, self._key = manager, trigger_id, key
        self._filtered = trigger.filter_shared_stream(
            manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async for event in self._filtered:
                self.numbers.append(self._manager.bind_pending_event(trigger_id=self._id, key=self._key))
                self.fired.append(event.payload)
        except asyncio.CancelledError:
            await self._manager.left(self._id, self._key)
            raise
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
            await self._manager.left(self._id, self._key, error=error)
        else:
            await self._manager.unsubscribe(self._id, self._key)

    def confirm(self) -> None:
        """What it has fired so far is stored."""
        numbers, self.numbers = self.numbers, []
        self._manager.confirm_persisted([number for number in numbers if number is not None])

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
