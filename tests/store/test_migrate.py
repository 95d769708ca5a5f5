"""Migrations lead to exactly the schema that an empty database gets at once."""

import re
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from store.world import open_store

from stannel.store import connect, migrate
from stannel.store.opening import prepare, version_of
from stannel.store.schema import REVISIONS

ROOT = Path(__file__).parents[2]

_POSTGRES_QUESTIONS = (
    """SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default, is_identity
    FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1",
)


def shape(address: str) -> object:
    """Everything a database says about its tables, keys and indexes."""
    if address.startswith("sqlite"):
        connection = sqlite3.connect(address.removeprefix("sqlite:///"))
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        connection.close()
        parts = {name: re.sub(r"\s+", " ", sql).split(",") for name, sql in rows}
        return {name: sorted(part.strip("() ").replace("( ", "(") for part in found) for name, found in parts.items()}
    with psycopg.connect(address) as connection:
        return [connection.execute(question).fetchall() for question in _POSTGRES_QUESTIONS]


def pools(address: str) -> list[tuple[str, int, str]]:
    store = open_store(address)
    found = [(one.name, one.slots, one.description) for one in store.pools.all()]
    store.close()
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def addresses(request, tmp_path):
    """Two empty databases of one kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
        return
    server = request.getfixturevalue("postgres_server")
    names = [server.create_database(), server.create_database()]
    yield tuple(server.url(name) for name in names)
    for name in names:
        server.drop_database(name)


def test_every_migration_is_known_by_name_and_in_order():
    assert migrate.revisions() == list(REVISIONS)


def test_migrations_end_at_the_schema_of_a_new_database(addresses):
    created, migrated = addresses
    open_store(created).close()
    migrate.upgrade(migrated)
    assert shape(migrated) == shape(created)
    assert pools(migrated) == pools(created)


def test_a_migrated_database_opens_as_it_is(addresses):
    migrate.upgrade(addresses[0])
    database = connect(addresses[0])
    assert version_of(database) == REVISIONS[-1]
    prepare(database)
    database.close()


def test_an_upgrade_of_an_upgraded_database_changes_nothing(addresses):
    open_store(addresses[0]).close()
    before = shape(addresses[0])
    migrate.upgrade(addresses[0])
    assert shape(addresses[0]) == before


def test_an_upgrade_that_fails_leaves_nothing_half_done(addresses):
    address, _ = addresses
    database = connect(address)
    with database.transaction() as tx:
        # The last table of the first migration is in the way.
        tx.change(text("CREATE TABLE connection (x INTEGER)"))
    database.close()
    before = shape(address)
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(address)
    assert shape(address) == before


def test_the_migrations_are_in_the_package_that_people_install(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    folder = ROOT / "src" / "stannel" / "store" / "migrations"
    files = [*folder.rglob("*.py"), *folder.rglob("*.mako")]
    wanted = {file.relative_to(ROOT / "src").as_posix() for file in files}
    assert {"stannel/store/migrations/script.py.mako", "stannel/store/migrations/env.py"} <= wanted
    assert wanted <= inside
