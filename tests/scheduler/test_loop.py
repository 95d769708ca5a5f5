"""The scheduler as a whole, with a clock of the test's own: what happens on which tick."""

import threading
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.model.dag import Mapping, MapSource, TriggerRule
from stannel.model.moments import to_micros
from stannel.model.plan import RunPlan
from stannel.model.run import Outcome
from stannel.model.states import RunState, TaskState
from stannel.scheduler import advance_runs
from stannel.scheduler.graph import Graph
from stannel.scheduler.plan import plan_run
from stannel.store.database import SCHEDULER


def test_a_run_goes_from_task_to_task_and_succeeds(stage: Stage) -> None:
    stage.dag(task("a"), task("b", "a"), task("c", "b"))
    run = stage.trigger()
    for expected in ("a", "b", "c"):
        stage.tick()
        assert stage.work() == [expected]
    stage.tick()
    assert stage.run(run).state is RunState.SUCCESS


def test_a_failed_task_fails_what_needs_it_and_the_run(stage: Stage) -> None:
    stage.dag(task("a"), task("b", "a"), task("anyway", "a", trigger_rule=TriggerRule.ALL_DONE))
    run = stage.trigger()
    stage.tick()
    stage.work(TaskState.FAILED)
    stage.tick()
    assert stage.work() == ["anyway"]
    stage.tick()
    assert stage.states(run) == {"a": "failed", "b": "upstream_failed", "anyway": "success"}
    assert stage.run(run).state is RunState.FAILED


def test_a_retry_waits_for_its_moment_and_the_scheduler_sleeps_until_then(stage: Stage) -> None:
    stage.dag(task("a", retries=1))
    run = stage.trigger()
    stage.tick()
    first = stage.claim()["a"]
    stage.end(first, TaskState.UP_FOR_RETRY, retry_at=stage.now.replace(second=1))
    sleep = stage.tick(seconds=0.5)
    assert stage.claim() == {}
    assert sleep == pytest.approx(0.5)
    stage.tick(seconds=0.6)
    again = stage.claim()["a"]
    assert (first.try_number, again.try_number) == (1, 2)
    stage.end(again)
    stage.tick()
    assert stage.run(run).state is RunState.SUCCESS


def test_a_paused_dag_keeps_what_is_due_without_keeping_the_scheduler_awake(stage: Stage) -> None:
    stage.dag(task("a", retries=1))
    stage.trigger()
    stage.tick()
    stage.end(stage.claim()["a"], TaskState.UP_FOR_RETRY, retry_at=stage.now)
    stage.store.dags.pause("d", paused=True)
    assert stage.tick(seconds=10) > 0
    assert stage.claim() == {}
    stage.store.dags.pause("d", paused=False)
    stage.tick()
    assert list(stage.claim()) == ["a"]


def test_a_mapped_task_gets_as_many_instances_as_its_upstream_returned(stage: Stage) -> None:
    stage.dag(
        task("numbers"),
        task("each", "numbers", mapping=Mapping((MapSource("x", task_id="numbers"),))),
        task("sum", "each"),
    )
    run = stage.trigger()
    stage.tick()
    numbers = stage.claim()["numbers"]
    row = {"run_pk": run.pk, "task_id": "numbers", "map_index": -1, "key": "return_value", "value": "[1,2,3]"}
    stage.store.xcoms.put([{**row, "length": 3, "created_at": to_micros(stage.now)}])
    stage.end(numbers)
    stage.tick()
    assert stage.work() == ["each[0]", "each[1]", "each[2]"]
    stage.tick()
    assert stage.work() == ["sum"]
    stage.tick()
    assert stage.run(run).state is RunState.SUCCESS


def test_an_attempt_is_rescued_when_its_worker_falls_silent(stage: Stage) -> None:
    stage.dag(task("a", retries=1))
    run = stage.trigger()
    stage.tick()
    lost = stage.claim()["a"]
    stage.tick(seconds=2.9)
    assert stage.states(run) == {"a": "running"}
    stage.tick(seconds=0.2)
    assert stage.states(run) == {"a": "up_for_retry"}
    assert stage.store.attempts.finish([(lost, _success(stage))]) == [False]
    stage.renew_worker(1000)
    stage.tick(seconds=600)
    stage.end(stage.claim()["a"])
    stage.tick()
    assert stage.run(run).state is RunState.SUCCESS


def test_an_attempt_without_retries_fails_with_its_worker(stage: Stage) -> None:
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    stage.claim()
    stage.store.leases.end("worker")
    stage.tick()
    stage.tick()
    assert stage.run(run).state is RunState.FAILED
    assert "worker" in (stage.store.tasks.of_run(run)[0].note or "")


def test_a_scheduler_that_slept_itself_gives_workers_time_to_show_themselves(stage: Stage) -> None:
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    stage.claim()
    stage.tick(hours=8)
    assert stage.states(run) == {"a": "running"}
    stage.renew_worker()
    stage.tick(seconds=2)
    stage.renew_worker()
    stage.tick(seconds=2)
    assert stage.states(run) == {"a": "running"}
    stage.tick(seconds=2.5)
    stage.tick(seconds=1)
    assert stage.states(run) == {"a": "failed"}


