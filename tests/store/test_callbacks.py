"""Callbacks wait for a worker, run once, and run again only when their worker died."""

from store.world import NOW, after, task

from stannel.model.moments import to_micros
from stannel.model.states import TaskState
from stannel.store.callbacks import has_lost_callbacks, request_callback, requeue_lost_callbacks


def request(world, run, kind="failure", **fields) -> None:
    with world.store.transaction() as tx:
        request_callback(tx, run.pk, kind, now=to_micros(NOW), reason="why", **fields)


def claim(world, owner="w", most=10):
    return world.store.callbacks.claim(owner, most=most, now=NOW)


def test_a_callback_is_claimed_once(world):
    world.dag("a")
    request(world, world.new_run())
    (work,) = claim(world)
    assert (work.kind, work.scope, work.reason, work.attempt.run_id) == ("failure", "dag", "why", "r")
    assert claim(world) == []
    world.store.callbacks.done(work.pk)
    assert world.sql("SELECT * FROM callback") == []


def test_no_more_are_claimed_than_asked_for(world):
    world.dag("a")
    run = world.new_run()
    for _ in range(3):
        request(world, run)
    assert [len(claim(world, most=2)), len(claim(world, most=2))] == [2, 1]


def test_a_dags_callback_is_told_about_the_task_that_failed_first(world):
    first, second, _ = world.running("a", "b", "c")
    world.finish(first)
    world.finish(second, TaskState.FAILED)
    request(world, first.run)
    assert claim(world)[0].attempt.task_id == "b"


def test_or_else_about_the_one_that_ended_last(world):
    first, second, _ = world.running("a", "b", "c")
    world.finish(first, end_date=after(9))
    world.finish(second, end_date=after(5))
    request(world, first.run, "success")
    assert claim(world)[0].attempt.task_id == "a"


def test_a_callback_whose_worker_died_is_queued_again(world):
    (running,) = world.running(task("a"))
    request(world, running.run, ti_pk=running.ti_pk)
    claim(world, "w")
    with world.store.transaction() as tx:
        assert not has_lost_callbacks(tx, to_micros(after(5)))
        assert has_lost_callbacks(tx, to_micros(after(50)))
        assert requeue_lost_callbacks(tx, to_micros(after(50))) == 1
    (work,) = claim(world, "other")
    assert (work.scope, work.attempt.ti_pk) == ("task", running.ti_pk)


def test_the_callbacks_of_a_deleted_run_are_gone_with_it(world):
    world.dag("a")
    run = world.new_run()
    request(world, run)
    world.store.runs.delete(run)
    assert claim(world) == []
