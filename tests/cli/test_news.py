"""What is worth a line on the screen."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.sample_dags import PLAIN

from stannel.cli.news import News
from stannel.errors import StoreUnavailable
from stannel.model.states import RunState
from stannel.store.dags import ParsedFile

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def news(store) -> News:
    return News(store)


def test_nothing_new_gives_no_lines(news):
    assert news.look() == []
    assert (news.dag_count, news.error_count) == (2, 0)


def test_what_ended_before_the_first_look_is_old(store, make_run):
    store.runs.set_state(make_run(), RunState.FAILED, now=NOW)
    assert News(store).look() == []


def test_a_run_that_ends_is_told_once(store, news, make_run):
    run = make_run(run_id="mine")
    assert news.look() == []
    store.runs.set_state(run, RunState.FAILED, now=NOW)
    assert news.look() == ["orders mine failed"]
    assert news.look() == []


def test_a_run_that_came_and_went_between_two_looks_is_told(store, make_run):
    make_run(run_id="earlier", logical_date=NOW - timedelta(days=1))
    news = News(store)
    store.runs.set_state(make_run(run_id="quick"), RunState.SUCCESS, now=NOW)
    assert news.look() == ["orders quick success"]


def test_the_very_first_run_is_told_even_if_it_ended_between_two_looks(store, news, make_run):
    store.runs.set_state(make_run(run_id="first"), RunState.SUCCESS, now=NOW)
    assert news.look() == ["orders first success"]


def test_many_runs_at_once_are_one_line_and_the_last(store, news, make_run):
    for number in range(9):
        run = make_run(run_id=f"run_{number}", logical_date=NOW + timedelta(days=number))
        store.runs.set_state(run, RunState.FAILED if number < 2 else RunState.SUCCESS, now=NOW)
    assert news.look() == ["9 runs ended, 2 of them failed", "orders run_8 success"]


def test_a_file_that_breaks_and_is_repaired_is_told(store, news):
    error = "Traceback (most recent call last):\n  ...\nNameError: name 'x' is not defined"
    store.dags.save_file(ParsedFile(path="plain.py", fingerprint="2", error=error), now=NOW)
    assert news.look() == ["import error in plain.py: NameError: name 'x' is not defined"]
    assert news.error_count == 1
    store.dags.save_file(ParsedFile(path="plain.py", fingerprint="3", dags=(PLAIN,)), now=NOW)
    assert news.look() == ["import error in plain.py is gone"]


def test_dags_that_come_and_go_are_told(store, news):
    other = msgspec.structs.replace(PLAIN, dag_id="other")
    store.dags.save_file(ParsedFile(path="other.py", fingerprint="1", dags=(other,)), now=NOW)
    assert news.look() == ["new DAG other"]
    store.dags.remove_file("other.py")
    assert news.look() == ["DAG other is gone"]


def test_a_store_that_goes_away_and_comes_back_is_told_once_each(store, news, make_run, monkeypatch):
    def fail(**_):
        raise StoreUnavailable("postgresql://me@db/x", "connection refused")

    with monkeypatch.context() as away:
        away.setattr(store.runs, "latest", fail)
        (line,) = news.look_again()
        assert line.startswith("The database is away: ")
        assert "connection refused" in line
        assert line.endswith("; trying again")
        assert news.look_again() == []
    store.runs.set_state(make_run(run_id="meanwhile"), RunState.SUCCESS, now=NOW)
    assert news.look_again() == ["The database is back", "orders meanwhile success"]
    assert news.look_again() == []
