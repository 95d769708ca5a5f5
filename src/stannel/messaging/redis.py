"""Redis Streams, and Valkey's: a consumer group's entries, acknowledged once everything made of them is stored."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from stannel.messaging.broker import (
    BrokerTrigger,
    BrokerUnreachable,
    Fate,
    Patience,
    Reading,
    Window,
    client,
    fate_of,
    why_dead,
)
from stannel.messaging.message import Message, decoded, text_of
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

# How long one question waits for news. A server that does not even say "nothing" in time has gone.
_BLOCK = 2.0
_SILENCE = 15.0

# In one step, so that an entry is a dead letter exactly once however often this is said.
_BURY = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 1 then
  redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
end
"""


@dataclass(frozen=True, kw_only=True)
class RedisReading(Reading):
    """`streams` are read by the consumer group `group`, from entry `start` on when the group is new.

    An entry is a dict of its fields, or what its `field` holds. Dead letters go to the stream `dead_letter`, which is
    called like the entry's own with `.dead` at the end unless it is given.
    """

    default_conn_id: ClassVar[str] = "redis_default"
    identity: ClassVar[tuple[str, ...]] = ("streams", "group")

    streams: str | list[str]
    group: str = "stannel"
    start: str = "0"
    field: str | None = None
    dead_letter: str | None = None

    @property
    def names(self) -> list[str]:
        return [self.streams] if isinstance(self.streams, str) else [*self.streams]


class RedisPosition(NamedTuple):
    """Which entry of which stream, and what it says."""

    stream: str
    id: bytes
    fields: Mapping[bytes, bytes]


