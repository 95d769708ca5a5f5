"""The engine's memory: every noun's verbs over one database."""

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from stannel.errors import StoreUnavailable
from stannel.store.assets import Assets
from stannel.store.attempts import Attempts
from stannel.store.callbacks import Callbacks
from stannel.store.dags import Dags
from stannel.store.database import Database
from stannel.store.entries import Connections, Variables
from stannel.store.event_queue import EventQueue
from stannel.store.events import Events
from stannel.store.leases import Leases
from stannel.store.pools import Pools
from stannel.store.questions import Questions
from stannel.store.runs import Runs
from stannel.store.signals import Listener
from stannel.store.sql import Tx
from stannel.store.sqlite import SqliteDatabase
from stannel.store.state_stores import StateKeeping, StateStores
from stannel.store.tasks import Tasks
from stannel.store.triggers import Triggers
from stannel.store.upkeep import Upkeep
from stannel.store.vault import Vault
from stannel.store.watchers import Watchers
from stannel.store.xcoms import XComs


class Store:
    """What is remembered, and the only way to it."""

    def __init__(
        self,
        database: Database,
        vault: Vault,
        *,
        states: StateKeeping | None = None,
        clears_state: bool = False,
        largest_state: int = 0,
    ) -> None:
        self.database = database
        self.dags = Dags(database, vault)
        self.runs = Runs(database)
        self.tasks = Tasks(database, self.dags, clears_state=clears_state)
        self.attempts = Attempts(database, self.dags, vault, clears_state=clears_state)
        self.triggers = Triggers(database, self.dags, vault, clears_state=clears_state)
        self.xcoms = XComs(database)
        # What the database keeps, and whoever keeps state: the same, unless a backend is configured.
        self.state_stores = StateStores(database)
        self.states: StateKeeping = states or self.state_stores
        self.largest_state = largest_state
        self.questions = Questions(database)
        self.pools = Pools(database)
        self.callbacks = Callbacks(database)
        self.variables = Variables(database, vault)
        self.connections = Connections(database, vault)
        self.assets = Assets(database)
        self.events = Events(database)
        self.event_queue = EventQueue(database)
        self.watchers = Watchers(database, vault)
        self.leases = Leases(database)
        self.upkeep = Upkeep(database)

    @property
    def address(self) -> str:
        return self.database.address

    def transaction(self) -> AbstractContextManager[Tx]:
        """All or nothing; returns only after the commit."""
        return self.database.transaction()

    def read(self) -> AbstractContextManager[Tx]:
        return self.database.read()

    def listen(self, *topics: str) -> Listener:
        """Be woken when one of these topics changes."""
        return self.database.listen(*topics)

    def close(self) -> None:
        self.database.close()


def connect(url: str, *, synchronous: str = "full", pool_size: int = 5) -> Database:
    """Reach the database behind an address; it is not looked into yet."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreUnavailable(url, "the address is not a database address") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreUnavailable(url, "SQLite needs a file, for several processes share it")
        return SqliteDatabase(Path(parsed.database).expanduser(), synchronous=synchronous)
    if backend == "postgresql":
        try:
            module: Any = importlib.import_module("stannel.store.postgres")
        except ImportError as error:
            raise StoreUnavailable(url, "its driver is missing; pip install 'stannel[postgres]'") from error
        database: Database = module.PostgresDatabase(url, pool_size=pool_size)
        return database
    raise StoreUnavailable(url, f"{backend} is not supported; use sqlite or postgresql")
