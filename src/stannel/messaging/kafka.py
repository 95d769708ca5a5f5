"""Kafka: the messages of a consumer group, committed partition by partition once everything made of them is stored.

The client library blocks and has threads of its own, so it is polled in one thread and told about commits in another.
"""

import asyncio
import itertools
import logging
import time
import zlib
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec

from stannel.messaging.broker import BrokerTrigger, BrokerUnreachable, Reading, Window, client, why_dead
from stannel.messaging.kafka_letters import DeadLetters
from stannel.messaging.message import Message, text_of
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, EventNotHandled, SharedStreamProducer

_log = logging.getLogger(__name__)
T = TypeVar("T")

_POLL_SECONDS = 0.25
# A member of a group that does not poll for some minutes is put out of it, so an idle one polls with nothing asked for.
_KEEP_ALIVE_SECONDS = 30.0
_FIRST = {"earliest", "latest"}


@dataclass(frozen=True, kw_only=True)
class KafkaReading(Reading):
    """The messages of `topics` (a name beginning with ^ is a pattern), read by the consumer group `group`.

    `url` is a list of brokers (`host:port,host:port`); the connection's `extra`, and `config`, are settings of
    librdkafka. A new group begins at `start`. With `takes_over` it is a member under a lasting name: whoever reads next
    has the partitions at once, and a reader that was taken for dead can commit nothing any more. Dead letters go to the
    topic `dead_letter`, which is called like the message's own with `.dead` at the end unless it is given.
    """

    default_conn_id: ClassVar[str] = "kafka_default"
    identity: ClassVar[tuple[str, ...]] = ("topics", "group")
    secrets: ClassVar[tuple[str, ...]] = ("url", "config")

    topics: str | list[str]
    group: str = "stannel"
    start: str = "earliest"
    takes_over: bool = True
    config: dict[str, Any] | None = None
    dead_letter: str | None = None

    def __post_init__(self) -> None:
        if self.start not in _FIRST:
            raise ValueError(f"start is {self.start!r}; a Kafka group begins at 'earliest' or 'latest'.")

    @property
    def names(self) -> list[str]:
        return [self.topics] if isinstance(self.topics, str) else [*self.topics]

    @property
    def member(self) -> str:
        """A name for all who read the same: one of them at a time does."""
        return f"stannel-{zlib.crc32(repr(sorted(self.names)).encode()):08x}"

    async def settings(self) -> dict[str, Any]:
        """What the client library is given to find and enter the cluster."""
        found: dict[str, Any] = {}
        if self.url is not None:
            found["bootstrap.servers"] = self.url
        else:
            connection = await self.connection()
            if connection.host:
                found["bootstrap.servers"] = f"{connection.host}:{connection.port or 9092}"
            found |= msgspec.json.decode(connection.extra or "{}", type=dict[str, Any])
        return found | (self.config or {})


class KafkaPosition(NamedTuple):
    """A message's place, and in which of this consumer's turns at the partition it was read."""

    topic: str
    partition: int
    offset: int
    turn: int


