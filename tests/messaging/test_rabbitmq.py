"""RabbitMQ against a real server."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aio_pika
import pytest
from support.proxy import Proxy, proxy_to
from support.servers import Server

from stannel.messaging.rabbitmq import RabbitProducer, RabbitReading
from stannel.testing.producer_conformance import ACCEPTED, REJECTED, BrokerInTest, OpenStream, ProducerConformance
from stannel.triggers.shared_stream import SharedStreamProducer

_numbers = itertools.count(1)


class Queue(BrokerInTest):
    """A durable queue; producers reach it through a proxy."""

    reading: RabbitReading

    def __init__(self, channel: Any, proxy: Proxy) -> None:
        self.channel, self.proxy = channel, proxy
        self.name = f"test-{next(_numbers)}"
        self.reading = RabbitReading(
            url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/",
            queue_name=self.name,
            max_deliveries=self.max_deliveries,
            retry_delay=0.05,
        )

    def producer(self) -> SharedStreamProducer:
        return RabbitProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        message = aio_pika.Message(text.encode(), message_id=f"id of {text}")
        await self.channel.default_exchange.publish(message, routing_key=self.name)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        return [letter.body.decode() for letter in await self.dead_messages()]

    async def dead_messages(self) -> list[Any]:
        """The letters, which stay where they are."""
        queue = await self.channel.declare_queue(f"{self.name}.dead", durable=True)
        letters = []
        while (letter := await queue.get(fail=False)) is not None:
            letters.append(letter)
        for letter in letters:
            await letter.nack()
        return letters

    async def interrupt(self) -> None:
        self.proxy.cut()


@asynccontextmanager
async def queue(server: Server, arguments: dict[str, Any] | None = None) -> AsyncIterator[Queue]:
    async with proxy_to(server.port) as proxy:
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{server.port}/")
        async with connection:
            broker = Queue(await connection.channel(), proxy)
            await broker.channel.declare_queue(broker.name, durable=True, arguments=arguments)
            yield broker


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestRabbitProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq_server: Server) -> None:
        self.server = rabbitmq_server

    def broker(self) -> Any:
        return queue(self.server)


async def test_after_a_broken_connection_what_was_out_comes_again_and_its_old_answer_is_not_given(
    rabbitmq_server: Server,
) -> None:
    async with queue(rabbitmq_server) as broker, opened(broker) as stream:
        await broker.publish("event", "a")
        before = await stream.take(1)
        broker.proxy.cut()
        after = await stream.take(1)
        await stream.settle([before["event"]], ACCEPTED)
        await stream.settle([after["event"]], ACCEPTED)
        await broker.publish("next", "a")
        assert list(await stream.take(1)) == ["next"]


async def test_a_connection_that_breaks_while_all_that_may_be_out_is_out_is_mended(rabbitmq_server: Server) -> None:
    async with queue(rabbitmq_server) as broker:
        broker.reading = replace(broker.reading, prefetch=1)
        async with opened(broker) as stream:
            await broker.publish("one", "a")
            await broker.publish("two", "a")
            await stream.take(1)
            broker.proxy.cut()
            again = await stream.take(1)
            await stream.settle([*again.values()], ACCEPTED)
            assert [*again, *await stream.take(1)] == ["one", "two"]


async def test_rejected_messages_go_the_way_of_the_queue_itself_if_that_is_wanted(rabbitmq_server: Server) -> None:
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlx-target.dead"}
    async with queue(rabbitmq_server, to_dead) as broker:
        dead = await broker.channel.declare_queue("dlx-target.dead", durable=True)
        broker.reading = replace(broker.reading, use_dlx=True)
        async with opened(broker) as stream:
            await broker.publish("bad", "a")
            came = await stream.take(1)
            await stream.settle([came["bad"]], REJECTED)
            letters: Any = dead.iterator(timeout=15)
            async with letters:
                letter = await anext(letters)
                await letter.ack()
        assert letter.headers["x-first-death-reason"] == "rejected"


async def test_a_dead_letter_keeps_its_headers_and_says_where_it_came_from(rabbitmq_server: Server) -> None:
    async with queue(rabbitmq_server) as broker, opened(broker) as stream:
        message = aio_pika.Message(b"bad", headers={"trace": "x"}, message_id="m1", type="order")
        await broker.channel.default_exchange.publish(message, routing_key=broker.name)
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
        [letter] = await broker.dead_messages()
        assert (letter.message_id, letter.type, letter.headers["trace"]) == ("m1", "order", "x")
        assert letter.headers["stannel-origin"] == broker.name
        assert letter.headers["stannel-reason"] == "1 of 1 subscribers rejected it"


async def test_a_message_says_what_is_known_about_it(rabbitmq_server: Server) -> None:
    async with queue(rabbitmq_server) as broker:
        message = aio_pika.Message(b'{"id": 7}', headers={"n": 1, "l": [1]}, type="order", message_id="m")
        await broker.channel.default_exchange.publish(message, routing_key=broker.name)
        producer = RabbitProducer(broker.reading)
        stream: Any = producer.open_stream()
        found, position = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        assert producer.get_event_identity(position) == f"{broker.name}/m"
        assert found.payload() == {
            "value": {"id": 7}, "queue": broker.name, "exchange": "", "routing_key": broker.name, "message_id": "m",
            "type": "order", "headers": {"n": 1, "l": "[1]"},
        }  # fmt: skip


async def test_a_queue_that_does_not_exist_is_an_error(rabbitmq_server: Server) -> None:
    async with proxy_to(rabbitmq_server.port) as proxy:
        url = f"amqp://guest:guest@127.0.0.1:{proxy.port}/"
        producer = RabbitProducer(RabbitReading(url=url, queue_name="nowhere"))
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await anext(producer.open_stream())  # type: ignore[arg-type]
        await producer.aclose()
