"""Runs are made once, started in order, looked at whenever something in them changed, and ended once."""

import pytest
from sqlalchemy import text
from store.world import NOW, World, after, new_run, scheduled_run, task

from stannel.errors import MoveRefused, RunExists, UnknownId
from stannel.model.moments import to_micros
from stannel.model.run import RunType
from stannel.model.states import RunState, TaskState
from stannel.store.dags import due_dags, hold_at_limit
from stannel.store.runs import (
    create_run,
    current_version,
    end_run,
    follow_version,
    latest_scheduled,
    living_runs,
    mark_dirty,
    mark_follower_dirty,
    next_deadlines,
    overdue_runs,
    previous_run,
    queued_runs,
    running_counts,
    start_run,
    stop_instances,
    take_dirty,
)


def taken(world: World, most: int = 100) -> list[str]:
    with world.store.transaction() as tx:
        return [run.run_id for run in take_dirty(tx, most)]


def create(world: World, *runs) -> list:
    spec = world.store.dags.spec(world.store.dags.get("d").version)
    return [world.store.runs.create(world.store.dags.get("d").version, spec, one, now=NOW) for one in runs]


def test_a_run_is_made_with_all_its_instances(world):
    world.dag(task("a", retries=3, pool="small", priority=7), "b")
    made = world.new_run(conf={"x": [1, "ü"]}, note="why", triggered_by="me", partition_key="p")
    assert world.run() == made
    assert (made.state, made.conf, made.note, made.triggered_by) == (RunState.QUEUED, {"x": [1, "ü"]}, "why", "me")
    first = world.instance("a")
    assert (first.max_tries, first.pool, first.priority, first.try_number) == (3, "small", 7, 0)
    assert world.states() == {"a": "none", "b": "none"}


def test_a_scheduled_run_keeps_its_dates(world):
    world.dag()
    (run,) = create(world, scheduled_run(2))
    assert (run.logical_date.day, run.data_interval_end.day, run.run_after.day) == (2, 3, 3)
    assert run.run_type is RunType.SCHEDULED


@pytest.mark.parametrize("again", [new_run("first"), new_run("other", logical_date=NOW)])
def test_a_second_run_like_it_is_refused_and_the_transaction_goes_on(world, again):
    spec = world.dag("a")
    version = world.store.dags.get("d").version
    with world.store.transaction() as tx:
        create_run(tx, version, spec, new_run("first", logical_date=NOW), to_micros(NOW))
        with pytest.raises(RunExists):
            create_run(tx, version, spec, again, to_micros(NOW))
        create_run(tx, version, spec, new_run("last"), to_micros(NOW))
    assert [run.run_id for run in world.store.runs.latest()] == ["last", "first"]
    assert len(world.sql("SELECT pk FROM task_instance")) == 2


def test_runs_without_a_date_and_runs_of_other_dags_never_clash(world):
    world.dag()
    world.dag(dag_id="e")
    world.new_run("1")
    world.new_run("2")
    world.new_run("3", logical_date=NOW)
    world.new_run("3", dag_id="e", logical_date=NOW)
    assert len(world.store.runs.latest()) == 4


def test_queued_runs_wait_in_the_order_of_their_moment(world):
    world.dag()
    world.dag(dag_id="paused")
    world.new_run("second", run_after=after(2))
    world.new_run("first", run_after=after(1))
    world.new_run("future", run_after=after(100))
    world.new_run("paused", dag_id="paused")
    world.store.dags.pause("paused", paused=True)
    with world.store.transaction() as tx:
        waiting = queued_runs(tx, to_micros(after(3)))
    assert [pk for pk, _, _ in waiting] == [world.run("first").pk, world.run("second").pk]
    with world.store.read() as tx:
        assert next_deadlines(tx, to_micros(after(3))) == [to_micros(after(100))]


def test_a_run_is_started_once(world):
    world.dag()
    run = world.new_run()
    with world.store.transaction() as tx:
        assert start_run(tx, run.pk, now=to_micros(NOW), deadline=None)
        assert not start_run(tx, run.pk, now=to_micros(after(1)), deadline=None)
        assert running_counts(tx) == {"d": 1}
        assert living_runs(tx, "d") == 1
    assert (world.run().state, world.run().start_date) == (RunState.RUNNING, NOW)


def test_a_dirty_run_is_taken_once_and_again_when_something_changed(world):
    world.dag()
    run = world.new_run()
    assert taken(world) == [], "it is not running yet"
    world.start()
    assert taken(world) == ["r"]
    assert taken(world) == []
    with world.store.transaction() as tx:
        mark_dirty(tx, [run.pk, run.pk])
    assert taken(world) == ["r"]


