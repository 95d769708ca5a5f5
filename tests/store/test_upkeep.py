"""The check finds each contradiction that is planted, and nothing in a healthy store; old runs can be thrown away."""

import pytest
from store.world import NOW, World, after, task

from stannel.model.asset import AssetSpec, EventSource, NewEvent, ThisAsset
from stannel.model.dag import DagSpec
from stannel.model.run import RunType
from stannel.model.schedule import OnAssets
from stannel.model.states import RunState, TaskState
from stannel.store.event_queue import backlog, consume_events
from stannel.store.events import Which

_NEW_ATTEMPT = "INSERT INTO attempt (attempt_id, ti_pk, run_pk, try_number, state, queued_at)"

CONTRADICTIONS = {
    "UPDATE dag_run SET state = 'dreaming'": "a run is in a state nobody knows",
    "UPDATE task_instance SET state = 'dreaming'": "a task instance is in a state nobody knows",
    "UPDATE dag_run SET state = 'success', ended_at = 1": "a run has ended but a task of it has not",
    "UPDATE dag_run SET state = 'failed', ended_at = NULL": "a run has ended but has no end date",
    "UPDATE task_instance SET attempt_id = 'nobody'": "a task is queued or running without an attempt",
    "UPDATE attempt SET state = 'failed'": "a task is queued or running without an attempt",
    "UPDATE task_instance SET state = 'success'": "a task has ended but an attempt of it has not",
    "UPDATE task_instance SET state = 'none'": "an attempt is under way that its task knows nothing of",
    f"{_NEW_ATTEMPT} SELECT 'stray', pk, run_pk, 9, 'queued', 1 FROM task_instance": (
        "an attempt is under way that its task knows nothing of"
    ),
    f"{_NEW_ATTEMPT} SELECT n, pk, run_pk, 9, 'success', 1 FROM task_instance, (SELECT '1' n UNION SELECT '2') x": (
        "a task succeeded more than once"
    ),
}


def found(world: World) -> set[str]:
    return {one.what for one in world.store.upkeep.check()}


@pytest.mark.parametrize("state", [None, "queued", "running", "ended", "cleared"])
def test_a_healthy_store_has_no_contradictions(world, state):
    world.dag("a", "b")
    world.new_run()
    if state is not None:
        world.advance()
    if state not in (None, "queued"):
        for attempt in world.claim():
            if state != "running":
                world.finish(attempt)
    if state == "ended":
        world.store.runs.set_state(world.run(), RunState.SUCCESS, now=NOW)
    if state == "cleared":
        world.store.tasks.clear(world.run(), [world.instance("a").pk], now=NOW)
    assert world.store.upkeep.check() == []


@pytest.mark.parametrize("planted", CONTRADICTIONS)
def test_a_planted_contradiction_is_found(world, planted):
    world.running("a")
    assert found(world) == set()
    world.plant(planted)
    assert CONTRADICTIONS[planted] in found(world)


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        (
            f"{_NEW_ATTEMPT} VALUES ('x', 4711, 1, 1, 'failed', 1)",
            "an attempt belongs to no task instance",
        ),
        (
            "INSERT INTO xcom (run_pk, task_id, map_index, key, value, created_at) VALUES (4711, 'a', -1, 'k', '1', 1)",
            "an XCom belongs to no run",
        ),
    ],
)
def test_what_a_foreign_key_forbids_is_found_where_a_backup_brought_it_in(world, planted, what):
    if world.store.database.dialect.name == "sqlite":
        world.store.database._writer.execute("PRAGMA foreign_keys = OFF")
        world.plant(planted)
    else:
        world.plant("SET LOCAL session_replication_role = replica", planted)
    assert found(world) == {what}


def test_each_contradiction_says_how_often_it_occurs(world):
    world.running("a", "b", "c")
    world.plant("UPDATE attempt SET state = 'failed'")
    assert [one.count for one in world.store.upkeep.check()] == [3]


def test_old_runs_are_deleted_some_at_a_time_and_living_ones_never(world):
    world.dag("a")
    for number in range(5):
        world.new_run(str(number))
        world.store.runs.set_state(world.run(str(number)), RunState.SUCCESS, now=after(number))
    world.new_run("living")
    upkeep = world.store.upkeep
    assert upkeep.old_runs(after(3)) == 3
    assert [upkeep.delete_old_runs(after(3), most=2) for _ in range(3)] == [2, 1, 0]
    assert [run.run_id for run in world.store.runs.latest()] == ["living", "4", "3"]
    assert {state for (state,) in world.sql("SELECT state FROM task_instance")} == {"none", str(TaskState.SKIPPED)}


def test_events_that_nobody_needs_are_deleted_and_the_others_never(world):
    asset = ThisAsset("a", "a")
    waits = DagSpec(
        dag_id="d", fileloc="d.py", schedule=OnAssets(asset), assets=(AssetSpec(name="a", uri="a"),), tasks=(task("t"),)
    )
    world.save(waits, path="d.py")
    told = NewEvent(of=asset, source=EventSource.PERSON)
    [had, waiting] = world.store.events.register([told, told], now=after(0))
    run = world.new_run(run_type=RunType.ASSET_TRIGGERED)
    with world.store.transaction() as tx:
        consume_events(tx, "d", run.pk, [had.pk])
    upkeep = world.store.upkeep
    assert (upkeep.old_events(after(1)), upkeep.delete_old_events(after(1))) == (0, 0)
    world.store.runs.delete(run)
    # The DAG has had it, whether its run is still there or not.
    with world.store.read() as tx:
        assert backlog(tx, "d") == [waiting.pk]
    assert (upkeep.old_events(after(0)), upkeep.old_events(after(1))) == (0, 1)
    assert [upkeep.delete_old_events(after(1)) for _ in range(2)] == [1, 0]
    assert [one.pk for one in world.store.events.find(Which())] == [waiting.pk]