class KafkaProducer(SharedStreamProducer):
    """One member of a consumer group. What it was given before a partition went to another member is not committed."""

    commits_cumulatively = True

    def __init__(self, reading: KafkaReading) -> None:
        self._reading = reading
        self._kafka = client("confluent_kafka", "kafka")
        self._settings: dict[str, Any] = {}
        self._consumer: Any = None
        self._letters: DeadLetters | None = None
        self._reads = ThreadPoolExecutor(1, "kafka-read")
        self._writes = ThreadPoolExecutor(1, "kafka-write")
        self._window = Window(reading.prefetch)
        self._out: dict[KafkaPosition, Any] = {}
        self._turns: dict[tuple[str, int], int] = {}
        self._numbers = itertools.count(1)
        self._is_paused = False
        self._down_since: float | None = None
        self._idle_since = 0.0
        self._found_while_idle: list[Any] = []
        self._keeping: asyncio.Task[None] | None = None

    # --- reading -----------------------------------------------------------------------------------------------------

    async def open_stream(self) -> AsyncIterator[tuple[Message, KafkaPosition]]:
        self._settings = await self._reading.settings()
        await self._in(self._reads, self._join)
        self._keeping = asyncio.create_task(self._keep_alive())
        while True:
            for found in await self._in(self._reads, self._poll, self._window.free):
                position = self._position(found)
                # A partition may have been taken away since the message was fetched; whoever has it now reads it.
                if position is not None:
                    self._out[position] = found
                    self._window.take()
                    yield _message(found), position
            self._idle_since = asyncio.get_running_loop().time()
            await self._window.room()

    def _join(self) -> None:
        lasting = {"group.instance.id": self._reading.member} if self._reading.takes_over else {}
        settings = {
            "group.id": self._reading.group,
            "auto.offset.reset": self._reading.start,
            **lasting,
            **self._settings,
            "enable.auto.commit": False,
            "error_cb": self._note_error,
            "logger": _quiet,
        }
        consumer = self._consumer = self._kafka.Consumer(settings)
        try:
            consumer.list_topics(timeout=self._reading.patience)
        except self._kafka.KafkaException as error:
            raise self._unreachable(error) from error
        consumer.subscribe(
            self._reading.names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _unreachable(self, error: Exception) -> BrokerUnreachable:
        return BrokerUnreachable("Kafka", str(self._settings.get("bootstrap.servers")), error)

    def _poll(self, most: int) -> list[Any]:
        """What is there; the first message is waited for, the others are not."""
        if self._is_paused:
            self._consumer.resume(self._consumer.assignment())
            self._is_paused = False
        found, self._found_while_idle = self._found_while_idle, []
        first = None if found else self._consumer.poll(_POLL_SECONDS)
        if first is not None:
            found = [first, *self._consumer.consume(most, 0)]
        elif self._down_since is not None:
            self._see_whether_it_is_back(self._down_since)
        return [message for message in found if self._is_good(message)]

    def _see_whether_it_is_back(self, down_since: float) -> None:
        try:
            self._consumer.list_topics(timeout=1)
            self._down_since = None
        except self._kafka.KafkaException as error:
            if time.monotonic() - down_since >= self._reading.patience:
                raise self._unreachable(error) from error

    def _is_good(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        # After a fatal error the library is silent for ever: as when another has joined under this member's name.
        code = self._kafka.KafkaError
        if error.fatal() or error.code() in (code._FATAL, code.UNKNOWN_TOPIC_OR_PART):
            raise self._kafka.KafkaException(error)
        # Everything else the library mends itself, or tells again.
        _log.info("Kafka: %s", error)
        return False

    def _position(self, message: Any) -> KafkaPosition | None:
        lane = message.topic(), message.partition()
        turn = self._turns.get(lane)
        return None if turn is None else KafkaPosition(*lane, message.offset(), turn)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        for partition in partitions:
            self._turns[partition.topic, partition.partition] = next(self._numbers)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        for partition in partitions:
            self._turns.pop((partition.topic, partition.partition), None)

    def _note_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = time.monotonic()
        _log.info("Kafka: %s", error)

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_KEEP_ALIVE_SECONDS)
            if loop.time() - self._idle_since >= _KEEP_ALIVE_SECONDS:
                await self._in(self._reads, self._poll_for_nothing)

    def _poll_for_nothing(self) -> None:
        self._consumer.pause(self._consumer.assignment())
        self._is_paused = True
        # A partition that was given to this member just now is not paused.
        found = self._consumer.poll(0)
        if found is not None:
            self._found_while_idle.append(found)

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        fresh = [item for item in batch if item.broker_payload in self._out]
        mine = [item for item in fresh if self._is_mine(item.broker_payload)]
        for position, outcome in mine:
            if outcome.rejected:
                await self._bury(position, why_dead(outcome))
        if mine:
            await self._in(self._writes, self._commit, mine[-1].broker_payload)
        for position, _ in fresh:
            del self._out[position]
            self._window.give_back()

    def _is_mine(self, position: KafkaPosition) -> bool:
        """Whether the partition has been this consumer's all the time since the message was read."""
        return self._turns.get((position.topic, position.partition)) == position.turn

    def _commit(self, last: KafkaPosition) -> None:
        place = self._kafka.TopicPartition(last.topic, last.partition, last.offset + 1)
        try:
            committed = self._consumer.commit(offsets=[place], asynchronous=False)
        except self._kafka.KafkaException as error:
            if error.args[0].code() not in self._no_longer_mine:
                raise
            _log.info("Kafka: %s[%d] went to another member; it reads again what was not committed.", *last[:2])
            return
        for partition in committed or ():
            if partition.error is not None:
                raise self._kafka.KafkaException(partition.error)

    @property
    def _no_longer_mine(self) -> tuple[int, ...]:
        code = self._kafka.KafkaError
        return (code.ILLEGAL_GENERATION, code.UNKNOWN_MEMBER_ID, code.FENCED_INSTANCE_ID, code.STALE_MEMBER_EPOCH)

    async def dead_letter(self, item: AdvanceItem) -> None:
        if not item.outcome.failed:
            # Nobody was there to read it: it is no dead letter, and must be read again.
            raise EventNotHandled(item)
        if item.broker_payload in self._out and self._is_mine(item.broker_payload):
            await self._bury(item.broker_payload, why_dead(item.outcome))

    async def _bury(self, position: KafkaPosition, reason: str) -> None:
        if self._letters is None:
            self._letters = DeadLetters(self._settings, self._reading.patience)
        place = self._reading.dead_letter or f"{position.topic}.dead"
        origin = f"{position.topic}/{position.partition}/{position.offset}"
        await self._in(self._writes, self._letters.send, place, self._out[position], origin, reason)

    def get_advance_lane(self, broker_payload: KafkaPosition) -> Hashable:
        return broker_payload[:2]

    def get_event_identity(self, broker_payload: KafkaPosition) -> str:
        return f"{broker_payload.topic}/{broker_payload.partition}/{broker_payload.offset}"

    def may_retry_advance(self, error: Exception) -> bool:
        if not isinstance(error, self._kafka.KafkaException):
            return False
        code = self._kafka.KafkaError
        passing = (code._TRANSPORT, code._TIMED_OUT, code._WAIT_COORD, code.REBALANCE_IN_PROGRESS)
        return bool(error.args[0].retriable() or error.args[0].code() in passing)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        try:
            if self._consumer is not None:
                await self._in(self._reads, self._consumer.close)
        finally:
            self._reads.shutdown(wait=False)
            self._writes.shutdown(wait=False)

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


_quiet = logging.getLogger(f"{__name__}.librdkafka")


def _message(found: Any) -> Message:
    kind, moment = found.timestamp()
    about = {
        "topic": found.topic(),
        "partition": found.partition(),
        "offset": found.offset(),
        "key": text_of(found.key()),
        "headers": {name: text_of(value) for name, value in found.headers() or ()},
        "timestamp": moment if kind else None,
    }
    return Message(found.value(), about, key=about["key"])


class KafkaTrigger(BrokerTrigger):
    """Fires for the messages of Kafka topics; the arguments are those of `KafkaReading` and `BrokerTrigger`."""

    broker = "kafka"
    reading_class = KafkaReading
    aliases: ClassVar[dict[str, str]] = {"kafka_config_id": "conn_id"}
    ignored: ClassVar[frozenset[str]] = frozenset({"commit_offset", "poll_interval", "poll_timeout"})

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return KafkaProducer(reading)


class KafkaProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="kafka", topics=...)`."""

    scheme = "kafka"

    def trigger_class(self) -> type[KafkaTrigger]:
        return KafkaTrigger

    def trigger_kwargs(self, queue: str | None, **kwargs: Any) -> dict[str, Any]:
        """`kafka://host:9092/topic`."""
        if queue is None:
            return {}
        servers, _, topic = queue.partition("://")[2].partition("/")
        return {"url": servers, "topics": topic}
