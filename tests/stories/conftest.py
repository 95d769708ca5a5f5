"""Stories run a whole engine, once on SQLite and once on a real PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stannel.testing import Engine


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The address of an empty database. None: the SQLite file of the engine's home."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def engine(tmp_path: Path, database: str | None) -> Iterator[Engine]:
    """An engine that is not started yet."""
    with Engine(tmp_path, database=database) as engine:
        yield engine


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine on SQLite that is not started yet, for what does not depend on the database."""
    with Engine(tmp_path) as engine:
        yield engine
