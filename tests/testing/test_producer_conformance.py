"""The suite for producers finds those that lose, repeat, reorder or hang."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stannel.testing import MemoryBroker, MemoryLogProducer, MemoryPosition, MemoryProducer
from stannel.testing.producer_conformance import BrokerInTest, ProducerConformance
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer


class CommitsWhatItReads(MemoryProducer):
    async def open_stream(self) -> AsyncIterator[tuple[Any, MemoryPosition]]:
        async for position in self.broker.read():
            event = self.broker.events[position]
            self.broker.settle(position)
            yield event, position


class NeverCommits(MemoryProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        pass


class CommitsTheLastOnly(MemoryProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        await super().advance(batch[-1:])


class AcceptsEverything(MemoryProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for position, _ in batch:
            self.broker.settle(position)


class NeverBuries(MemoryProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for position, outcome in batch:
            if outcome.is_clean:
                self.broker.settle(position)
            else:
                self.broker.put_back(position)


class BuriesTwice(MemoryProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for item in batch:
            if item.outcome.rejected and item.broker_payload not in self.broker.events:
                self.broker.events[item.broker_payload] = {"text": "rejected"}
        await super().advance(batch)


class MixesItsLanes(MemoryProducer):
    def get_advance_lane(self, broker_payload: MemoryPosition) -> Hashable:
        return None


class HasNoIdentities(MemoryProducer):
    def get_event_identity(self, broker_payload: MemoryPosition) -> str:
        return "always the same"


class Shuffles(MemoryProducer):
    async def open_stream(self) -> AsyncIterator[tuple[Any, MemoryPosition]]:
        held: list[tuple[Any, MemoryPosition]] = []
        async for pair in super().open_stream():
            held.insert(0, pair)
            if len(held) == 4:
                while held:
                    yield held.pop(0)


class ClosesWithItsStream(MemoryProducer):
    is_open = True

    async def open_stream(self) -> AsyncIterator[tuple[Any, MemoryPosition]]:
        try:
            async for pair in super().open_stream():
                yield pair
        finally:
            self.is_open = False

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        if not self.is_open:
            raise ConnectionError("closed")
        await super().advance(batch)


class HangsWhenCut(MemoryProducer):
    async def open_stream(self) -> AsyncIterator[tuple[Any, MemoryPosition]]:
        try:
            async for pair in super().open_stream():
                yield pair
        except ConnectionError:
            await asyncio.Event().wait()


class CommitsAcrossLanes(MemoryLogProducer):
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        for position in [*self.broker.events]:
            if position.number <= batch[-1].broker_payload.number:
                self.broker.settle(position)


class BuriesTheUnread(MemoryLogProducer):
    async def dead_letter(self, item: AdvanceItem) -> None:
        self.broker.bury(item.broker_payload, "unread")


class Broken(BrokerInTest):
    lanes = ("a", "b")

    def __init__(self, kind: type[MemoryProducer]) -> None:
        self.kind, self.memory = kind, MemoryBroker(max_deliveries=self.max_deliveries)

    def producer(self) -> SharedStreamProducer:
        return self.kind(self.memory)

    async def publish(self, text: str, lane: str) -> None:
        self.memory.publish({"text": text}, lane)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event["text"])

    async def dead_letters(self) -> list[str]:
        return [letter.event["text"] for letter in self.memory.dead_letters]

    async def interrupt(self) -> None:
        self.memory.disconnect()


def suite_for(kind: type[MemoryProducer], patience: float) -> ProducerConformance:
    class Suite(ProducerConformance):
        @asynccontextmanager
        async def broker(self) -> AsyncIterator[BrokerInTest]:
            yield Broken(kind)

    suite = Suite()
    suite.patience = patience  # type: ignore[misc]
    return suite


@pytest.mark.parametrize(
    ("kind", "found_by"),
    [
        (CommitsWhatItReads, "what_was_not_advanced_comes_again_after_reopening"),
        (CommitsWhatItReads, "stopping_in_the_middle_loses_nothing"),
        (CommitsWhatItReads, "in_a_shared_stream_only_what_every_subscriber_has_stored_is_advanced"),
        (NeverCommits, "what_was_advanced_never_comes_again_and_nothing_else_is_passed_over"),
        (CommitsTheLastOnly, "a_large_batch_is_advanced_as_a_whole"),
        (AcceptsEverything, "a_rejected_event_goes_to_the_dead_letters_and_never_comes_again"),
        (AcceptsEverything, "a_failed_event_comes_again_or_is_kept_as_a_dead_letter"),
        (AcceptsEverything, "an_event_that_nobody_read_is_not_lost"),
        (NeverBuries, "an_event_that_always_fails_ends_as_a_dead_letter"),
        (BuriesTwice, "advancing_twice_changes_nothing"),
        (MixesItsLanes, "events_of_one_lane_have_equal_lanes_and_those_of_others_have_not"),
        (HasNoIdentities, "an_identity_is_kept_when_the_event_comes_again_and_no_two_events_share_one"),
        (Shuffles, "events_come_in_the_order_of_their_lane"),
        (ClosesWithItsStream, "what_is_settled_can_be_advanced_after_the_stream_was_closed"),
        (HangsWhenCut, "a_broken_connection_is_mended_or_told_and_nothing_is_lost"),
        (CommitsAcrossLanes, "each_lane_advances_for_itself"),
        (BuriesTheUnread, "an_event_that_nobody_read_is_not_lost"),
    ],
)
def test_a_broken_producer_is_found(kind: type[MemoryProducer], found_by: str) -> None:
    with pytest.raises((AssertionError, ConnectionError, TimeoutError)):
        getattr(suite_for(kind, patience=0.2), f"test_{found_by}")()
