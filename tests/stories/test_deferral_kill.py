"""Only a person's kill runs a trigger's `on_kill`: once, with its full time, and before its `cleanup`."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from stories.deferral import JOBS, engine_with, notes, open_gate, wait_for_log

from stannel.model.run import Run
from stannel.model.states import RunState, TaskState
from stannel.testing import Engine


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    settings = {"STANNEL__TRIGGERER__ON_KILL_TIMEOUT": "5"}
    with engine_with(request, tmp_path_factory.mktemp("kills"), {"jobs.py": JOBS}, settings) as engine:
        yield engine


def said(engine: Engine, run: Run) -> list[str]:
    """What the run's trigger wrote down, in order."""
    return [line.split()[0] for line in notes(engine) if line.endswith(f" {run.run_id}")]


def wait_for_words(engine: Engine, run: Run, *words: str) -> None:
    engine.wait_until(
        lambda: said(engine, run) == list(words), seconds=30, what=f"{run.run_id} said other things than {words}"
    )


def mark(state: TaskState) -> Callable[[Engine, Run], None]:
    def act(engine: Engine, run: Run) -> None:
        engine.store.tasks.set_state(run, [engine.tasks(run)["job"].pk], state, now=datetime.now(UTC))

    return act


def clear(engine: Engine, run: Run) -> None:
    engine.store.tasks.clear(run, [engine.tasks(run)["job"].pk], now=datetime.now(UTC))


def cancel(engine: Engine, run: Run) -> None:
    [waited_for] = engine.triggers(run)
    assert engine.store.triggers.cancel(waited_for.id, now=datetime.now(UTC))


def end_run(engine: Engine, run: Run) -> None:
    engine.store.runs.set_state(run, RunState.FAILED, now=datetime.now(UTC))


def delete_run(engine: Engine, run: Run) -> None:
    engine.store.runs.delete(run)


ACTIONS: dict[str, tuple[Callable[[Engine, Run], Any], str | None]] = {
    "mark failed": (mark(TaskState.FAILED), "failed"),
    "mark success": (mark(TaskState.SUCCESS), "success"),
    "mark skipped": (mark(TaskState.SKIPPED), "skipped"),
    "cancel its trigger": (cancel, "failed"),
    "end its run": (end_run, None),
    "delete its run": (delete_run, None),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_persons_verdict_runs_on_kill_once_with_its_full_time(engine: Engine, action: str) -> None:
    act, state = ACTIONS[action]
    run = engine.trigger("jobs", run_id=f"{action.replace(' ', '-')}")
    wait_for_words(engine, run, "run")
    act(engine, run)
    wait_for_words(engine, run, "run", "killing", "killed", "cleanup")
    if state is not None:
        assert engine.states(run)["job"] == state
    engine.wait_until(lambda: not engine.triggers(run), seconds=10, what="something of the trigger stayed")


def test_a_cleared_task_waits_anew_and_the_old_wait_is_killed(engine: Engine) -> None:
    run = engine.trigger("jobs", run_id="clear")
    wait_for_words(engine, run, "run")
    clear(engine, run)

    def waits_anew() -> bool:
        return sorted(said(engine, run)) == ["cleanup", "killed", "killing", "run", "run"]

    engine.wait_until(waits_anew, seconds=30, what="the cleared task did not wait anew")
    open_gate(engine, run, "go")
    assert engine.wait_for_run(run).state == "success"
    engine.wait_until(lambda: said(engine, run).count("cleanup") == 2, seconds=10, what="no second cleanup")
    assert said(engine, run).count("killing") == 1


def test_an_event_or_a_timeout_runs_no_on_kill(engine: Engine) -> None:
    fired = engine.trigger("jobs", run_id="fired")
    overdue = engine.trigger("jobs", run_id="overdue", conf={"timeout": 0.5})
    open_gate(engine, fired, "go")
    assert engine.wait_for_run(fired).state == "success"
    assert engine.wait_for_run(overdue).state == "failed"
    for run in (fired, overdue):
        wait_for_words(engine, run, "run", "cleanup")
    assert "timeout" in wait_for_log(engine, overdue, "job", "Trigger cancelled")["event"]