def test_no_more_runs_are_taken_than_asked_for(world):
    world.dag()
    for number in range(5):
        world.new_run(str(number))
    world.start()
    assert sorted(taken(world, 3) + taken(world, 3)) == ["0", "1", "2", "3", "4"]


def test_runs_of_a_paused_dag_stay_dirty(world):
    world.dag()
    world.new_run()
    world.start()
    world.store.dags.pause("d", paused=True)
    assert taken(world) == []
    world.store.dags.pause("d", paused=False)
    assert taken(world) == ["r"]


def test_the_sweep_has_every_living_run_looked_at(world):
    world.dag()
    for name in ("running", "queued", "ended"):
        world.new_run(name, run_after=after(100) if name == "queued" else NOW)
    world.start()
    world.store.runs.set_state(world.run("ended"), RunState.FAILED, now=NOW)
    taken(world)
    assert world.store.runs.sweep() == 1, "the queued one was dirty already"
    assert taken(world) == ["running"]


def test_a_run_ends_once_and_makes_room_for_the_next(world):
    world.dag()
    run = world.new_run()
    world.start()
    with world.store.transaction() as tx:
        hold_at_limit(tx, "d")
        assert end_run(tx, run, RunState.SUCCESS, now=to_micros(after(5)), why="done")
        assert not end_run(tx, run, RunState.FAILED, now=to_micros(after(6)), why=None)
        assert [one.dag_id for one in due_dags(tx, to_micros(NOW), 10)] == ["d"]
    assert (world.run().state, world.run().end_date, world.run().note) == (RunState.SUCCESS, after(5), "done")
    assert taken(world) == []


def test_the_end_of_a_run_has_it_no_longer_taken(world):
    world.dag()
    run = world.new_run()
    world.start()
    with world.store.transaction() as tx:
        end_run(tx, run, RunState.FAILED, now=to_micros(NOW), why=None)
        mark_dirty(tx, [run.pk])
    assert taken(world) == []


def test_a_users_verdict_ends_the_run_and_whatever_is_under_way_in_it(world):
    running, _ = world.running("a", "b")
    world.new_run("other")
    world.store.runs.set_state(world.run(), RunState.FAILED, now=after(3))
    assert (world.run().state, world.run().end_date) == (RunState.FAILED, after(3))
    assert world.states() == {"a": "skipped", "b": "skipped"}
    assert world.attempts() == [("a", 1, "cancelled"), ("b", 1, "cancelled")]
    assert not world.finish(running), "a late owner is refused"
    assert world.states(run_id="other") == {"a": "none", "b": "none"}
    assert world.store.upkeep.check() == []


def test_a_users_verdict_is_success_or_failure(world):
    world.dag()
    run = world.new_run()
    with pytest.raises(MoveRefused):
        world.store.runs.set_state(run, RunState.RUNNING, now=NOW)
    assert world.run().state is RunState.QUEUED


def test_stopping_leaves_what_has_ended_as_it_is(world):
    first, _ = world.running("a", "b")
    world.finish(first)
    with world.store.transaction() as tx:
        stop_instances(tx, first.run.pk, now=to_micros(NOW), why="enough")
    assert world.states() == {"a": "success", "b": "skipped"}
    assert world.attempts() == [("a", 1, "success"), ("b", 1, "cancelled")]


def test_a_run_is_overdue_at_its_deadline(world):
    world.dag()
    run = world.new_run()
    with world.store.transaction() as tx:
        start_run(tx, run.pk, now=to_micros(NOW), deadline=to_micros(after(60)))
    with world.store.transaction() as tx:
        assert next_deadlines(tx, to_micros(NOW)) == [to_micros(after(60))]
        assert overdue_runs(tx, to_micros(after(59))) == []
        assert [one.pk for one in overdue_runs(tx, to_micros(after(60)))] == [run.pk]


def test_a_run_taken_up_again_is_not_overdue_by_its_old_deadline(world):
    world.dag()
    run = world.new_run()
    with world.store.transaction() as tx:
        start_run(tx, run.pk, now=to_micros(NOW), deadline=to_micros(after(60)))
    world.store.runs.set_state(run, RunState.FAILED, now=after(1))
    world.store.tasks.clear(world.run(), [world.instance().pk], now=after(1000))
    assert world.run().state is RunState.QUEUED
    with world.store.transaction() as tx:
        assert overdue_runs(tx, to_micros(after(1001))) == []


