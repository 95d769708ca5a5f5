"""PostgreSQL as the store: a small pool of connections, and LISTEN/NOTIFY for wake-ups."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

from stannel.errors import DiskFull, StannelError, StoreReadOnly, StoreUnavailable, address_without_password
from stannel.store.schema import metadata
from stannel.store.signals import Listener, readable
from stannel.store.sql import Cursor, Row, Tx

for _table in metadata.tables.values():
    for _index in _table.indexes:
        if "where" in _index.info:
            _index.dialect_options["postgresql"]["where"] = text(_index.info["where"])

POSTGRES: Dialect = postgresql.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]

_CHANNEL = "stannel"
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', %(topic)s)"
_CONNECT_SECONDS = 10.0
_RECONNECT_SECONDS = 0.5
# A server that vanished without a word is given up within seconds; the kernel alone would wait for hours.
_LINE = {
    "connect_timeout": int(_CONNECT_SECONDS),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
# Whoever stands still in the middle of a transaction, frozen or on a machine that sleeps, must not hold others up for
# ever with its locks: the server ends its session. A limit that the server or the address sets holds instead.
_BOUND = "SELECT set_config('{0}', '{1}', false) WHERE current_setting('{0}') = '0'".format(
    "idle_in_transaction_session_timeout", "15s"
)
# No state at all, or the server said that it was told to stop, crashed, is still starting, or ended a silent session.
_LOST_CONNECTION = (None, "57P01", "57P02", "57P03", "25P03")


def connection_string(url: str) -> str:
    """How to connect to the address: what it says itself, and for the rest a line that is given up when it is dead."""
    address = url.replace("postgresql+psycopg://", "postgresql://", 1)
    named = conninfo_to_dict(address)
    return make_conninfo(address, **{name: value for name, value in _LINE.items() if name not in named})


class PostgresDatabase:
    """A database on a PostgreSQL server, shared by any number of schedulers and workers."""

    dialect = POSTGRES

    def __init__(self, url: str, *, pool_size: int = 5) -> None:
        self.address = url
        self._conninfo = connection_string(url)
        # A pool would go on trying for a while, and then not say why it failed.
        try:
            psycopg.connect(self._conninfo).close()
        except psycopg.OperationalError as error:
            raise self._explain(error) from error
        self._pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=pool_size,
            timeout=_CONNECT_SECONDS,
            # Pauses between tries double until it gives up, and whoever asks next starts anew: back within seconds.
            reconnect_timeout=_CONNECT_SECONDS,
            kwargs={"application_name": f"stannel {os.getpid()}", "autocommit": True},
            configure=_bounded,
            open=True,
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Tx]:
        """All or nothing. Returns only after the commit."""
        with self._errors(), self._pool.connection() as connection, connection.transaction():
            cursor = connection.cursor()
            tx = Tx(cast(Cursor, cursor), POSTGRES)
            yield tx
            for topic in tx.topics:
                cursor.execute(_NOTIFY, {"topic": topic})

    @contextlib.contextmanager
    def read(self) -> Iterator[Tx]:
        """A view of what is committed, statement by statement."""
        with self._errors(), self._pool.connection() as connection:
            yield Tx(cast(Cursor, connection.cursor()), POSTGRES)

    def listen(self, *topics: str) -> Listener:
        with self._errors():
            return NotifyListener(self._conninfo, frozenset(topics))

    def wake(self, *topics: str) -> None:
        with self._errors(), self._pool.connection() as connection:
            for topic in topics:
                connection.execute(_NOTIFY, {"topic": topic})

    def close(self) -> None:
        self._pool.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.OperationalError, psycopg.InternalError, PoolTimeout) as error:
            # After a restart of the server every connection is dead: one error is enough to find them all out.
            if error.sqlstate in _LOST_CONNECTION:
                self._pool.check()
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StannelError:
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            return StoreReadOnly(self.address)
        if isinstance(error, psycopg.errors.DiskFull):
            return DiskFull(address_without_password(self.address))
        return StoreUnavailable(self.address, str(error).strip().replace("\n", " "))


def _bounded(connection: psycopg.Connection[Row]) -> None:
    connection.execute(_BOUND)


class NotifyListener:
    """Hears every topic on a connection of its own and keeps those it was asked for; a lost connection comes back.

    A thread holds the connection, so that whoever waits sees the same file descriptor all the time.
    """

    def __init__(self, conninfo: str, topics: frozenset[str]) -> None:
        self._conninfo, self._topics = conninfo, topics
        self._woken, self._closing = (os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(2))
        try:
            connection = self._connect()
        except BaseException:
            self._close_files()
            raise
        self._thread = threading.Thread(target=self._hear, args=(connection,), name="listener", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        return self._woken

    def drain(self) -> bool:
        try:
            return os.eventfd_read(self._woken) > 0
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        self._close_files()

    def _hear(self, connection: psycopg.Connection[Row] | None) -> None:
        while not self._is_closing(0):
            try:
                if connection is None:
                    connection = self._connect()
                    # What was sent while the line was down is lost: count that as a wake-up.
                    os.eventfd_write(self._woken, 1)
                heard = {notify.payload for notify in connection.notifies(timeout=0)}
                if not self._topics.isdisjoint(heard):
                    os.eventfd_write(self._woken, 1)
                readable(connection.fileno(), self._closing, seconds=None)
            except psycopg.Error:
                if connection is not None:
                    connection.close()
                connection = None
                self._is_closing(_RECONNECT_SECONDS)
        if connection is not None:
            connection.close()

    def _is_closing(self, seconds: float) -> bool:
        return bool(readable(self._closing, seconds=seconds))

    def _connect(self) -> psycopg.Connection[Row]:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        connection.execute(f"LISTEN {_CHANNEL}")
        return connection

    def _close_files(self) -> None:
        os.close(self._woken)
        os.close(self._closing)
