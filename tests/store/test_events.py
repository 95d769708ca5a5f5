"""Events as they are read: the past of an asset, and what a run consumed."""

from typing import Any

from store.world import NOW, World, after, task

from stannel.model.asset import AssetSpec, EventSource, NewEvent, ThisAsset
from stannel.model.dag import DagSpec
from stannel.model.run import RunType
from stannel.model.schedule import OnAssets
from stannel.store.event_queue import consume_events
from stannel.store.events import Which

ORDERS = ThisAsset("orders", "s3://orders")


def consumer(world: World, dag_id: str) -> None:
    assets = (AssetSpec(name="orders", uri="s3://orders"),)
    one = DagSpec(dag_id=dag_id, fileloc=f"{dag_id}.py", schedule=OnAssets(ORDERS), tasks=(task("t"),), assets=assets)
    world.save(one, path=one.fileloc)


def event(**fields: Any) -> NewEvent:
    return NewEvent(of=ORDERS, source=EventSource.PERSON, **fields)


def test_past_events_are_found_by_time_key_and_number(world: World) -> None:
    consumer(world, "d")
    for second in range(5):
        told = event(extra={"n": second}, timestamp=after(second), partition_key="even" if second % 2 == 0 else "odd")
        world.store.events.register([told], now=after(100))

    def numbers(**which: Any) -> list[int]:
        return [one.extra["n"] for one in world.store.events.find(Which(of=ORDERS, **which))]

    assert numbers() == [0, 1, 2, 3, 4]
    assert numbers(ascending=False, limit=2) == [4, 3]
    assert numbers(after=after(3)) == [3, 4]
    assert numbers(before=after(1)) == [0, 1]
    assert numbers(partition_key="odd") == [1, 3]


def test_what_a_run_consumed_is_known_to_its_tasks_and_waits_no_longer(world: World) -> None:
    consumer(world, "d")
    made = world.store.events.register([event(extra={"n": one}) for one in range(3)], now=NOW)
    run = world.new_run(dag_id="d", run_type=RunType.ASSET_TRIGGERED)
    with world.store.transaction() as tx:
        consume_events(tx, "d", run.pk, [made[0].pk, made[1].pk], [made[2].pk])
    assert world.store.event_queue.waiting("d") == []
    assert [one.extra for one in world.store.events.of_run(run.pk)] == [{"n": 0}, {"n": 1}]
    assert world.store.events.runs_of([made[2].pk]) == {made[2].pk: [("d", "r")]}
    world.advance()
    [attempt] = world.claim()
    assert [one.extra for one in attempt.events] == [{"n": 0}, {"n": 1}]
    world.store.runs.delete(run)
    assert len(world.store.events.find(Which(of=ORDERS))) == 3