def test_a_deleted_run_takes_everything_of_it_along(world):
    (running,) = world.running("a")
    world.store.xcoms.put([xcom_row(running.run.pk)])
    world.store.questions.save_rendered(running.ti_pk, "{}")
    assert world.store.runs.delete(running.run)
    assert not world.store.runs.delete(running.run)
    for table in ("dag_run", "task_instance", "attempt", "xcom", "rendered_fields"):
        assert world.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    assert not world.finish(running)
    assert world.store.attempts.still_mine("w") == set()


def xcom_row(run_pk: int) -> dict:
    return {"run_pk": run_pk, "task_id": "a", "map_index": -1, "key": "k", "value": "1", "length": None} | {
        "created_at": 0
    }


def test_the_newest_runs_come_first_and_can_be_filtered(world):
    world.dag()
    world.dag(dag_id="e")
    world.new_run("1")
    world.new_run("2", dag_id="e")
    world.new_run("3", run_type=RunType.BACKFILL)
    world.start()
    world.store.runs.set_state(world.run("1"), RunState.FAILED, now=NOW)
    latest = world.store.runs.latest
    assert [run.run_id for run in latest()] == ["3", "2", "1"]
    assert [run.run_id for run in latest(limit=1)] == ["3"]
    assert [run.run_id for run in latest(dag_id="d")] == ["3", "1"]
    assert [run.run_id for run in latest(state=RunState.FAILED)] == ["1"]
    assert [run.run_id for run in latest(run_type="backfill")] == ["3"]


def test_an_unknown_run_is_refused_with_the_nearest_ids(world):
    world.dag()
    world.new_run("manual-1")
    with pytest.raises(UnknownId, match="manual-1"):
        world.run("manual-2")


def test_the_previous_run_is_the_nearest_earlier_date(world):
    world.dag()
    third, first, second = create(world, scheduled_run(3), scheduled_run(1), scheduled_run(2))
    undated = world.new_run("undated")
    with world.store.read() as tx:
        assert previous_run(tx, third) == second.pk
        assert previous_run(tx, first) is None
        assert previous_run(tx, undated) is None


def test_the_next_living_run_is_looked_at_when_the_one_before_it_changed(world):
    world.dag()
    first, *_ = create(world, scheduled_run(1), scheduled_run(2), scheduled_run(3), scheduled_run(4))
    world.start(after(1e6))
    world.store.runs.set_state(world.run("scheduled-2"), RunState.SUCCESS, now=NOW)
    taken(world)
    with world.store.transaction() as tx:
        mark_follower_dirty(tx, first)
    assert taken(world) == ["scheduled-3"]


def test_the_schedule_goes_on_from_the_newest_run_it_made(world):
    world.dag()
    with world.store.read() as tx:
        assert latest_scheduled(tx, "d") is None
    create(world, scheduled_run(2), scheduled_run(1), new_run("late", logical_date=after(1e7)), new_run("undated"))
    with world.store.read() as tx:
        logical, start, end, run_after = latest_scheduled(tx, "d")
    assert logical == start == to_micros(world.run("scheduled-2").logical_date)
    assert end == run_after


def test_a_run_under_way_can_follow_the_newest_version(world):
    world.dag("a")
    run = world.new_run()
    world.dag("a", "b")
    with world.store.transaction() as tx:
        newest = current_version(tx, "d")
        assert newest != run.version
        follow_version(tx, run.pk, newest)
        with pytest.raises(UnknownId):
            current_version(tx, "nobody")
    assert world.run().version == newest


def test_an_exception_undoes_the_whole_transaction(world):
    spec = world.dag("a")
    version = world.store.dags.get("d").version

    def fail_in_the_middle() -> None:
        with world.store.transaction() as tx:
            create_run(tx, version, spec, new_run(), to_micros(NOW))
            tx.run(text("UPDATE dag SET is_paused = 1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert world.store.runs.latest() == []
    assert not world.store.dags.get("d").is_paused


def test_clearing_takes_an_ended_run_up_again(world):
    (running,) = world.running("a")
    world.finish(running)
    world.store.runs.set_state(running.run, RunState.SUCCESS, now=NOW)
    assert world.store.tasks.clear(world.run(), [running.ti_pk], now=after(9)) == 1
    run = world.run()
    assert (run.state, run.end_date, run.start_date, run.clear_number) == (RunState.QUEUED, None, None, 1)
    assert run.queued_at == after(9)
    world.advance(after(10))
    assert world.instance().state is TaskState.QUEUED
