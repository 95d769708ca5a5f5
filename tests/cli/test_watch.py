"""A run on the screen."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from stannel.cli.watch import picture
from stannel.model.run import Run, RunType, TaskInstance
from stannel.model.states import RunState, TaskState

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
RUN = Run(
    pk=1, dag_id="orders", run_id="r", run_type=RunType.MANUAL, state=RunState.RUNNING, version="v", run_after=NOW
)


def instance(task_id: str, state: str, map_index: int = -1) -> TaskInstance:
    return TaskInstance(
        pk=1, run_pk=1, dag_id="orders", run_id="r", task_id=task_id, state=TaskState(state), map_index=map_index
    )


def drawn(instances: list[TaskInstance], why: str | None = None) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(picture(RUN, instances, why))
    console.file.close()
    return console.export_text()


def test_the_picture_counts_what_is_done_and_names_what_runs_and_what_failed():
    text = drawn(
        [
            instance("extract", "success"),
            instance("double", "running", 0),
            instance("double", "running", 1),
            instance("load", "failed"),
            instance("report", "upstream_failed"),
            instance("patient", "deferred"),
            instance("later", "none"),
        ]
    )
    assert "orders running" in text
    assert "3/7" in text
    assert "running: double[0], double[1]" in text
    assert "failed: load, report" in text
    assert "deferred: patient" in text
    assert "later" not in text


def test_the_picture_names_only_some_of_many():
    text = drawn([instance("t", "running", index) for index in range(9)])
    assert "t[5] and 3 more" in text
    assert "t[6]" not in text


def test_the_picture_says_what_is_waited_for():
    assert "waiting: no scheduler is at work" in drawn([instance("a", "none")], "no scheduler is at work")


def test_watching_a_run_that_ended_tells_how_and_ends_at_once(stannel, store, make_run, capsys):
    from stannel.cli.watch import Watching
    from stannel.settings import load_settings

    run = make_run(run_id="done")
    for one in store.tasks.of_run(run):
        store.tasks.set_state(run, [one.pk], TaskState.SUCCESS, now=NOW)
    store.runs.set_state(run, RunState.SUCCESS, now=NOW + timedelta(seconds=5))
    ended = Watching(store, load_settings(stannel.home, {})).watch(run)
    assert ended.state is RunState.SUCCESS
    assert "The run 'done' succeeded" in capsys.readouterr().err


@pytest.mark.parametrize("paused", [True, False])
def test_a_paused_dag_is_what_a_watched_run_waits_for(stannel, store, paused):
    if paused:
        stannel("dags", "pause", "plain")
    result = stannel("dags", "trigger", "plain", "--wait", "--timeout", "2", code=1)
    assert ("waiting: its DAG is paused" in result.stderr) is paused
    assert ("will not start until: stannel dags unpause plain" in result.stderr) is paused
