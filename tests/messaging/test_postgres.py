"""An outbox table on a real PostgreSQL server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from support.postgres import PostgresServer

from stannel.messaging.postgres import PostgresProducer, PostgresReading, outbox_sql
from stannel.testing.producer_conformance import ACCEPTED, REJECTED, BrokerInTest, OpenStream, ProducerConformance
from stannel.triggers.shared_stream import SharedStreamProducer


class Outbox(BrokerInTest):
    """A table in a schema, and rows of two keys in it."""

    lanes = ("a", "b")
    table = "shop.outbox"

    def __init__(self, url: str, connection: Any) -> None:
        self.url, self.connection = url, connection
        self.reading = PostgresReading(
            url=url, table=self.table, max_deliveries=self.max_deliveries, retry_delay=0.05, poll_interval=60
        )

    def producer(self) -> SharedStreamProducer:
        return PostgresProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        insert = f"INSERT INTO {self.table} (topic, key, payload) VALUES ('test', %s, %s)"
        await self.connection.execute(insert, [lane, json.dumps({"text": text})])

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value["text"])

    async def dead_letters(self) -> list[str]:
        query = f"SELECT payload ->> 'text' FROM {self.table} WHERE dead_at IS NOT NULL ORDER BY id"
        return [text for (text,) in await (await self.connection.execute(query)).fetchall()]

    async def interrupt(self) -> None:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        await self.connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


@asynccontextmanager
async def outbox(url: str) -> AsyncIterator[Outbox]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("CREATE SCHEMA IF NOT EXISTS shop")
        await connection.execute(outbox_sql(Outbox.table))
        yield Outbox(url, connection)


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=15)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestPostgresProducer(ProducerConformance):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_url: str) -> None:
        self.url = postgres_url

    def broker(self) -> Any:
        return outbox(self.url)


async def test_a_row_that_is_committed_after_later_ones_is_not_passed_over(postgres_url: str) -> None:
    async with outbox(postgres_url) as broker, opened(broker) as stream:
        async with await psycopg.AsyncConnection.connect(postgres_url) as slow:
            await Outbox(postgres_url, slow).publish("written first", "a")
            await broker.publish("committed first", "a")
            early = await stream.take(1)
            await stream.settle([*early.values()], ACCEPTED)
            await slow.commit()
        late = await stream.take(1)
        assert (list(early), list(late)) == (["committed first"], ["written first"])
        assert late["written first"].id < early["committed first"].id


async def test_only_rows_of_the_chosen_topic_are_read(postgres_url: str) -> None:
    async with outbox(postgres_url) as broker:
        await broker.connection.execute(f"INSERT INTO {broker.table} (topic, payload) VALUES ('other', '1')")
        await broker.publish("mine", "a")
        broker.reading = PostgresReading(url=postgres_url, table=broker.table, topic="test")
        async with opened(broker) as stream:
            assert list(await stream.take(1)) == ["mine"]


async def test_a_dead_letter_says_why_and_comes_again_when_it_is_revived(postgres_url: str) -> None:
    async with outbox(postgres_url) as broker, opened(broker) as stream:
        await broker.publish("bad", "a")
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
        query = f"SELECT dead_reason FROM {broker.table} WHERE dead_at IS NOT NULL"
        assert await (await broker.connection.execute(query)).fetchall() == [("1 of 1 subscribers rejected it",)]
        await broker.connection.execute(f"UPDATE {broker.table} SET dead_at = NULL")
        assert list(await stream.take(1)) == ["bad"]


async def test_a_row_says_what_is_known_about_it(postgres_url: str) -> None:
    async with outbox(postgres_url) as broker:
        insert = f"INSERT INTO {broker.table} (topic, key, payload, headers) VALUES ('t', 'k', '[1]', %s)"
        await broker.connection.execute(insert, [json.dumps({"trace": "x"})])
        producer = PostgresProducer(broker.reading)
        stream: Any = producer.open_stream()
        message, position = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        payload = message.payload()
        assert isinstance(payload.pop("created_at"), str)
        assert payload == {"value": [1], "id": position.id, "topic": "t", "key": "k", "headers": {"trace": "x"}}


async def test_the_rows_of_a_restarted_server_are_read_on(postgres_server: PostgresServer, postgres_url: str) -> None:
    async with outbox(postgres_url) as broker, opened(broker) as stream:
        await broker.publish("before", "a")
        before = await stream.take(1)
        postgres_server.restart()
        async with outbox(postgres_url) as afterwards:
            await afterwards.publish("after", "a")
            after = await stream.take(1)
            await stream.settle([*before.values(), *after.values()], ACCEPTED)
            left = await afterwards.connection.execute(f"SELECT count(*) FROM {broker.table}")
            assert (list(after), await left.fetchone()) == (["after"], (0,))


@pytest.mark.parametrize("table", ["Outbox", "a.b.c", "x; DROP TABLE y", "", "shop."])
def test_a_name_that_would_have_to_be_quoted_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="must be named in small letters"):
        PostgresReading(table=table)
    with pytest.raises(ValueError, match="must be named in small letters"):
        outbox_sql(table)
