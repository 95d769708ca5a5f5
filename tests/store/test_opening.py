"""An empty database gets its tables once; an old one waits for its upgrade, and a newer one is refused."""

import pytest
from sqlalchemy import text
from store.children import child, open_empty
from store.world import World, open_store

from stannel.errors import StoreOutdated, StoreTooNew, StoreUnavailable
from stannel.store import connect, opening
from stannel.store.opening import prepare, version_of
from stannel.store.schema import REVISIONS


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request):
    """The address of a database without tables."""
    return request.getfixturevalue({"sqlite": "sqlite_address", "postgres": "postgres_url"}[request.param])


def stamp(address: str, version: str) -> None:
    database = connect(address)
    with database.transaction() as tx:
        tx.run(text("UPDATE alembic_version SET version_num = :version"), version=version)
    database.close()


def test_an_empty_database_gets_its_tables_and_its_default_pool(empty):
    database = connect(empty)
    assert version_of(database) is None
    prepare(database, default_slots=5)
    assert version_of(database) == REVISIONS[-1]
    prepare(database, default_slots=9)
    database.close()
    store = open_store(empty)
    assert [(one.name, one.slots) for one in store.pools.all()] == [("default_pool", 5)]
    store.close()


def test_processes_that_meet_an_empty_database_at_once_all_succeed(empty):
    with child(open_empty, empty) as one, child(open_empty, empty) as two, child(open_empty, empty) as three:
        children = (one, two, three)
        assert [each.hear() for each in children] == ["ready"] * 3
        for each in children:
            each.tell()
        assert [each.hear() for each in children] == [["default_pool"]] * 3


def test_a_database_of_a_newer_stannel_is_refused_and_left_alone(empty):
    open_store(empty).close()
    stamp(empty, "9999")
    database = connect(empty)
    for upgrade in (False, True):
        with pytest.raises(StoreTooNew, match="9999"):
            prepare(database, upgrade=upgrade)
    assert version_of(database) == "9999"
    database.close()


def test_a_database_of_an_older_stannel_says_how_to_upgrade_it(empty, monkeypatch):
    open_store(empty).close()
    monkeypatch.setattr(opening, "REVISIONS", (*REVISIONS, "9999"))
    monkeypatch.setattr(opening, "_HEAD", "9999")
    database = connect(empty)
    with pytest.raises(StoreOutdated, match="stannel db upgrade"):
        prepare(database)
    assert version_of(database) == REVISIONS[-1]
    database.close()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense", "not a database address"),
        ("mysql://x/y", "use sqlite or postgresql"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:////proc/no-such-folder/x.db", "cannot be used"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_the_reason(address, reason):
    with pytest.raises(StoreUnavailable, match=reason):
        connect(address)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_text("this is no database at all, but it is long enough to have a header" * 30)
    with pytest.raises(StoreUnavailable, match="not a database"):
        connect(f"sqlite:///{tmp_path}/x.db")


def test_a_database_reached_through_a_link_is_the_same_store(tmp_path):
    real = World(open_store(f"sqlite:///{tmp_path}/real.db"))
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    linked = World(open_store(f"sqlite:///{tmp_path}/link.db"))
    listener = real.store.listen("scheduler")
    linked.dag("a")
    assert listener.drain()
    assert real.store.dags.get("d").is_active
    listener.close()
    real.store.close()
    linked.store.close()