class RedisProducer(SharedStreamProducer):
    """Reads as the one consumer of its group: what it was given before and has not acknowledged comes first."""

    def __init__(self, reading: RedisReading) -> None:
        self._reading = reading
        self._redis = client("redis", "redis")
        self._url = ""
        self._reader: Any = None
        self._writer: Any = None
        self._window = Window(reading.prefetch)
        self._out: set[tuple[str, bytes]] = set()
        self._again: list[tuple[float, str, bytes]] = []

    async def open_stream(self) -> AsyncIterator[tuple[Message, RedisPosition]]:
        self._url = await self._reading.address(_url_of)
        patience = Patience(self._reading.patience)
        # Told of a broken connection, it asks for what it has not acknowledged: some of it may have been on the way.
        while True:
            try:
                await self._connect()
                patience.succeeded()
                async for position in self._read():
                    self._out.add((position.stream, position.id))
                    self._window.take()
                    yield self._message(position), position
            except (self._redis.ConnectionError, self._redis.TimeoutError, TimeoutError) as error:
                if not await patience.wait():
                    raise BrokerUnreachable("Redis", self._url, error) from error

    async def _connect(self) -> None:
        await self._disconnect_reader()
        self._writer = self._writer or self._client(socket_timeout=_SILENCE)
        for stream in self._reading.names:
            try:
                await self._writer.xgroup_create(stream, self._reading.group, id=self._reading.start, mkstream=True)
            except self._redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        # A question that is asked again by itself could hide entries that were on their way.
        never = self._redis.retry.Retry(self._redis.backoff.NoBackoff(), 0)
        # With a time limit of its own this library loses a cancellation that comes while it sends.
        # What is put off is among what is not acknowledged.
        self._again.clear()
        self._reader = self._client(socket_timeout=None, retry=never, single_connection_client=True)

    def _client(self, **options: Any) -> Any:
        return client("redis.asyncio", "redis").from_url(self._url, socket_keepalive=True, **options)

    async def _read(self) -> AsyncIterator[RedisPosition]:
        async for position in self._unacknowledged():
            yield position
        news = dict.fromkeys(self._reading.names, ">")
        while True:
            for position in await self._due():
                yield position
            await self._window.room()
            for position in await self._ask(news, block=int(1000 * self._seconds_until_due())):
                yield position

    async def _unacknowledged(self) -> AsyncIterator[RedisPosition]:
        after: dict[str, Any] = dict.fromkeys(self._reading.names, "0")
        while found := await self._ask(after):
            for position in found:
                after[position.stream] = position.id
                if not position.fields:
                    # The entry was deleted or trimmed away; only the debt is left.
                    await self._writer.xack(position.stream, self._reading.group, position.id)
                elif (position.stream, position.id) not in self._out:
                    yield position
            await self._window.room()

    async def _ask(self, after: Mapping[str, Any], block: int | None = None) -> list[RedisPosition]:
        # The name of the consumer is that of the group: whoever reads next must find what this one leaves behind.
        group = self._reading.group
        count = self._window.free
        async with asyncio.timeout(_SILENCE):
            answer = await self._reader.xreadgroup(group, group, dict(after), count=count, block=block)
        pairs = answer.items() if isinstance(answer, dict) else answer or []
        return [
            RedisPosition(stream.decode(), id_, fields or {})
            for stream, entries in pairs
            for id_, fields in _flat(entries)
        ]

    async def _due(self) -> list[RedisPosition]:
        """The entries that are to be tried again now."""
        now, found = _now(), []
        while self._again and self._again[0][0] <= now:
            _, stream, id_ = heapq.heappop(self._again)
            claimed = await self._writer.xclaim(stream, self._reading.group, self._reading.group, 0, [id_])
            found += [RedisPosition(stream, id_, fields) for _, fields in claimed if fields]
        return found

    def _seconds_until_due(self) -> float:
        # An entry may be put off while the question waits, so it waits no longer than that.
        longest = min(_BLOCK, self._reading.retry_delay)
        return max(0.001, min(longest, self._again[0][0] - _now()) if self._again else longest)

    def _message(self, position: RedisPosition) -> Message:
        about = {"stream": position.stream, "id": position.id.decode()}
        if self._reading.field is not None:
            return Message(position.fields.get(self._reading.field.encode()), about)
        value = {text_of(name) or "": decoded(content) for name, content in position.fields.items()}
        return Message(None, about, value=value)

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        group, stream = self._reading.group, batch[0].broker_payload.stream
        done = [position.id for position, outcome in batch if outcome.is_clean]
        if done:
            await self._writer.xack(stream, group, *done)
        again = [item.broker_payload for item in batch if not item.outcome.is_clean and await self._comes_again(item)]
        due = _now() + self._reading.retry_delay
        for position, _ in batch:
            if (stream, position.id) in self._out:
                self._out.discard((stream, position.id))
                self._window.give_back()
        for position in again:
            heapq.heappush(self._again, (due, stream, position.id))

    async def _comes_again(self, item: AdvanceItem) -> bool:
        """Whether the entry is to be tried again; else it is a dead letter now."""
        position, outcome = item
        stream, id_, _ = position
        deliveries = await self._deliveries(stream, id_)
        if fate_of(outcome, deliveries, self._reading.max_deliveries) is Fate.AGAIN:
            return True
        origin = {"stannel-origin": f"{stream}/{id_.decode()}", "stannel-reason": why_dead(outcome)}
        letter = [part for pair in [*position.fields.items(), *origin.items()] for part in pair]
        place = self._reading.dead_letter or f"{stream}.dead"
        await self._writer.eval(_BURY, 2, stream, place, self._reading.group, id_, *letter)
        return False

    async def _deliveries(self, stream: str, id_: bytes) -> int:
        pending = await self._writer.xpending_range(stream, self._reading.group, min=id_, max=id_, count=1)
        return int(pending[0]["times_delivered"]) if pending else 1

    def get_advance_lane(self, broker_payload: RedisPosition) -> Hashable:
        return broker_payload.stream

    def get_event_identity(self, broker_payload: RedisPosition) -> str:
        return f"{broker_payload.stream}/{broker_payload.id.decode()}"

    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, self._redis.ConnectionError | self._redis.TimeoutError)

    async def aclose(self) -> None:
        await self._disconnect_reader()
        if self._writer is not None:
            await self._writer.aclose()

    async def _disconnect_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader.aclose()


def _flat(entries: Any) -> list[Any]:
    """Entries as pairs; one form of the protocol wraps them in a list."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _now() -> float:
    return asyncio.get_running_loop().time()


def _url_of(connection: Any) -> str:
    login = ""
    if connection.password:
        login = f"{quote(connection.login or '', safe='')}:{quote(connection.password, safe='')}@"
    database = f"/{connection.schema}" if connection.schema else ""
    scheme = "rediss" if connection.conn_type == "rediss" else "redis"
    return f"{scheme}://{login}{connection.host or 'localhost'}:{connection.port or 6379}{database}"


class RedisStreamTrigger(BrokerTrigger):
    """Fires for the entries of Redis streams; the arguments are those of `RedisReading` and `BrokerTrigger`."""

    broker = "redis"
    reading_class = RedisReading

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return RedisProducer(reading)


class RedisProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="redis", streams=...)`."""

    scheme = "redis"

    def trigger_class(self) -> type[RedisStreamTrigger]:
        return RedisStreamTrigger
