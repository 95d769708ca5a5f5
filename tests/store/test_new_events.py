"""Events are stored once, wait for every DAG that wants them, and belong to the transaction that tells of them."""

from contextlib import closing
from typing import Any

import pytest
from store.world import NOW, World, after, task

from stannel.errors import UnknownId
from stannel.model.asset import (
    AliasSpec,
    AnyOfAlias,
    AssetAt,
    AssetNamed,
    AssetSpec,
    Condition,
    Consumption,
    Emitted,
    EventSource,
    Grouping,
    NewEvent,
    ThisAsset,
)
from stannel.model.dag import DagSpec
from stannel.model.moments import to_micros
from stannel.model.schedule import OnAssets
from stannel.model.states import TaskState
from stannel.model.trigger import Event, Firing
from stannel.store.database import SCHEDULER
from stannel.store.event_queue import next_look
from stannel.store.events import Which
from stannel.store.new_events import register_events
from stannel.store.signals import wait

ORDERS, PAYMENTS = ThisAsset("orders", "s3://orders"), ThisAsset("payments", "payments")
ASSETS = tuple(AssetSpec(name=one.name, uri=one.uri) for one in (ORDERS, PAYMENTS))
EACH = Consumption(grouping=Grouping.EACH)


def consumer(
    world: World, dag_id: str, on: Condition = ORDERS, policy: Consumption | None = None, **fields: Any
) -> None:
    schedule = OnAssets(on, policy)
    one = DagSpec(dag_id=dag_id, fileloc=f"{dag_id}.py", schedule=schedule, tasks=(task("t"),), assets=ASSETS, **fields)
    world.save(one, path=one.fileloc)


def event(of: Any = ORDERS, source: EventSource = EventSource.PERSON, **fields: Any) -> NewEvent:
    return NewEvent(of=of, source=source, **fields)


def queued(world: World) -> list[tuple[str, int]]:
    found = world.sql("SELECT dag_id, event_pk FROM event_queue ORDER BY event_pk, dag_id")
    first = min((pk for _, pk in found), default=0)
    return [(dag_id, pk - first) for dag_id, pk in found]


def test_an_event_waits_for_every_dag_that_is_scheduled_on_its_asset(world: World) -> None:
    consumer(world, "direct")
    consumer(world, "name", AssetNamed("orders"))
    consumer(world, "uri", AssetAt("s3://orders"))
    consumer(world, "other", PAYMENTS)
    [made] = world.store.events.register([event(extra={"n": 1})], now=NOW)
    assert (made.is_new, made.dag_ids) == (True, ("direct", "name", "uri"))
    assert queued(world) == [("direct", 0), ("name", 0), ("uri", 0)]


def test_an_event_waits_for_a_dag_that_is_paused_broken_or_gone(world: World) -> None:
    for dag_id in ("paused", "broken", "gone"):
        consumer(world, dag_id)
    world.store.dags.pause("paused", paused=True)
    world.save(path="broken.py", error="a line is missing")
    world.store.dags.remove_file("gone.py")
    world.store.events.register([event()], now=NOW)
    assert queued(world) == [("broken", 0), ("gone", 0), ("paused", 0)]


def test_the_scheduler_is_woken_by_an_event_that_somebody_waits_for(world: World) -> None:
    consumer(world, "d")
    with closing(world.store.listen(SCHEDULER)) as listener:
        world.store.events.register([event()], now=NOW)
        assert wait(listener, 10.0)
    with world.store.read() as tx:
        assert next_look(tx) == 0


def test_an_event_told_again_is_counted_and_not_stored_twice(world: World) -> None:
    consumer(world, "d")
    told = event(source=EventSource.WATCHER, identity="topic/0/17", extra={"n": 1})
    world.store.events.register([told, told], now=NOW)
    [again] = world.store.events.register([told], now=after(5))
    assert not again.is_new
    [stored] = world.store.events.find(Which(of=ORDERS))
    assert (stored.pk, stored.repeats, stored.stored_at) == (again.pk, 2, NOW)
    assert queued(world) == [("d", 0)]


def test_equal_identities_of_different_assets_are_different_events(world: World) -> None:
    consumer(world, "d")
    made = world.store.events.register([event(identity="1"), event(PAYMENTS, identity="1")], now=NOW)
    assert [one.is_new for one in made] == [True, True]


