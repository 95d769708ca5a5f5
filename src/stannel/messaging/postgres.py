"""An outbox table in PostgreSQL: rows that a program writes with its own data become events, heard of at once.

A row's number is taken when it is written and seen when it is committed, so a reader that only remembers how far it
came would pass over rows. This one asks for every row that is there, and deletes each once it is done.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
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
from stannel.messaging.message import Message
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.triggers.shared_stream import AdvanceItem, SharedStreamProducer

_TABLE = """\
CREATE TABLE IF NOT EXISTS {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL DEFAULT '',
    key text,
    payload jsonb NOT NULL,
    headers jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    deliveries integer NOT NULL DEFAULT 0,
    dead_at timestamptz,
    dead_reason text
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (topic, id) WHERE dead_at IS NULL;
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{channel}', '');
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER stannel_outbox AFTER INSERT OR UPDATE OF dead_at ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""
_COLUMNS = "id, topic, key, payload, headers, created_at, deliveries"


def outbox_sql(table: str = "outbox") -> str:
    """The statements that make an outbox table, and let it tell its reader about new rows. They may be run again.

    `table` is a plain name, or a schema and a name with a dot between them.
    """
    *schema, name = _parts(table)
    function = ".".join([*schema, f"{name}_notify"])
    return _TABLE.format(table=table, index=f"{name}_waiting", function=function, channel=_channel(table))


def _parts(table: str) -> list[str]:
    parts = table.split(".")
    if len(parts) > 2 or not all(part.isidentifier() and part == part.lower() for part in parts):
        raise ValueError(f"The outbox table {table!r} must be named in small letters, digits and underscores.")
    return parts


def _channel(table: str) -> str:
    return f"stannel_{table.replace('.', '_')}"


@dataclass(frozen=True, kw_only=True)
class PostgresReading(Reading):
    """The rows of `table`, of one `topic` or of all. The table is looked at every `poll_interval` seconds even if
    nothing was heard of it. Dead letters stay in it, with `dead_at` set; set that to NULL to try one again."""

    default_conn_id: ClassVar[str] = "postgres_default"
    identity: ClassVar[tuple[str, ...]] = ("table", "topic")

    table: str = "outbox"
    topic: str | None = None
    poll_interval: float = 10.0

    def __post_init__(self) -> None:
        _parts(self.table)


class PostgresPosition(NamedTuple):
    """Which row, of which key, and how often somebody has failed on it."""

    id: int
    key: str | None
    failures: int


class PostgresProducer(SharedStreamProducer):
    """Reads an outbox table over one connection and ends its rows over another."""

    def __init__(self, reading: PostgresReading) -> None:
        self._reading = reading
        self._psycopg = client("psycopg", "postgres")
        self._url = ""
        self._reader: Any = None
        self._writer: Any = None
        self._writing = asyncio.Lock()
        self._window = Window(reading.prefetch)
        self._out: set[int] = set()
        self._put_off: dict[int, float] = {}

    async def open_stream(self) -> AsyncIterator[tuple[Message, PostgresPosition]]:
        self._url = await self._reading.address(_url_of)
        patience = Patience(self._reading.patience)
        while True:
            try:
                await self._listen()
                while True:
                    rows = await self._rows()
                    patience.succeeded()
                    for row in rows:
                        self._out.add(row[0])
                        self._window.take()
                        yield _message(row), PostgresPosition(row[0], row[2], row[6])
                    await self._window.room()
                    if not rows:
                        await self._news()
            except self._psycopg.OperationalError as error:
                if not await patience.wait():
                    raise BrokerUnreachable("PostgreSQL", self._url, error) from error

    async def _listen(self) -> None:
        if self._reader is not None:
            await self._reader.close()
        self._reader = await self._connect()
        await self._reader.execute(f"LISTEN {_channel(self._reading.table)}")

    async def _connect(self) -> Any:
        return await self._psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=10)

    async def _rows(self) -> list[Any]:
        now = _now()
        self._put_off = {id_: due for id_, due in self._put_off.items() if due > now}
        skipped = [*self._out, *self._put_off]
        where = "dead_at IS NULL AND (%s::text IS NULL OR topic = %s) AND NOT id = ANY(%s)"
        query = f"SELECT {_COLUMNS} FROM {self._reading.table} WHERE {where} ORDER BY id LIMIT %s"  # noqa: S608
        topic = self._reading.topic
        cursor = await self._reader.execute(query, [topic, topic, skipped, self._window.free])
        return list(await cursor.fetchall())

    async def _news(self) -> None:
        """Wait until a row was written, or one is to be tried again, or it is time to look anyway."""
        soonest = min(self._put_off.values(), default=_now() + self._reading.poll_interval)
        # A row may be put off during the wait, which is therefore no longer than that lasts.
        seconds = min(soonest - _now(), self._reading.poll_interval, self._reading.retry_delay)
        async for _ in self._reader.notifies(timeout=max(0.01, seconds), stop_after=1):
            pass

    # --- what has become of them -------------------------------------------------------------------------------------

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        most = self._reading.max_deliveries
        fates = [fate_of(outcome, position.failures + 1, most) for position, outcome in batch]
        async with self._writing:
            writer = await self._open_writer()
            async with writer.transaction():
                await self._write(writer, batch, fates)
        due = _now() + self._reading.retry_delay
        for (position, _), fate in zip(batch, fates, strict=True):
            if fate is Fate.AGAIN:
                self._put_off[position.id] = due
            if position.id in self._out:
                self._out.discard(position.id)
                self._window.give_back()

    async def _write(self, writer: Any, batch: Sequence[AdvanceItem], fates: Sequence[Fate]) -> None:
        table = self._reading.table
        done = [position.id for (position, _), fate in zip(batch, fates, strict=True) if fate is Fate.DONE]
        if done:
            await writer.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", [done])  # noqa: S608
        for (position, outcome), fate in zip(batch, fates, strict=True):
            if fate is Fate.DEAD:
                bury = f"UPDATE {table} SET dead_at = now(), dead_reason = %s, deliveries = %s "  # noqa: S608
                values = [why_dead(outcome), position.failures + 1, position.id]
                await writer.execute(f"{bury} WHERE id = %s AND dead_at IS NULL", values)
            elif fate is Fate.AGAIN and outcome.failed:
                count = f"UPDATE {table} SET deliveries = %s WHERE id = %s"  # noqa: S608
                await writer.execute(count, [position.failures + 1, position.id])

    async def _open_writer(self) -> Any:
        if self._writer is None or self._writer.closed:
            self._writer = await self._connect()
        return self._writer

    def get_advance_lane(self, broker_payload: PostgresPosition) -> Hashable:
        return broker_payload.key

    def get_event_identity(self, broker_payload: PostgresPosition) -> str:
        return f"{self._reading.table}/{broker_payload.id}"

    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, self._psycopg.OperationalError)

    async def aclose(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                await connection.close()


def _message(row: Any) -> Message:
    id_, topic, key, payload, headers, created_at, _ = row
    about = {"id": id_, "topic": topic, "key": key, "headers": headers or {}, "created_at": created_at.isoformat()}
    return Message(None, about, value=payload, key=key)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _url_of(connection: Any) -> str:
    login = ""
    if connection.login:
        password = f":{quote(connection.password, safe='')}" if connection.password else ""
        login = f"{quote(connection.login, safe='')}{password}@"
    return f"postgresql://{login}{connection.host or 'localhost'}:{connection.port or 5432}/{connection.schema or ''}"


class PostgresOutboxTrigger(BrokerTrigger):
    """Fires for the rows of an outbox table; the arguments are those of `PostgresReading` and `BrokerTrigger`."""

    broker = "postgres"
    reading_class = PostgresReading

    @classmethod
    def producer(cls, reading: Any) -> SharedStreamProducer:
        return PostgresProducer(reading)


class PostgresProvider(BaseMessageQueueProvider):
    """`MessageQueueTrigger(scheme="postgres", table=...)`."""

    scheme = "postgres"

    def trigger_class(self) -> type[PostgresOutboxTrigger]:
        return PostgresOutboxTrigger
