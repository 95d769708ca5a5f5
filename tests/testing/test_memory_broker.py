"""The broker in memory behaves as brokers do: it passes the suite that real ones must pass."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stannel.testing import MemoryBroker, MemoryLogProducer, MemoryProducer
from stannel.testing.producer_conformance import BrokerInTest, ProducerConformance
from stannel.triggers.shared_stream import SharedStreamProducer


class InMemory(BrokerInTest):
    lanes = ("a", "b", "c")
    producer_class: type[MemoryProducer] = MemoryProducer

    def __init__(self) -> None:
        self.memory = MemoryBroker(max_deliveries=self.max_deliveries)

    def producer(self) -> SharedStreamProducer:
        return self.producer_class(self.memory)

    async def publish(self, text: str, lane: str) -> None:
        self.memory.publish({"text": text}, lane)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event["text"])

    async def dead_letters(self) -> list[str]:
        return [letter.event["text"] for letter in self.memory.dead_letters]

    async def interrupt(self) -> None:
        self.memory.disconnect()


class LogInMemory(InMemory):
    producer_class = MemoryLogProducer


class TestMemoryProducer(ProducerConformance):
    patience = 2.0

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[BrokerInTest]:
        yield InMemory()


class TestMemoryLogProducer(ProducerConformance):
    patience = 2.0

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[BrokerInTest]:
        yield LogInMemory()


def test_a_dead_letter_says_why() -> None:
    memory = MemoryBroker()
    position = memory.publish("event")
    memory.bury(position, "nobody wants it")
    memory.bury(position, "nobody wants it twice")
    assert [(letter.event, letter.reason) for letter in memory.dead_letters] == [("event", "nobody wants it")]
