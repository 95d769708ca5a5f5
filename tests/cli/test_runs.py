"""Runs from the command line."""

from datetime import UTC, datetime, timedelta

from support.sample_dags import PLAIN

from stannel.model.states import RunState

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def test_runs_are_listed_newest_first_and_can_be_chosen(stannel, store, make_run):
    make_run(run_id="one")
    make_run(PLAIN, run_id="two")
    failed = make_run(run_id="three", logical_date=NOW + timedelta(days=1))
    store.runs.set_state(failed, RunState.FAILED, now=NOW)
    assert [row["run_id"] for row in stannel.json("runs", "list")] == ["three", "two", "one"]
    assert [row["run_id"] for row in stannel.json("runs", "list", "--dag", "plain")] == ["two"]
    assert [row["run_id"] for row in stannel.json("runs", "list", "--state", "failed")] == ["three"]
    assert [row["run_id"] for row in stannel.json("runs", "list", "--limit", "1")] == ["three"]
    stannel("runs", "list", "--dag", "plian", code=1)


def test_a_run_is_shown_with_its_tasks_and_what_it_waits_for(stannel, make_run):
    make_run()
    row = stannel.json("runs", "show", "orders")
    assert row["waiting_for"].startswith("no scheduler is at work")
    assert [task["task"] for task in row["tasks"]] == ["extract", "transform", "load"]
    assert "no scheduler is at work" in stannel("runs", "show", "orders").stdout


def test_a_user_may_end_a_run(stannel, store, make_run):
    make_run()
    stannel("runs", "state", "orders", "first", "--set", "failed")
    assert store.runs.get("orders", "first").state is RunState.FAILED
    assert stannel("runs", "state", "orders", code=1).stdout == "failed\n"
    stannel("runs", "state", "orders", "--set", "success")
    assert stannel("runs", "state", "orders").stdout == "success\n"


def test_a_run_is_deleted_only_after_a_yes(stannel, store, make_run):
    make_run()
    stannel("runs", "delete", "orders", "first", stdin="n\n", code=1)
    assert len(store.runs.latest()) == 1
    stannel("runs", "delete", "orders", "first", "--yes")
    assert store.runs.latest() == []
    assert "There is no run of 'orders' 'first'" in stannel("runs", "delete", "orders", "first", "-y", code=1).stderr
