"""SQLite as the store: one writing connection per process, transactions share commits, readers never wait."""

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from stannel.errors import DiskFull, StannelError, StoreReadOnly, StoreUnavailable
from stannel.store.signals import Listener, SignalFolder
from stannel.store.sql import SQLITE, Tx

# Beyond this the first to arrive would wait too long for its commit.
_GROUP_LIMIT = 64
_BUSY_SECONDS = 60.0


class _Group:
    """Transactions of several threads that are committed together."""

    def __init__(self) -> None:
        self.members = 0
        self.topics: set[str] = set()
        self.done = threading.Event()
        self.error: BaseException | None = None


class SqliteDatabase:
    """A database file in WAL mode, with a lock file beside it so that processes queue instead of meeting `busy`."""

    dialect = SQLITE

    def __init__(self, path: Path, *, synchronous: str = "full") -> None:
        # Resolved, so that whoever comes by another name still meets the same lock and the same listeners.
        self.path, self._synchronous = path.resolve(), synchronous
        self.address = f"sqlite:///{self.path}"
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_file = os.open(f"{self.path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._writer = self._connect()
            self._use_wal()
            self._signals = SignalFolder(self.path.with_name(f"{self.path.name}-signals"))
        self._turn = threading.Lock()
        self._counter = threading.Lock()
        self._waiting = 0
        self._group: _Group | None = None
        self._local = threading.local()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Tx]:
        """All or nothing. Returns only after the commit; an exception undoes what this block did and nothing else."""
        with self._errors():
            self._take_turn()
            try:
                group = self._group or self._begin()
                try:
                    with self._savepoint(group) as tx:
                        yield tx
                finally:
                    self._commit_unless_others_follow(group)
            finally:
                self._turn.release()
            group.done.wait()
            if group.error is not None:
                raise group.error

    @contextlib.contextmanager
    def read(self) -> Iterator[Tx]:
        """A consistent view of the store that waits for nobody and can change nothing."""
        with self._errors():
            reader = self._reader()
            reader.execute("BEGIN")
            try:
                yield Tx(reader.cursor(), SQLITE)
            finally:
                reader.execute("COMMIT")

    def listen(self, *topics: str) -> Listener:
        return self._signals.listen(*topics)

    def wake(self, *topics: str) -> None:
        self._signals.wake(set(topics))

    def close(self) -> None:
        """Close what this thread uses. The readers of other threads may be in use; they end with their threads."""
        if (reader := getattr(self._local, "reader", None)) is not None:
            reader.close()
        with self._turn:
            self._writer.close()
            os.close(self._lock_file)
            self._signals.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _use_wal(self) -> None:
        # SQLite does not wait when two programs change the mode of a new file at once: one of them would meet `busy`.
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            self._writer.execute("PRAGMA journal_mode = WAL")
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _reader(self) -> sqlite3.Connection:
        reader: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._connect()
            reader.execute("PRAGMA query_only = ON")
        return reader

    def _take_turn(self) -> None:
        with self._counter:
            self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            with self._counter:
                self._waiting -= 1

    def _begin(self) -> _Group:
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except BaseException:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)
            raise
        self._group = _Group()
        return self._group

    @contextlib.contextmanager
    def _savepoint(self, group: _Group) -> Iterator[Tx]:
        tx = Tx(self._writer.cursor(), SQLITE)
        self._writer.execute("SAVEPOINT verb")
        try:
            yield tx
        except BaseException as error:
            # A full disk makes SQLite undo the whole transaction by itself, and with it the work of the others.
            if not self._writer.in_transaction:
                group.error = error
                raise
            self._writer.execute("ROLLBACK TO verb")
            self._writer.execute("RELEASE verb")
            raise
        self._writer.execute("RELEASE verb")
        group.members += 1
        group.topics |= tx.topics

    def _commit_unless_others_follow(self, group: _Group) -> None:
        if self._waiting and group.members < _GROUP_LIMIT and group.error is None:
            return
        self._group = None
        try:
            if group.error is None:
                self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            group.error = error
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)
            group.done.set()
        if group.error is None and group.topics:
            # It is stored by now: a wake-up that cannot be sent must not look like a failed commit.
            with contextlib.suppress(OSError):
                self._signals.wake(group.topics)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StannelError:
        text = str(error)
        if "disk is full" in text or "No space left" in text:
            return DiskFull(str(self.path.parent))
        if "readonly" in text or "Read-only" in text or isinstance(error, PermissionError):
            return StoreReadOnly(self.address)
        return StoreUnavailable(self.address, text)
