"""Looking after the database from the command line."""

import sqlite3
from datetime import UTC, datetime

from stannel.model.states import RunState

OLD = datetime(2020, 1, 1, tzinfo=UTC)


def test_an_upgrade_makes_the_database_and_can_be_repeated(stannel, home):
    for _ in range(2):
        assert "has version" in stannel("db", "upgrade").stderr
    assert (home / "stannel.db").exists()


def test_a_database_of_a_newer_version_is_refused(stannel, store, home):
    with sqlite3.connect(home / "stannel.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    for command in (("db", "upgrade"), ("dags", "list")):
        assert "The database has version 9999" in stannel(*command, code=1).stderr


def test_a_sound_database_passes_the_check(stannel, store):
    assert stannel.json("db", "check") == []
    assert "All is well" in stannel("db", "check").stderr


def test_a_contradiction_is_named_and_gives_exit_code_1(stannel, make_run, home):
    make_run()
    with sqlite3.connect(home / "stannel.db") as database:
        database.execute("UPDATE dag_run SET state = 'success'")
    database.close()
    [found] = stannel.json("db", "check", code=1)
    assert found == {"what": "a run has ended but has no end date", "count": 1}


def test_cleaning_deletes_only_what_ended_before_the_date(stannel, store, make_run):
    for number, moment in enumerate((OLD, datetime(2026, 11, 15, tzinfo=UTC))):
        run = make_run(run_id=f"run_{number}", logical_date=moment)
        store.runs.set_state(run, RunState.SUCCESS, now=moment)
    make_run(run_id="going", logical_date=datetime(2019, 1, 1, tzinfo=UTC))

    assert "1 runs ended before" in stannel("db", "clean", "--before", "2021-01-01", "--dry-run").stderr
    assert len(store.runs.latest()) == 3
    stannel("db", "clean", "--before", "2021-01-01", stdin="n\n", code=1)
    assert len(store.runs.latest()) == 3
    assert "1 runs deleted" in stannel("db", "clean", "--before", "2021-01-01", "--yes").stderr
    assert {run.run_id for run in store.runs.latest()} == {"run_1", "going"}


def test_cleaning_needs_a_date(stannel):
    stannel("db", "clean", code=2)
    assert "is no date" in stannel("db", "clean", "--before", "yesterday", code=2).stderr
