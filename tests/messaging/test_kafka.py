"""Kafka against a real Apache Kafka node."""

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support import broker_story
from support.servers import Server, free_port

from stannel.messaging.broker import BrokerUnreachable
from stannel.messaging.kafka import KafkaProducer, KafkaReading, KafkaTrigger
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


class Cluster:
    """What all tests use to write, to look and to make topics."""

    def __init__(self, server: Server) -> None:
        self.address = f"127.0.0.1:{server.port}"
        settings = {"bootstrap.servers": self.address, "logger": logging.getLogger("kafka-tests")}
        self.admin = AdminClient(settings)
        self.writer = Producer({**settings, "linger.ms": 0})
        self.reader = Consumer({**settings, "group.id": "letters", "fetch.wait.max.ms": 10})

    def close(self) -> None:
        self.writer.flush(10)
        self.reader.close()


@pytest.fixture(scope="module")
def cluster(kafka_server: Server) -> Iterator[Cluster]:
    cluster = Cluster(kafka_server)
    yield cluster
    cluster.close()


class Topic(BrokerInTest):
    """A topic of three partitions."""

    lanes = ("a", "b", "c")
    reading: KafkaReading

    def __init__(self, cluster: Cluster) -> None:
        self.admin, self.writer, self.reader = cluster.admin, cluster.writer, cluster.reader
        self.name = f"test-{next(_numbers)}"
        self.reading = KafkaReading(
            url=cluster.address, topics=self.name, group=self.name, patience=10,
            config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "fetch.wait.max.ms": 20},
        )  # fmt: skip

    async def create(self) -> None:
        [making] = self.admin.create_topics([NewTopic(self.name, len(self.lanes), 1)]).values()
        await asyncio.to_thread(making.result)

    def producer(self) -> SharedStreamProducer:
        return KafkaProducer(self.reading)

    async def publish(self, text: str, lane: str) -> None:
        self.writer.produce(self.name, text.encode(), partition=self.lanes.index(lane))
        self.writer.poll(0)

    def text_of(self, raw_event: Any) -> str:
        return str(raw_event.value)

    async def dead_letters(self) -> list[str]:
        return [message.value().decode() for message in await asyncio.to_thread(self.dead_messages)]

    def dead_messages(self) -> list[Any]:
        place = TopicPartition(f"{self.name}.dead", 0, 0)
        if self.admin.list_topics(place.topic).topics[place.topic].error is not None:
            return []
        _, end = self.reader.get_watermark_offsets(place)
        self.reader.assign([place])
        found: list[Any] = []
        while len(found) < end:
            found += self.reader.consume(end - len(found), 0.05)
        return found

    async def committed(self) -> dict[int, int]:
        """The position of the group in each partition that has one."""
        [asking] = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name)]).values()
        places = (await asyncio.to_thread(asking.result)).topic_partitions
        return {place.partition: place.offset for place in places if place.offset >= 0}


@asynccontextmanager
async def topic(cluster: Cluster) -> AsyncIterator[Topic]:
    broker = Topic(cluster)
    await broker.create()
    yield broker


@asynccontextmanager
async def opened(broker: BrokerInTest) -> AsyncIterator[OpenStream]:
    stream = OpenStream(broker, patience=30)
    try:
        yield stream
    finally:
        await stream.abandon()


class TestKafkaProducer(ProducerConformance):
    patience = 30.0

    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def broker(self) -> Any:
        return topic(self.cluster)


async def test_a_commit_is_the_position_after_the_last_message_of_the_batch(cluster: Cluster) -> None:
    async with topic(cluster) as broker, opened(broker) as stream:
        for text in ("one", "two", "three"):
            await broker.publish(text, "b")
        came = await stream.take(3)
        await stream.settle([came["one"], came["two"]], ACCEPTED)
        assert await broker.committed() == {1: 2}


