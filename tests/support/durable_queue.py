"""A broker in a file, and triggers that read it: what is in it, and how far it was told, outlives every process."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

# A module for a DAG folder. Messages of a queue come from the first that is not committed, as from a partition.
MODULE = '''
import asyncio, json, os, sqlite3, time
from contextlib import closing
from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import SharedStreamProducer


def connect(path):
    return closing(sqlite3.connect(path, timeout=30, isolation_level=None))


class Queue(SharedStreamProducer):
    commits_cumulatively = True

    def __init__(self, path):
        self.path = path

    async def open_stream(self):
        with connect(self.path) as db:
            at = db.execute("SELECT max(number) FROM commits").fetchone()[0] or 0
            db.execute("INSERT INTO opened VALUES (?, ?)", (os.getpid(), at))
        while True:
            with connect(self.path) as db:
                found = db.execute("SELECT number, body FROM messages WHERE number > ? ORDER BY number", (at,))
                found = found.fetchall()
            for at, body in found:
                yield json.loads(body), at
            if not found:
                await asyncio.sleep(0.02)

    async def advance(self, batch):
        with connect(self.path) as db:
            db.execute("BEGIN IMMEDIATE")
            for item in batch:
                outcome = item.outcome
                row = (item.broker_payload, os.getpid(), outcome.acked, outcome.failed, outcome.rejected)
                db.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?)", row)
            db.execute("COMMIT")

    async def dead_letter(self, item):
        with connect(self.path) as db:
            db.execute("INSERT INTO dead VALUES (?)", (item.broker_payload,))

    def get_event_identity(self, broker_payload):
        return str(broker_payload)


class FromQueue(BaseEventTrigger):
    """Fires for every message whose body has this kind, or for all."""

    def __init__(self, path, kind=None, **kwargs):
        super().__init__(**kwargs)
        self.path, self.kind = path, kind

    def serialize(self):
        return f"{type(self).__module__}.{type(self).__qualname__}", {"path": self.path, "kind": self.kind}

    def shared_stream_key(self):
        return ("queue", self.path)

    @classmethod
    def create_shared_stream_producer(cls, kwargs):
        return Queue(kwargs["path"])

    async def run(self):
        raise NotImplementedError("it reads through a shared stream")
        yield

    async def filter_shared_stream(self, shared_stream):
        async for message in shared_stream:
            if self.kind in (None, message.get("kind")):
                yield TriggerEvent(message)
'''

_TABLES = """
CREATE TABLE messages (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE commits (number INTEGER NOT NULL, pid INTEGER, acked INTEGER, failed INTEGER, rejected INTEGER);
CREATE TABLE opened (pid INTEGER, at INTEGER);
CREATE TABLE dead (number INTEGER);
"""


class DurableQueue:
    """The test's hand on the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._db() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_TABLES)

    def put(self, bodies: Iterable[str]) -> None:
        """Add messages, each a JSON text."""
        with self._db() as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO messages (body) VALUES (?)", [(body,) for body in bodies])
            db.execute("COMMIT")

    @property
    def committed(self) -> int:
        """How far the broker was told."""
        return int(self.rows("SELECT coalesce(max(number), 0) FROM commits")[0][0])

    def rows(self, statement: str) -> list[tuple[int, ...]]:
        with self._db() as db:
            return db.execute(statement).fetchall()

    @contextmanager
    def _db(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as db:
            yield db
