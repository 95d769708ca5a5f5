"""NATS JetStream against a real server."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import nats
import nats.js.errors
import pytest
from support.servers import Server

from stannel.messaging.nats import NatsProducer, NatsReading
from stannel.testing.producer_conformance import FAILED, REJECTED, BrokerInTest, OpenStream, ProducerConformance
from stannel.triggers.shared_stream import SharedStreamProducer

_numbers = itertools.count(1)


class Stream(BrokerInTest):
    """Two subjects of one stream. The server gives back in any order what it has given before."""

    lanes = ("a", "b")
    keeps_order_on_reopening = False
    reading: NatsReading

    def __init__(self, server: Server, connection: Any) -> None:
        self.server, self.connection, self.js = server, connection, connection.jetstream()
        self.name = f"test-{next(_numbers)}"
        self.reading = NatsReading(
            url=f"nats://127.0.0.1:{server.port}",
            stream=self.name,
            max_deliveries=self.max_deliveries,
            retry_delay=0.05,
        )

    def producer(self) -> SharedStreamProducer:
        return NatsProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        await self.js.publish(f"{self.name}.{lane}", text.encode())

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        return [message.data.decode() for message in await self.dead_messages()]

    async def dead_messages(self) -> list[Any]:
        place = f"{self.name}-dead"
        try:
            count = (await self.js.stream_info(place)).state.messages
        except nats.js.errors.NotFoundError:
            return []
        return [await self.js.get_msg(place, number + 1) for number in range(count)]

    async def interrupt(self) -> None:
        await self.server.restart()


@asynccontextmanager
async def stream_of(server: Server) -> AsyncIterator[Stream]:
    async with await nats.connect(f"nats://127.0.0.1:{server.port}", reconnect_time_wait=0.1) as connection:
        broker = Stream(server, connection)
        await broker.js.add_stream(name=broker.name, subjects=[f"{broker.name}.*"])
        yield broker


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestNatsProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _server(self, nats_server: Server) -> None:
        self.server = nats_server

    def broker(self) -> Any:
        return stream_of(self.server)


async def test_a_message_that_takes_longer_than_its_time_is_renewed(nats_server: Server) -> None:
    async with stream_of(nats_server) as broker:
        broker.reading = replace(broker.reading, ack_wait=0.3, retry_delay=1.0)
        async with opened(broker) as stream:
            await broker.publish("slow", "a")
            await broker.publish("clock", "b")
            came = await stream.take(2)
            # The server gives this one back after three times the time for which the other is lent.
            await stream.settle([came["clock"]], FAILED)
            assert list(await stream.take(1)) == ["clock"]
            assert (await broker.js.consumer_info(broker.name, "stannel")).num_redelivered == 1


async def test_only_messages_of_the_chosen_subject_are_read(nats_server: Server) -> None:
    async with stream_of(nats_server) as broker:
        broker.reading = replace(broker.reading, subject=f"{broker.name}.b")
        await broker.publish("not mine", "a")
        await broker.publish("mine", "b")
        async with opened(broker) as stream:
            assert list(await stream.take(1)) == ["mine"]


async def test_a_dead_letter_keeps_its_headers_and_says_where_it_came_from(nats_server: Server) -> None:
    async with stream_of(nats_server) as broker, opened(broker) as stream:
        await broker.js.publish(f"{broker.name}.a", b"bad", headers={"trace": "x"})
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
        [letter] = await broker.dead_messages()
        assert letter.headers["trace"] == "x"
        assert letter.headers["Stannel-Origin"] == f"{broker.name}/1"
        assert letter.headers["Stannel-Reason"] == "1 of 1 subscribers rejected it"


async def test_a_stream_that_does_not_exist_is_an_error(nats_server: Server) -> None:
    reading = NatsReading(url=f"nats://127.0.0.1:{nats_server.port}", stream="nowhere")
    producer = NatsProducer(reading)
    with pytest.raises(nats.js.errors.NotFoundError):
        await anext(producer.open_stream())  # type: ignore[arg-type]
    await producer.aclose()
