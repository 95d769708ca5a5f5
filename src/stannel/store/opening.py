"""Opening the store: an empty database gets its tables, an old one is upgraded on request, a newer one is refused."""

import importlib
from typing import Any

from sqlalchemy import text
from sqlalchemy.schema import CreateIndex, CreateTable

from stannel.errors import StoreOutdated, StoreTooNew
from stannel.settings import Settings
from stannel.store.database import Database
from stannel.store.pools import DEFAULT_POOL
from stannel.store.schema import REVISIONS, metadata, pool
from stannel.store.sql import Duty, Tx, insert_into
from stannel.store.state_backend import state_keeping
from stannel.store.store import Store, connect
from stannel.store.vault import vault_for

_HEAD = REVISIONS[-1]
_STAMP = text("INSERT INTO alembic_version (version_num) VALUES (:version)")
_VERSION_TABLE = text(
    "CREATE TABLE alembic_version"
    " (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
_FOUND = text("SELECT version_num FROM alembic_version")
_HAS_TABLE_SQLITE = text("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")
# Not `to_regclass`: it may answer from memory that the table is missing when another program has just made it.
_HAS_TABLE_POSTGRES = text(
    "SELECT 1 FROM pg_tables WHERE tablename = 'alembic_version' AND schemaname = ANY(current_schemas(false))"
)
_NEW_POOL = insert_into(pool, "name", "slots", "description")


def open_store(settings: Settings, *, upgrade: bool = False) -> Store:
    """The store of these settings, ready for use. An empty database gets tables; an old one is refused, or upgraded."""
    database = connect(
        settings.database.sql_alchemy_conn.reveal(),
        synchronous=settings.database.sqlite_synchronous,
        pool_size=settings.database.pool_size,
    )
    try:
        prepare(database, default_slots=settings.core.default_pool_task_slot_count, upgrade=upgrade)
        return Store(
            database,
            vault_for(settings.home, settings.core.fernet_key.reveal()),
            states=state_keeping(settings, database),
            clears_state=settings.state_store.clear_on_success,
            largest_state=settings.state_store.max_value_storage_bytes,
        )
    except BaseException:
        database.close()
        raise


def prepare(database: Database, *, default_slots: int = 128, upgrade: bool = False) -> None:
    """Leave the database at the version this Stannel needs, or say why it cannot be."""
    found = version_of(database)
    if found is None:
        found = _create(database, default_slots)
    if found == _HEAD:
        return
    if found not in REVISIONS:
        raise StoreTooNew(found, _HEAD)
    if not upgrade:
        raise StoreOutdated(found, _HEAD)
    migrate(database)


def version_of(database: Database) -> str | None:
    """The version stamped in the database. None: it is empty."""
    with database.read() as tx:
        return _version(tx)


def migrate(database: Database) -> None:
    """Run the migrations between the database's version and ours."""
    migrations: Any = importlib.import_module("stannel.store.migrate")
    migrations.upgrade(database.address)


def _version(tx: Tx) -> str | None:
    row = tx.one(_HAS_TABLE_SQLITE if tx.is_sqlite else _HAS_TABLE_POSTGRES)
    if row is None:
        return None
    stamped = tx.one(_FOUND)
    return None if stamped is None else str(stamped[0])


def _create(database: Database, default_slots: int) -> str:
    """Make all tables at once, which is much faster than replaying every migration."""
    with database.transaction() as tx:
        tx.alone(Duty.CREATE_TABLES)
        if (found := _version(tx)) is not None:
            return found
        for table in metadata.sorted_tables:
            tx.change(CreateTable(table))
            for index in sorted(table.indexes, key=lambda one: str(one.name)):
                tx.change(CreateIndex(index))
        tx.change(_VERSION_TABLE)
        tx.run(_STAMP, version=_HEAD)
        tx.run(_NEW_POOL, name=DEFAULT_POOL, slots=default_slots, description="Where tasks go that name no pool")
    return _HEAD
