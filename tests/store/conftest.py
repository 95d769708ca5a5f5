"""The same store on SQLite and on PostgreSQL; every test that asks for one runs on both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from store.world import World, note_moves, open_store
from support.postgres import PostgresServer

from stannel.store import Store
from stannel.store.schema import metadata


@pytest.fixture(scope="session")
def prepared_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with all tables, emptied for each test: much faster than a new one."""
    name = postgres_server.create_database()
    store = open_store(postgres_server.url(name))
    note_moves(store)
    store.close()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stannel.db"


@pytest.fixture
def sqlite_store(sqlite_address: str) -> Iterator[Store]:
    # Nothing here survives a power cut anyway, and not waiting for the disk makes the suite twice as fast.
    store = open_store(sqlite_address, synchronous="off")
    note_moves(store)
    yield store
    store.close()


@pytest.fixture
def postgres_store(prepared_postgres: str) -> Iterator[Store]:
    store = open_store(prepared_postgres)
    with store.transaction() as tx:
        for name in ["moves", *(table.name for table in reversed(metadata.sorted_tables))]:
            tx.change(text(f'DELETE FROM "{name}"'))
        tx.change(text("INSERT INTO pool (name, slots) VALUES ('default_pool', 128)"))
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store, once on each kind of database."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def world(store: Store) -> Iterator[World]:
    """A store with a scheduler and workers played by hand. No verb may make a move that the table does not have."""
    world = World(store)
    yield world
    assert world.forbidden_moves() == []