def test_a_transaction_that_fails_leaves_neither_event_nor_queue(world: World) -> None:
    consumer(world, "d")

    def fail() -> None:
        with world.store.transaction() as tx:
            register_events(tx, [event()], to_micros(NOW))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (queued(world), world.store.events.find(Which(of=ORDERS))) == ([], [])


def test_people_cannot_tell_of_an_asset_that_nobody_knows(world: World) -> None:
    consumer(world, "d")
    with pytest.raises(UnknownId, match="did you mean orders"):
        world.store.events.register([event(), event(AssetNamed("order"))], now=NOW)
    assert queued(world) == []


@pytest.mark.parametrize(
    ("source", "policy", "expected"),
    [
        (EventSource.TASK, None, []),
        (EventSource.PERSON, None, []),
        (EventSource.WATCHER, None, [("d", 0)]),
        (EventSource.TASK, EACH, [("d", 0)]),
    ],
)
def test_an_event_of_one_partition_waits_only_for_dags_that_deal_with_keys(
    world: World, source: EventSource, policy: Consumption | None, expected: list[tuple[str, int]]
) -> None:
    consumer(world, "d", policy=policy)
    world.store.events.register([event(source=source, partition_key="eu")], now=NOW)
    assert queued(world) == expected


def test_the_success_of_a_task_emits_its_outlets_in_the_same_transaction(world: World) -> None:
    consumer(world, "d")
    [attempt] = world.running("a", dag_id="producer")
    emitted = (Emitted(of=ORDERS, extra={"rows": 3}), Emitted(of=AssetNamed("payments")), Emitted(of=AssetNamed("no")))
    assert world.finish(attempt, outlets=emitted)
    [stored] = world.store.events.find(Which(of=ORDERS))
    assert (stored.extra, stored.happened_at) == ({"rows": 3}, after(1))
    source = (stored.source, stored.dag_id, stored.run_id, stored.task_id, stored.map_index)
    assert source == (EventSource.TASK, "producer", "r", "a", -1)
    assert len(world.store.events.find(Which(of=PAYMENTS))) == 1
    assert queued(world) == [("d", 0)]


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.SKIPPED])
def test_a_task_that_does_not_succeed_emits_nothing(world: World, state: TaskState) -> None:
    consumer(world, "d")
    [attempt] = world.running("a", dag_id="producer")
    world.finish(attempt, state, outlets=(Emitted(of=ORDERS),))
    assert queued(world) == []


def test_an_attempt_that_is_no_longer_its_tasks_emits_nothing(world: World) -> None:
    consumer(world, "d")
    [attempt] = world.running("a", dag_id="producer")
    world.store.tasks.clear(attempt.run, [attempt.ti_pk], now=after(1))
    assert not world.finish(attempt, outlets=(Emitted(of=ORDERS),))
    assert queued(world) == []


def test_a_task_that_its_trigger_ends_emits_its_outlets_too(world: World) -> None:
    consumer(world, "d")
    outlets = (ORDERS, AnyOfAlias("files"))
    [attempt] = world.running(task("a", outlets=outlets), dag_id="producer", assets=ASSETS)
    world.defer(attempt, method=None)
    [trigger] = world.triggers()
    fired = Firing(id=trigger.id, epoch=trigger.epoch, what=Event(ends=TaskState.SUCCESS))
    assert world.store.triggers.settle("t", [fired], now=after(2)) == [True]
    [stored] = world.store.events.find(Which(of=ORDERS))
    assert (stored.task_id, stored.happened_at) == ("a", after(2))
    assert queued(world) == [("d", 0)]


def test_an_asset_emitted_through_an_alias_becomes_known_and_starts_who_waits_for_the_alias(world: World) -> None:
    consumer(world, "d", AnyOfAlias("files"), aliases=(AliasSpec("files"),))
    consumer(world, "direct", AssetNamed("new"))
    [attempt] = world.running("a", dag_id="producer")
    new = ThisAsset("new", "s3://new")
    emitted = Emitted(of=new, aliases=("files", "more"), asset_extra={"made": "by task"}, extra={"n": 1})
    world.finish(attempt, outlets=(emitted,))
    [found] = world.store.assets.of_alias("files")
    assert (found.name, found.is_active, found.extra) == ("new", True, {"made": "by task"})
    assert queued(world) == [("d", 0), ("direct", 0)]
    [stored] = world.store.events.find(Which(alias="files"))
    assert stored.extra == {"n": 1}
    assert world.store.events.find(Which(alias="none")) == []