def test_an_attempt_that_its_worker_gave_back_is_taken_up_though_the_worker_lives(stage: Stage) -> None:
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    lost = stage.claim()["a"]
    stage.store.attempts.disown([lost.attempt_id])
    stage.tick()
    assert stage.states(run) == {"a": "failed"}
    assert "lost it" in (stage.store.tasks.of_run(run)[0].note or "")


def test_depends_on_past_waits_for_the_same_task_of_the_run_before(stage: Stage) -> None:
    stage.dag(task("a", depends_on_past=True))
    first = stage.trigger(run_id="first", logical_date=stage.now)
    second = stage.trigger(run_id="second", logical_date=stage.now.replace(minute=1))
    stage.tick()
    claimed = stage.claim()
    assert claimed["a"].run_id == "first"
    assert stage.states(second) == {"a": "none"}
    stage.end(claimed["a"])
    stage.tick()
    stage.tick()
    assert stage.claim()["a"].run_id == "second"
    assert stage.run(first).state is RunState.SUCCESS


def test_max_active_runs_holds_later_runs_until_one_ends(stage: Stage) -> None:
    stage.dag(task("a"), max_active_runs=1)
    first, second = stage.trigger(run_id="first"), stage.trigger(run_id="second")
    stage.tick()
    assert (stage.run(first).state, stage.run(second).state) == (RunState.RUNNING, RunState.QUEUED)
    stage.work()
    stage.tick()
    stage.tick()
    assert (stage.run(first).state, stage.run(second).state) == (RunState.SUCCESS, RunState.RUNNING)


def test_a_run_that_takes_too_long_fails_and_its_tasks_are_stopped(stage: Stage) -> None:
    stage.dag(task("a"), task("b", "a"), dagrun_timeout=30.0, callbacks=("failure",))
    run = stage.trigger()
    stage.tick()
    late = stage.claim()["a"]
    stage.renew_worker(1000)
    stage.tick(seconds=31)
    assert stage.run(run).state is RunState.FAILED
    assert stage.states(run) == {"a": "skipped", "b": "skipped"}
    assert stage.store.attempts.finish([(late, _success(stage))]) == [False]
    assert [work.kind for work in stage.store.callbacks.claim("worker", most=5, now=stage.now)] == ["failure"]


def test_a_dag_that_keeps_failing_is_paused(stage: Stage) -> None:
    stage.dag(task("a"), max_consecutive_failed_runs=2)
    for number, expected in enumerate([False, True]):
        stage.trigger(run_id=f"run {number}")
        stage.tick()
        stage.work(TaskState.FAILED)
        stage.tick()
        assert stage.store.dags.get("d").is_paused is expected


def test_a_new_version_reaches_runs_under_way(stage: Stage) -> None:
    stage.dag(task("a"), task("old", "a"))
    run = stage.trigger()
    stage.tick()
    claimed = stage.claim()
    stage.dag(task("a"), task("new", "a"))
    stage.end(claimed["a"])
    stage.tick()
    assert stage.work() == ["new"]
    stage.tick()
    assert stage.states(run) == {"a": "success", "old": "removed", "new": "success"}
    assert stage.run(run).state is RunState.SUCCESS


def test_a_run_that_cannot_be_planned_says_so_and_holds_nobody_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.dag(task("a"), dag_id="odd")
    stage.dag(task("a"), dag_id="fine")
    odd, fine = stage.trigger("odd"), stage.trigger("fine")

    def with_a_bug(graph: Graph, *args: Any, **kwargs: Any) -> RunPlan:
        if graph.dag_id == "odd":
            raise ZeroDivisionError("a bug")
        return plan_run(graph, *args, **kwargs)

    monkeypatch.setattr(advance_runs, "plan_run", with_a_bug)
    stage.tick()
    stage.tick()
    assert [one.dag_id for one in stage.claim_all()] == ["fine"]
    assert "ZeroDivisionError" in (stage.run(odd).note or "")
    assert stage.run(fine).note is None


def test_a_scheduler_that_runs_is_known_by_its_lease_and_leaves_cleanly(stage: Stage) -> None:
    stage.dag(task("a"))
    stop = threading.Event()
    thread = threading.Thread(target=stage.scheduler.run, args=(stop,))
    listener = stage.store.listen("worker")
    thread.start()
    run = stage.trigger()
    while stage.states(run) != {"a": "queued"}:
        listener.drain()
    assert [one.kind for one in stage.store.leases.all()] == ["scheduler", "worker"]
    stop.set()
    stage.store.database.wake(SCHEDULER)
    thread.join(10)
    assert not thread.is_alive()
    assert [one.kind for one in stage.store.leases.all()] == ["worker"]
    listener.close()


def _success(stage: Stage) -> Outcome:
    return Outcome(state=TaskState.SUCCESS, end_date=stage.now)
