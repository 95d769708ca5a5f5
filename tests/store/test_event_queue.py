"""The queue of events: what is new is looked at once, and nothing leaves it but into a run."""

from store.world import NOW, World, after, task

from stannel.model.asset import AssetSpec, EventSource, NewEvent, ThisAsset
from stannel.model.dag import DagSpec
from stannel.model.moments import to_micros
from stannel.model.run import RunType
from stannel.model.schedule import Never, OnAssets
from stannel.model.states import RunState
from stannel.store.event_queue import (
    busy_keys,
    consume_events,
    dags_to_look_at,
    drop_consumed,
    look_again,
    next_look,
    recent_runs,
    waiting_events,
)

A = ThisAsset("a", "a")


def consumer(world: World, dag_id: str = "d", *, on_assets: bool = True) -> None:
    schedule = OnAssets(A) if on_assets else Never()
    assets = (AssetSpec(name="a", uri="a"),)
    one = DagSpec(dag_id=dag_id, fileloc=f"{dag_id}.py", schedule=schedule, tasks=(task("t"),), assets=assets)
    world.save(one, path=one.fileloc)


def tell(world: World, *keys: str | None) -> list[int]:
    events = [NewEvent(of=A, source=EventSource.WATCHER, partition_key=key) for key in keys]
    return [one.pk for one in world.store.events.register(events, now=NOW)]


def look(world: World, at: float = 0) -> list[str]:
    """The DAGs a scheduler looks at now."""
    with world.store.transaction() as tx:
        return [one.dag_id for one in dags_to_look_at(tx, to_micros(after(at)), 10)]


def test_what_is_new_is_looked_at_once(world: World) -> None:
    consumer(world)
    assert look(world) == []
    tell(world, None)
    assert [look(world), look(world)] == [["d"], []]
    tell(world, None)
    assert look(world) == ["d"]


def test_a_dag_is_looked_at_again_at_the_moment_that_was_noted(world: World) -> None:
    consumer(world)
    with world.store.transaction() as tx:
        look_again(tx, "d", at=to_micros(after(10)))
        assert next_look(tx) == to_micros(after(10))
    assert (look(world, at=9), look(world, at=10)) == ([], ["d"])


def test_the_end_of_a_run_has_what_it_held_back_looked_at(world: World) -> None:
    consumer(world)
    for held, expected in ((False, []), (True, ["d"])):
        with world.store.transaction() as tx:
            look_again(tx, "d", at=None, when_a_run_ends=held)
        run = world.new_run(f"r{held}")
        world.store.runs.set_state(run, RunState.SUCCESS, now=NOW)
        assert look(world) == expected


def test_the_sweep_looks_again_at_what_is_held_back(world: World) -> None:
    consumer(world)
    with world.store.transaction() as tx:
        look_again(tx, "d", at=None, when_a_run_ends=True)
    world.store.runs.sweep()
    assert look(world) == ["d"]


def test_unpausing_and_a_changed_file_have_the_queue_looked_at(world: World) -> None:
    consumer(world)
    world.store.dags.pause("d", paused=True)
    assert look(world) == []
    world.store.dags.pause("d", paused=False)
    assert look(world) == ["d"]
    with world.store.transaction() as tx:
        look_again(tx, "d", at=None)
    consumer(world, on_assets=False)
    assert look(world) == ["d"]


def test_events_are_read_oldest_first_without_some_keys_and_not_all_at_once(world: World) -> None:
    consumer(world)
    first, x, y, last = tell(world, None, "x", "y", None)
    with world.store.read() as tx:
        assert [one.event_pk for one in waiting_events(tx, "d")] == [first, x, y, last]
        assert [one.event_pk for one in waiting_events(tx, "d", without_keys=["x"])] == [first, y, last]
        assert [one.event_pk for one in waiting_events(tx, "d", most=2)] == [first, x]


def test_an_event_that_was_had_is_dropped_unless_a_person_wants_it_again(world: World) -> None:
    consumer(world)
    had, again, fresh = tell(world, None, None, None)
    run = world.new_run()
    with world.store.transaction() as tx:
        consume_events(tx, "d", run.pk, [had, again])
    world.plant(
        f"INSERT INTO event_queue (dag_id, event_pk) VALUES ('d', {had})",
        f"INSERT INTO event_queue (dag_id, event_pk, is_replay) VALUES ('d', {again}, 1)",
    )
    with world.store.transaction() as tx:
        drop_consumed(tx, "d")
    assert [one.event_pk for one in world.store.event_queue.waiting("d")] == [again, fresh]


def test_only_runs_that_assets_made_count_for_rates_and_keys(world: World) -> None:
    consumer(world)
    world.new_run("by-hand", partition_key="x")
    run = world.new_run("by-assets", run_type=RunType.ASSET_TRIGGERED, partition_key="y")
    with world.store.read() as tx:
        assert (recent_runs(tx, "d", 5), busy_keys(tx, "d")) == ([to_micros(NOW)], {"y"})
    world.store.runs.set_state(run, RunState.SUCCESS, now=NOW)
    with world.store.read() as tx:
        assert (len(recent_runs(tx, "d", 5)), busy_keys(tx, "d")) == (1, frozenset())


def test_people_see_what_waits_and_since_when(world: World) -> None:
    consumer(world)
    consumer(world, "e")
    tell(world, None, None)
    assert world.store.event_queue.counts() == [("d", "a", 2, to_micros(NOW)), ("e", "a", 2, to_micros(NOW))]
