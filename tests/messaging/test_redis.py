"""Redis Streams against a real Valkey server."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from support import broker_story
from support.servers import Server

from stannel.messaging.redis import RedisProducer, RedisReading, RedisStreamTrigger
from stannel.testing.producer_conformance import (
    ACCEPTED,
    FAILED,
    REJECTED,
    BrokerInTest,
    OpenStream,
    ProducerConformance,
)
from stannel.triggers.shared_stream import SharedStreamProducer

_numbers = itertools.count(1)


class Streams(BrokerInTest):
    """Two streams of one group."""

    lanes = ("a", "b")

    def __init__(self, server: Server) -> None:
        self.server, self.url = server, f"redis://127.0.0.1:{server.port}"
        self.prefix = f"test-{next(_numbers)}"
        self.client: Any = redis.asyncio.from_url(self.url)
        streams = [self.name(lane) for lane in self.lanes]
        self.reading = RedisReading(
            url=self.url, streams=streams, field="text", max_deliveries=self.max_deliveries, retry_delay=0.05
        )

    def name(self, lane: str) -> str:
        return f"{self.prefix}-{lane}"

    def producer(self) -> SharedStreamProducer:
        return RedisProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        await self.client.xadd(self.name(lane), {"text": text})

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        found = [await self.client.xrange(f"{self.name(lane)}.dead") for lane in self.lanes]
        return [fields[b"text"].decode() for entries in found for _, fields in entries]

    async def interrupt(self) -> None:
        await self.client.client_kill_filter(_type="normal", skipme=True)


@asynccontextmanager
async def streams(server: Server) -> AsyncIterator[Streams]:
    broker = Streams(server)
    try:
        yield broker
    finally:
        await broker.client.aclose()


class TestRedisProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _server(self, redis_server: Server) -> None:
        self.server = redis_server

    def broker(self) -> Any:
        return streams(self.server)


@asynccontextmanager
async def opened(broker: Streams) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


async def test_a_restarted_server_is_waited_for(redis_server: Server) -> None:
    async with streams(redis_server) as broker, opened(broker) as stream:
        await broker.publish("before", "a")
        before = await stream.take(1)
        await redis_server.restart()
        await broker.client.connection_pool.disconnect()
        await broker.publish("after", "a")
        after = await stream.take(1)
        await stream.settle([*before.values(), *after.values()], ACCEPTED)
        assert list(after) == ["after"]
        assert (await broker.client.xpending(broker.name("a"), "stannel"))["pending"] == 0


async def test_an_entry_that_is_put_off_comes_once_after_a_broken_connection(redis_server: Server) -> None:
    async with streams(redis_server) as broker:
        broker.reading = replace(broker.reading, retry_delay=0.2, max_deliveries=9)
        async with opened(broker) as stream:
            await broker.publish("failing", "a")
            came = await stream.take(1)
            await stream.settle([came["failing"]], FAILED)
            await broker.interrupt()
            again = await stream.take(1)
            # Longer than the entry was put off for, by the clock of one that is put off after it.
            await broker.publish("clock", "b")
            clock = await stream.take(1)
            await stream.settle([*clock.values()], FAILED)
            assert [*again, *await stream.take(1)] == ["failing", "clock"]


async def test_an_entry_that_was_deleted_before_it_was_read_again_is_passed_over(redis_server: Server) -> None:
    async with streams(redis_server) as broker:
        await broker.publish("deleted", "a")
        await broker.publish("kept", "a")
        async with opened(broker) as stream:
            came = await stream.take(2)
        await broker.client.xdel(broker.name("a"), came["deleted"].id)
        async with opened(broker) as stream:
            again = await stream.take(1)
            await stream.settle([again["kept"]], ACCEPTED)
        assert (await broker.client.xpending(broker.name("a"), "stannel"))["pending"] == 0


async def test_an_entry_without_a_chosen_field_is_a_dict_of_its_fields(redis_server: Server) -> None:
    async with streams(redis_server) as broker:
        await broker.client.xadd("orders", {"id": 7, "what": '{"n": 1}', "raw": b"\xff"})
        producer = RedisProducer(RedisReading(url=broker.url, streams="orders"))
        stream: Any = producer.open_stream()
        message, position = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        assert message.value == {"id": 7, "what": {"n": 1}, "raw": "/w=="}
        assert message.about == {"stream": "orders", "id": position.id.decode()}


async def test_a_dead_letter_keeps_its_fields_and_says_where_it_came_from(redis_server: Server) -> None:
    async with streams(redis_server) as broker, opened(broker) as stream:
        await broker.publish("bad", "a")
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
        [(_, fields)] = await broker.client.xrange(f"{broker.name('a')}.dead")
        assert fields[b"stannel-origin"].decode() == f"{broker.name('a')}/{came['bad'].id.decode()}"
        assert fields[b"stannel-reason"] == b"1 of 1 subscribers rejected it"


def test_a_trigger_is_stored_without_showing_its_password() -> None:
    trigger = RedisStreamTrigger(url="redis://:secret@host/1", streams="orders", where={"kind": "paid"})
    path, arguments = trigger.serialize()
    assert "secret" not in repr(trigger)
    assert "secret" not in repr(trigger.shared_stream_key())
    again = RedisStreamTrigger(**{name.removeprefix("encrypted__"): value for name, value in arguments.items()})
    assert again.serialize() == (path, arguments)
    assert again.shared_stream_key() == trigger.shared_stream_key()


@pytest.mark.timeout(240)
def test_in_the_engine_every_message_counts_once_though_the_triggerer_is_killed(
    redis_server: Server, tmp_path: Path
) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}"
    with closing(redis.Redis.from_url(url)) as client:

        def publish(messages: Any) -> None:
            for message in messages:
                client.xadd("story", {"message": json.dumps(message)})

        def left() -> int:
            [group] = client.xinfo_groups("story")
            return int(group["pending"]) + int(group["lag"])

        arguments = {"scheme": "redis", "conn_id": "cache", "streams": "story", "field": "message"}
        broker_story.tell(tmp_path, arguments, publish, left, {"STANNEL_CONN_CACHE": url})
