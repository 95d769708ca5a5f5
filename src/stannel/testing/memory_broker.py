"""A broker in memory, for tests of triggers that read one: it repeats what it was not told about, as real ones do."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stannel.messaging.broker import Fate, fate_of, why_dead
from stannel.triggers.shared_stream import AdvanceItem, EventNotHandled, SharedStreamProducer


class MemoryPosition(NamedTuple):
    """Which event this is: the n-th of its lane."""

    lane: Hashable
    number: int


@dataclass(frozen=True)
class DeadLetter:
    """An event that is not delivered any more, and why."""

    event: Any
    position: MemoryPosition
    reason: str


class MemoryBroker:
    """Events in the order they were published, which of them are done, and the dead letters.

    It outlives the producers that read it, as a server does.
    """

    def __init__(self, *, max_deliveries: int = 3) -> None:
        self.max_deliveries = max_deliveries
        self.events: dict[MemoryPosition, Any] = {}
        self.done: list[MemoryPosition] = []
        self.dead_letters: list[DeadLetter] = []
        self.deliveries: Counter[MemoryPosition] = Counter()
        self._numbers: Counter[Hashable] = Counter()
        self._news: set[asyncio.Event] = set()
        self._breaks = 0

    def publish(self, event: Any, lane: Hashable = None) -> MemoryPosition:
        """Add an event to the end of its lane."""
        self._numbers[lane] += 1
        position = MemoryPosition(lane, self._numbers[lane])
        self.events[position] = event
        self._tell()
        return position

    def disconnect(self) -> None:
        """Every stream that is open ends by a ConnectionError."""
        self._breaks += 1
        self._tell()

    async def read(self) -> AsyncIterator[MemoryPosition]:
        """Every position that is not settled, once; it waits for new ones, and gives those again that are put back."""
        breaks, news, given = self._breaks, asyncio.Event(), Counter[MemoryPosition]()
        self._news.add(news)
        try:
            while True:
                news.clear()
                for position in [*self.events]:
                    if breaks != self._breaks:
                        raise ConnectionError("The connection to the memory broker was broken.")
                    if position in self.events and given[position] < max(1, self.deliveries[position]):
                        given[position] = max(1, self.deliveries[position])
                        yield position
                if breaks != self._breaks:
                    raise ConnectionError("The connection to the memory broker was broken.")
                await news.wait()
        finally:
            self._news.discard(news)

    def settle(self, position: MemoryPosition) -> None:
        """It is done; an event that is so already stays as it is."""
        if self.events.pop(position, _GONE) is not _GONE:
            self.done.append(position)

    def bury(self, position: MemoryPosition, reason: str) -> None:
        """Move it to the dead letters, once."""
        event = self.events.pop(position, _GONE)
        if event is not _GONE:
            self.dead_letters.append(DeadLetter(event, position, reason))

    def put_back(self, position: MemoryPosition) -> None:
        """Deliver it again to whoever reads."""
        self.deliveries[position] = max(1, self.deliveries[position]) + 1
        self._tell()

    def _tell(self) -> None:
        for news in self._news:
            news.set()


_GONE: Any = object()


class MemoryProducer(SharedStreamProducer):
    """Settles events one by one, as a queue does: what subscribers fail on comes again, until it is a dead letter."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.batches: list[list[AdvanceItem]] = []
        self.closed = 0

    async def open_stream(self) -> AsyncIterator[tuple[Any, MemoryPosition]]:
        async for position in self.broker.read():
            yield self.broker.events[position], position

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self.batches.append([*batch])
        broker = self.broker
        for position, outcome in batch:
            match fate_of(outcome, max(1, broker.deliveries[position]), broker.max_deliveries):
                case Fate.DONE:
                    broker.settle(position)
                case Fate.DEAD:
                    broker.bury(position, why_dead(outcome))
                case Fate.AGAIN:
                    broker.put_back(position)

    def get_advance_lane(self, broker_payload: MemoryPosition) -> Hashable:
        return broker_payload.lane

    def get_event_identity(self, broker_payload: MemoryPosition) -> str:
        return f"{broker_payload.lane}/{broker_payload.number}"

    async def aclose(self) -> None:
        self.closed += 1


class MemoryLogProducer(MemoryProducer):
    """Commits a position in each lane, as a log does: telling about an event covers all before it."""

    commits_cumulatively = True

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self.batches.append([*batch])
        for position, outcome in batch:
            if outcome.rejected:
                self.broker.bury(position, why_dead(outcome))
        lane, last = batch[-1].broker_payload
        for position in [*self.broker.events]:
            if position.lane == lane and position.number <= last:
                self.broker.settle(position)

    async def dead_letter(self, item: AdvanceItem) -> None:
        if not item.outcome.failed:
            # Nobody was there to read it: it is no dead letter, and must be read again.
            raise EventNotHandled(item)
        self.broker.bury(item.broker_payload, why_dead(item.outcome))
