"""Deferred tasks and the scheduler: slots, limits, deadlines, and tasks that begin with their trigger."""

from typing import Any

import msgspec
from scheduler.conftest import Stage, task

from stannel.model.dag import StartTrigger
from stannel.model.run import Attempt
from stannel.model.states import RunState, TaskState
from stannel.model.trigger import Deferral, Event, Firing
from stannel.supervisor.tasklog import log_path


def defer(stage: Stage, attempt: Attempt, **fields: Any) -> None:
    deferral = Deferral(classpath="x.Y", **{"method": "resume", **fields})
    stage.end(attempt, TaskState.DEFERRED, deferral=deferral)


def defer_all(stage: Stage, **fields: Any) -> None:
    for one in stage.claim_all():
        defer(stage, one, **fields)


def fire_all(stage: Stage) -> int:
    stage.store.leases.take("t", "triggerer", hostname="here", pid=1, now=stage.now, seconds=3)
    claimed = stage.store.triggers.claim("t", most=100, queues=None, now=stage.now)
    firings = [Firing(id=one.id, epoch=one.epoch, what=Event(payload=1)) for one in claimed]
    return sum(stage.store.triggers.settle("t", firings, now=stage.now))


def test_a_resumed_task_is_queued_at_the_next_look_and_its_run_goes_on(stage: Stage) -> None:
    stage.dag(task("wait"), task("then", "wait"))
    run = stage.trigger()
    stage.tick()
    defer_all(stage)
    stage.tick()
    assert stage.states(run) == {"wait": "deferred", "then": "none"}
    assert stage.run(run).state is RunState.RUNNING
    assert fire_all(stage) == 1
    stage.tick()
    assert stage.work() == ["wait"]
    stage.tick()
    assert stage.work() == ["then"]
    stage.tick()
    assert stage.run(run).state is RunState.SUCCESS


def test_a_deferred_task_frees_its_slot_unless_the_pool_counts_it(stage: Stage) -> None:
    for name, counts in (("frees", False), ("counts", True)):
        stage.store.pools.save(name, 1, include_deferred=counts)
        stage.dag(task("a", pool=name), task("b", pool=name), dag_id=name)
        stage.trigger(name)
    stage.tick()
    defer_all(stage)
    stage.tick()
    assert [one.dag_id for one in stage.claim_all()] == ["frees"]
    used = {one.name: one.used for one in stage.store.pools.all()}
    assert used["counts"] == 1


def test_waiting_does_not_count_toward_max_active_tasks(stage: Stage) -> None:
    stage.dag(task("a"), task("b"), max_active_tasks=1)
    stage.trigger()
    stage.tick()
    defer_all(stage)
    stage.tick()
    assert len(stage.claim_all()) == 1


def test_waiting_counts_toward_the_limits_of_its_own_task(stage: Stage) -> None:
    stage.dag(task("a", max_active_tis_per_dag=1))
    stage.trigger(run_id="one")
    stage.tick()
    defer_all(stage)
    stage.trigger(run_id="two")
    stage.tick()
    assert stage.claim_all() == []
    fire_all(stage)
    stage.tick()
    assert [one.run_id for one in stage.claim_all()] == ["one"]


def test_the_scheduler_sleeps_until_the_deadline_of_a_wait_and_then_ends_it(stage: Stage) -> None:
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    defer_all(stage, timeout=0.5)
    assert 0 < stage.tick() <= 0.5
    assert stage.states(run) == {"a": "deferred"}
    stage.tick(seconds=0.5)
    assert stage.states(run) == {"a": "failed"}
    stage.tick()
    assert stage.run(run).state is RunState.FAILED


def test_the_log_of_a_task_says_that_its_wait_took_too_long(stage: Stage) -> None:
    stage.dag(task("a", execution_timeout=10.0))
    stage.trigger()
    stage.tick()
    [attempt] = stage.claim_all()
    defer(stage, attempt)
    stage.tick(seconds=11)
    path = log_path(stage.settings.logging.base_log_folder, attempt)
    [line] = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert "execution_timeout is over" in line["event"]
    assert line["level"] == "error"


def test_an_overdue_wait_with_retries_is_tried_again_from_the_start(stage: Stage) -> None:
    stage.dag(task("a", retries=1))
    run = stage.trigger()
    stage.tick()
    defer_all(stage, timeout=1.0)
    stage.tick(seconds=2)
    assert stage.states(run) == {"a": "up_for_retry"}
    stage.renew_worker(1000)
    stage.tick(seconds=61)
    [attempt] = stage.claim_all()
    assert (attempt.try_number, attempt.next_method) == (2, None)


def test_a_run_with_nothing_but_waits_is_not_taken_for_stuck(stage: Stage) -> None:
    stage.dag(task("a"), task("b", "a"))
    run = stage.trigger()
    stage.tick()
    defer_all(stage)
    for _ in range(5):
        stage.tick(minutes=10)
    assert stage.run(run).state is RunState.RUNNING


def test_a_run_that_takes_too_long_ends_its_waits_without_on_kill(stage: Stage) -> None:
    stage.dag(task("a"), dagrun_timeout=60.0)
    run = stage.trigger()
    stage.tick()
    defer_all(stage)
    stage.store.leases.take("t", "triggerer", hostname="here", pid=1, now=stage.now, seconds=300)
    stage.store.triggers.claim("t", most=9, queues=None, now=stage.now)
    stage.tick(seconds=61)
    assert stage.run(run).state is RunState.FAILED
    assert [str(reason) for _, reason in stage.store.triggers.orders("t")] == ["timeout"]


def test_a_task_that_starts_from_its_trigger_waits_without_a_slot(stage: Stage) -> None:
    start = StartTrigger(classpath="x.Y", method="go")
    stage.dag(task("a", start_trigger=start, retries=1), task("b", "a"))
    run = stage.trigger()
    stage.tick()
    assert stage.states(run) == {"a": "deferred", "b": "none"}
    assert stage.claim_all() == []
    assert fire_all(stage) == 1
    stage.tick()
    [attempt] = stage.claim_all()
    assert (attempt.try_number, attempt.next_method) == (1, "go")
    stage.end(attempt, TaskState.UP_FOR_RETRY, retry_at=stage.now)
    stage.tick(seconds=1)
    assert stage.states(run) == {"a": "deferred", "b": "none"}
    [again] = stage.store.triggers.all()
    assert again.try_number == 2
