"""Tasks from the command line, and what each of them waits for."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from support.sample_dags import CHAIN

from stannel.cli.logs import path_of
from stannel.model.run import Outcome, Run
from stannel.model.states import RunState, TaskState
from stannel.scheduler.loop import Scheduler
from stannel.settings import load_settings
from stannel.store.dags import ParsedFile

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def scheduler(store):
    """A scheduler's lease, without a scheduler."""
    store.leases.take("scheduler-1", "scheduler", hostname="here", pid=1, now=datetime.now(UTC), seconds=600)


@pytest.fixture
def queued(store, home, make_run) -> Run:
    """A run of three tasks in a row, started: the first waits for a worker."""
    store.dags.save_file(ParsedFile(path=CHAIN.fileloc, fingerprint="1", dags=(CHAIN,)), now=NOW)
    run = make_run(CHAIN)
    Scheduler(store, load_settings(home, {}), clock=lambda: NOW).tick()
    return run


def whys(stannel, dag_id: str) -> dict[str, str]:
    return {row["task"]: row["why"] for row in stannel.json("tasks", "list", dag_id, "--run", "latest")}


def test_the_tasks_of_a_dag_are_listed_in_the_authors_order(stannel, store):
    rows = stannel.json("tasks", "list", "orders")
    assert [(row["task_id"], row["operator"], row["upstream"]) for row in rows] == [
        ("extract", "PythonOperator", []),
        ("transform", "PythonOperator", ["extract"]),
        ("load", "BashOperator", ["transform"]),
    ]


def test_without_a_scheduler_every_task_says_so(stannel, make_run):
    make_run()
    assert whys(stannel, "orders")["extract"].startswith("no scheduler is at work")


def test_a_task_of_a_paused_dag_says_so(stannel, make_run, scheduler):
    make_run()
    stannel("dags", "pause", "orders")
    assert whys(stannel, "orders")["extract"] == "its DAG is paused; go on with: stannel dags unpause orders"


def test_a_run_that_is_to_start_later_says_when(stannel, store, make_run, scheduler):
    row = stannel.json("dags", "trigger", "plain", "--run-after", "2999-01-01")
    assert stannel.json("runs", "show", "plain", row["run_id"])["waiting_for"] == "it starts at 2999-01-01 00:00:00Z"


def test_a_scheduler_that_cannot_go_on_is_named_as_the_reason(stannel, store, make_run, scheduler):
    make_run()
    now = datetime.now(UTC)
    store.leases.renew("scheduler-1", now=now, seconds=600, detail={"trouble": "the disk is full"})
    assert whys(stannel, "orders")["extract"] == "the scheduler cannot go on: the disk is full"


def test_a_task_names_the_task_it_waits_for(stannel, queued, scheduler):
    assert whys(stannel, "chain")["load"].startswith("it waits for transform")
    assert stannel("tasks", "state", "chain", "load").stdout.startswith("none (it waits for transform")


def test_a_queued_task_without_a_worker_says_so(stannel, store, queued, scheduler):
    assert whys(stannel, "chain")["extract"].startswith("no worker is at work")
    store.leases.take("worker-1", "worker", hostname="here", pid=1, now=datetime.now(UTC), seconds=600)
    assert whys(stannel, "chain")["extract"] == "it waits for a worker to take it"


def test_a_task_that_is_tried_again_says_when_and_why(stannel, store, queued, scheduler):
    [attempt] = store.attempts.claim("worker-1", most=1, hostname="here", now=NOW)
    outcome = Outcome(
        state=TaskState.UP_FOR_RETRY, end_date=NOW, retry_at=NOW + timedelta(minutes=5), reason="ValueError: oops"
    )
    store.attempts.finish([(attempt, outcome)])
    assert whys(stannel, "chain")["extract"] == "it is tried again at 2026-11-15 12:05:00Z (ValueError: oops)"