async def collect(stream: OpenStream, came: dict[str, Any]) -> None:
    while True:
        text, position = await stream.next()
        came[text] = position


async def test_the_next_reader_takes_over_at_once_and_shuts_the_first_out(cluster: Cluster) -> None:
    async with topic(cluster) as broker, opened(broker) as first:
        await broker.publish("event", "a")
        before = await first.take(1)
        async with opened(broker) as second:
            after = await second.take(1)
            # Refused either way: by the cluster, or by the library, if that has heard of it already.
            with suppress(KafkaException):
                await first.settle([*before.values()], ACCEPTED)
            assert await broker.committed() == {}
            with pytest.raises(KafkaException, match="fenced"):
                await first.next()
            await second.settle([*after.values()], ACCEPTED)
            assert await broker.committed() == {0: 1}


async def test_what_went_to_another_member_is_not_committed_by_the_first(cluster: Cluster) -> None:
    async with topic(cluster) as broker:
        broker.reading = replace(broker.reading, takes_over=False)
        await share_partitions(broker)


async def share_partitions(broker: Topic) -> None:
    async with opened(broker) as first:
        for lane in broker.lanes:
            await broker.publish(lane, lane)
        before = await first.take(3)
        async with opened(broker) as second:
            # Whoever has a partition now reads its message again; what the first was given before means nothing.
            again = {stream: dict[str, Any]() for stream in (first, second)}
            async with asyncio.timeout(30):
                reads = [asyncio.create_task(collect(stream, again[stream])) for stream in again]
                while sum(map(len, again.values())) < 3:
                    await asyncio.sleep(0.02)
            for read in reads:
                read.cancel()
            await asyncio.wait(reads)
            assert len(again[second]) in (1, 2)
            await first.settle([*before.values()], ACCEPTED)
            assert await broker.committed() == {}
            for stream, came in again.items():
                for position in came.values():
                    await stream.settle([position], ACCEPTED)
            assert await broker.committed() == {0: 1, 1: 1, 2: 1}


async def test_a_dead_letter_keeps_key_and_headers_and_says_where_it_came_from(cluster: Cluster) -> None:
    async with topic(cluster) as broker, opened(broker) as stream:
        broker.writer.produce(broker.name, b"bad", b"key", partition=2, headers=[("trace", b"x")])
        broker.writer.flush()
        came = await stream.take(1)
        await stream.settle([came["bad"]], REJECTED)
        [letter] = await asyncio.to_thread(broker.dead_messages)
        assert (letter.key(), letter.value()) == (b"key", b"bad")
        assert dict(letter.headers()) == {
            "trace": b"x",
            "stannel-origin": f"{broker.name}/2/0".encode(),
            "stannel-reason": b"1 of 1 subscribers rejected it",
        }


async def test_a_failed_message_goes_to_the_topic_that_was_chosen_for_it(cluster: Cluster) -> None:
    async with topic(cluster) as broker:
        broker.reading = replace(broker.reading, dead_letter=f"{broker.name}.dead")
        async with opened(broker) as stream:
            await broker.publish("failing", "a")
            await broker.publish("fine", "a")
            came = await stream.take(2)
            await stream.settle([came["failing"]], FAILED)
            await stream.settle([came["fine"]], ACCEPTED)
            assert (await broker.dead_letters(), await broker.committed()) == (["failing"], {0: 2})


async def test_a_message_says_what_is_known_about_it(cluster: Cluster) -> None:
    async with topic(cluster) as broker:
        broker.writer.produce(
            broker.name, b'{"id": 7}', b"k", partition=1, headers=[("h", b"\xff")], timestamp=1_700_000_000_000
        )
        broker.writer.flush()
        producer = KafkaProducer(broker.reading)
        stream: Any = producer.open_stream()
        message, _ = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        assert message.payload() == {
            "value": {"id": 7}, "topic": broker.name, "partition": 1, "offset": 0, "key": "k",
            "headers": {"h": "/w=="}, "timestamp": 1_700_000_000_000,
        }  # fmt: skip