def test_a_failed_task_is_exit_code_1(stannel, store, make_run):
    run = make_run()
    stannel("tasks", "state", "orders", "extract", "--set", "failed")
    assert stannel("tasks", "state", "orders", "extract", code=1).stdout.startswith("failed")
    assert run.state is RunState.QUEUED


def test_an_unknown_task_gets_a_suggestion(stannel, make_run):
    make_run()
    assert "did you mean extract?" in stannel("tasks", "state", "orders", "extrakt", code=1).stderr
    assert "did you mean extract?" in stannel("tasks", "clear", "orders", "extrakt", "-y", code=1).stderr
    assert "There is no instance" in stannel("tasks", "state", "orders", "load", "--map-index", "3", code=1).stderr


@pytest.mark.parametrize(
    ("args", "cleared"),
    [
        ((), {"extract", "transform", "load"}),
        (("transform",), {"transform"}),
        (("transform", "--downstream"), {"transform", "load"}),
        (("transform", "--upstream"), {"extract", "transform"}),
        (("extract", "--downstream", "--only-failed"), {"load"}),
    ],
)
def test_clearing_takes_what_was_asked_for(stannel, store, make_run, args, cleared):
    run = make_run()
    end(store, run, extract="success", transform="success", load="failed")
    stannel("tasks", "clear", "orders", *args, "--yes")
    assert {one.task_id for one in store.tasks.of_run(run) if one.state is TaskState.NONE} == cleared


def test_clearing_asks_first(stannel, store, make_run):
    run = make_run()
    end(store, run, extract="success", transform="success", load="failed")
    result = stannel("tasks", "clear", "orders", "load", stdin="n\n", code=1)
    assert "load (failed)" in result.stderr
    assert all(one.state is not TaskState.NONE for one in store.tasks.of_run(run))


def test_a_log_is_shown_to_people_and_as_it_is_to_programs(stannel, store, queued, home):
    lines = [
        {
            "timestamp": "2026-11-15T12:00:01.500000+00:00",
            "level": "info",
            "logger": "task",
            "event": "hello",
            "rows": 3,
        },
        {
            "timestamp": "2026-11-15T12:00:02+00:00",
            "level": "error",
            "event": "bad",
            "exception": "Traceback\nValueError",
        },
    ]
    file = log_file(home, store, queued, "extract")
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + "half a li")
    out = stannel("tasks", "logs", "chain", "extract").stdout
    assert out == "12:00:01.500 INFO     hello  rows=3\n12:00:02.000 ERROR    bad\nTraceback\nValueError\n"
    raw = stannel("tasks", "logs", "chain", "extract", "-o", "json").stdout
    assert [json.loads(line) for line in raw.splitlines()] == lines


def test_a_task_that_has_not_started_has_no_log_and_says_why(stannel, make_run):
    make_run()
    result = stannel("tasks", "logs", "orders", "extract", code=1)
    assert "'extract' has not started yet: no scheduler is at work" in result.stderr


def test_a_log_that_is_elsewhere_is_refused_with_its_place(stannel, store, queued, home):
    result = stannel("tasks", "logs", "chain", "extract", code=1)
    assert str(log_file(home, store, queued, "extract")) in result.stderr


def test_a_followed_log_ends_with_the_task(stannel, store, queued, home):
    [attempt] = store.attempts.claim("worker-1", most=1, hostname="here", now=NOW)
    file = log_file(home, store, queued, "extract")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"timestamp": "2026-11-15T12:00:01+00:00", "level": "info", "event": "the end"}) + "\n")
    store.attempts.finish([(attempt, Outcome(state=TaskState.SUCCESS, end_date=NOW))])
    assert "the end" in stannel("tasks", "logs", "chain", "extract", "--follow").stdout


def log_file(home, store, run, task_id):
    instance = next(one for one in store.tasks.of_run(run) if one.task_id == task_id)
    return path_of(load_settings(home, {}).logging.base_log_folder, run, instance, 1)


def end(store, run, **states):
    for one in store.tasks.of_run(run):
        assert store.tasks.set_state(run, [one.pk], TaskState(states[one.task_id]), now=NOW)