async def test_an_idle_member_stays_in_its_group_and_reads_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stannel.messaging.kafka._KEEP_ALIVE_SECONDS", 0.05)
    async with topic(cluster) as broker:
        config = {**(broker.reading.config or {}), "max.poll.interval.ms": 6000}
        broker.reading = replace(broker.reading, prefetch=1, config=config)
        async with opened(broker) as stream:
            await broker.publish("one", "a")
            await broker.publish("two", "a")
            one = await stream.take(1)
            producer: Any = stream.producer
            async with asyncio.timeout(15):
                while not producer._is_paused:
                    await asyncio.sleep(0.02)
            await stream.settle([*one.values()], ACCEPTED)
            assert list(await stream.take(1)) == ["two"]


async def test_a_cluster_that_does_not_answer_is_told() -> None:
    producer = KafkaProducer(KafkaReading(url=f"127.0.0.1:{free_port()}", topics="x", patience=0.5))
    with pytest.raises(BrokerUnreachable, match="Kafka at 127"):
        await anext(producer.open_stream())  # type: ignore[arg-type]
    await producer.aclose()


async def test_a_topic_that_does_not_exist_is_told(cluster: Cluster) -> None:
    producer = KafkaProducer(KafkaReading(url=cluster.address, topics="nowhere", patience=5))
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
        await anext(producer.open_stream())  # type: ignore[arg-type]
    await producer.aclose()


def test_triggers_of_one_topic_and_group_read_together_whatever_they_want() -> None:
    first = KafkaTrigger(url="h:1", topics=["a", "b"], where={"kind": "x"})
    second = KafkaTrigger(url="h:1", topics=["a", "b"], where={"kind": "y"}, prefetch=5)
    other = KafkaTrigger(url="h:1", topics=["a", "b"], group="other")
    assert first.shared_stream_key() == second.shared_stream_key() != other.shared_stream_key()


def test_names_known_from_elsewhere_are_understood_and_settings_are_secret() -> None:
    trigger = KafkaTrigger(kafka_config_id="mine", topics="a", poll_timeout=1, config={"sasl.password": "hidden"})
    assert trigger.reading.conn_id == "mine"
    assert trigger.serialize()[1]["encrypted__config"] == {"sasl.password": "hidden"}
    assert "hidden" not in repr(trigger)


@pytest.mark.timeout(240)
def test_in_the_engine_every_message_counts_once_though_the_triggerer_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    broker = Topic(cluster)
    asyncio.run(broker.create())
    ends: Counter[int] = Counter()

    def publish(messages: Any) -> None:
        for message in messages:
            partition = message["n"] % 3
            cluster.writer.produce(broker.name, json.dumps(message).encode(), partition=partition)
            ends[partition] += 1
        cluster.writer.flush()

    def left() -> int:
        return ends.total() - sum(asyncio.run(broker.committed()).values())

    arguments = {"scheme": "kafka", "url": cluster.address, "topics": broker.name, "group": broker.name}
    broker_story.tell(tmp_path, {**arguments, "config": broker.reading.config}, publish, left)


async def test_a_cluster_that_stays_away_is_told_and_read_on_when_it_is_back(
    kafka_server: Server, cluster: Cluster
) -> None:
    async with topic(cluster) as broker:
        broker.reading = replace(broker.reading, patience=1.0)
        await broker.publish("before", "a")
        stream = OpenStream(broker, patience=30)
        try:
            await stream.take(1)
            await asyncio.to_thread(kafka_server.stop)
            with pytest.raises(BrokerUnreachable):
                await stream.next()
        finally:
            kafka_server.start()
            await stream.abandon()
        broker.reading = replace(broker.reading, patience=30)
        async with opened(broker) as again:
            await broker.publish("after", "b")
            assert sorted(await again.take(2)) == ["after", "before"]
