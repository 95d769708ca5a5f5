"""Watchers: the union of what all DAGs say, wanted while somebody waits, and nobody reads their secrets."""

from contextlib import closing
from typing import Any

import pytest
from store.world import KEY, NOW, World, task

from stannel.model.asset import AnyOf, AssetNamed, AssetSpec, Condition, ThisAsset, WatcherSpec
from stannel.model.dag import DagSpec
from stannel.model.schedule import Never, OnAssets
from stannel.model.trigger import Event, Firing
from stannel.store import Store
from stannel.store.database import TRIGGERER
from stannel.store.signals import wait
from stannel.store.vault import Vault

ORDERS = ThisAsset("orders", "orders")
NEWEST = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="


def watched(*names: str, password: str = "s3cret", queue: str | None = None) -> AssetSpec:
    watchers = tuple(
        WatcherSpec(name=name, classpath="a.Trigger", kwargs={"topic": name, "password": password}, queue=queue)
        for name in names
    )
    return AssetSpec(name="orders", uri="orders", watchers=watchers)


def save(world: World, dag_id: str, *assets: AssetSpec, on: Condition | None = ORDERS, **fields: Any) -> None:
    schedule = OnAssets(on) if on is not None else Never()
    outlets = () if on is not None else (ORDERS,)
    one = DagSpec(
        dag_id=dag_id,
        fileloc=f"{dag_id}.py",
        schedule=schedule,
        tasks=(task("t", outlets=outlets),),
        assets=assets,
        **fields,
    )
    world.save(one, path=one.fileloc)


def wanted(world: World) -> list[str]:
    return [f"{one.dag_id}/{one.name}" for one in world.store.watchers.wanted()]


def test_a_watcher_is_wanted_while_a_dag_that_may_run_is_scheduled_on_its_asset(world: World) -> None:
    save(world, "d", watched("w"))
    assert wanted(world) == ["d/w"]
    world.store.dags.pause("d", paused=True)
    assert wanted(world) == []
    world.store.dags.pause("d", paused=False)
    assert wanted(world) == ["d/w"]
    world.store.dags.remove_file("d.py")
    assert wanted(world) == []


def test_an_asset_that_nobody_waits_for_is_not_watched(world: World) -> None:
    save(world, "producer", watched("w"), on=None)
    assert wanted(world) == []
    save(world, "consumer", on=AnyOf((AssetNamed("orders"),)))
    assert wanted(world) == ["producer/w"]
    world.store.dags.pause("consumer", paused=True)
    assert wanted(world) == []


def test_watchers_are_the_union_of_what_all_files_say(world: World) -> None:
    save(world, "one", watched("a"))
    save(world, "two", watched("b"))
    save(world, "three", watched())
    assert wanted(world) == ["one/a", "two/b"]
    world.store.dags.pause("one", paused=True)
    assert wanted(world) == ["one/a", "two/b"]
    world.store.dags.remove_file("one.py")
    assert wanted(world) == ["two/b"]


def test_only_what_changed_is_replaced(world: World) -> None:
    save(world, "d", watched("a", "b"))
    before = {one.name: one.pk for one in world.store.watchers.wanted()}
    save(world, "d", watched("a", "b"))
    assert {one.name: one.pk for one in world.store.watchers.wanted()} == before
    save(world, "d", watched("a"), description="b is gone")
    assert {one.name: one.pk for one in world.store.watchers.wanted()} == {"a": before["a"]}


@pytest.mark.parametrize("change", [{"password": "other"}, {"queue": "gpu"}])
def test_another_argument_or_queue_is_another_watcher(world: World, change: dict[str, Any]) -> None:
    save(world, "d", watched("w"))
    [before] = world.store.watchers.wanted()
    with closing(world.store.listen(TRIGGERER)) as listener:
        save(world, "d", watched("w", **change))
        assert wait(listener, 10.0)
    [after] = world.store.watchers.wanted()
    assert (before.pk, before.digest) != (after.pk, after.digest)


def test_equal_triggers_of_different_dags_have_equal_digests(world: World) -> None:
    save(world, "one", watched("w"))
    save(world, "two", watched("w"))
    assert len({one.digest for one in world.store.watchers.wanted()}) == 1


def test_the_arguments_of_a_watcher_are_kept_secret(world: World) -> None:
    save(world, "d", watched("w"))
    stored = str(world.sql("SELECT * FROM watcher")) + str(world.sql("SELECT * FROM dag_version"))
    assert "s3cret" not in stored
    assert "topic" not in stored
    [found] = world.store.watchers.wanted()
    assert found.kwargs == {"topic": "w", "password": "s3cret"}


def test_resealing_leaves_watchers_readable_by_the_newest_key_alone(world: World) -> None:
    save(world, "d", watched("w"))
    rotating = Store(world.store.database, Vault(f"{NEWEST},{KEY}"))
    assert rotating.watchers.reseal() == 1
    [found] = Store(world.store.database, Vault(NEWEST)).watchers.wanted()
    assert found.kwargs["password"] == "s3cret"
    # The file read again under the new key finds its own watcher.
    save(World(rotating), "d", watched("w"))
    assert [one.pk for one in rotating.watchers.wanted()] == [found.pk]


def fire(world: World, *events: Event) -> list[bool]:
    """What the watcher of the DAG fires, told by its owner."""
    [one] = world.triggers()
    return world.store.triggers.settle(
        "t", [Firing(id=one.id, epoch=one.epoch, what=what, is_watch=True) for what in events], now=NOW
    )


def states(world: World) -> dict[str, Any]:
    return {one.key: one.value for one in world.store.state_stores.of_assets(name="orders")}


def test_a_claimed_watcher_knows_the_assets_it_serves(world: World) -> None:
    save(world, "d", watched("w"))
    [one] = world.triggers()
    assert one.watch is not None
    assert one.watch.assets == (("orders", "orders"),)


def test_the_state_of_an_event_is_kept_with_its_asset(world: World) -> None:
    save(world, "d", watched("w"))
    assert fire(world, Event(payload=1, state={"cursor": 1, "a": 1}), Event(payload=2, state={"cursor": 2, "a": None}))
    assert states(world) == {"cursor": 2}


def test_an_event_that_is_told_again_does_not_turn_its_cursor_back(world: World) -> None:
    save(world, "d", watched("w"))
    first = Event(identity="1", state={"cursor": 1})
    assert fire(world, first, Event(identity="2", state={"cursor": 2}), first) == [True] * 3
    assert states(world) == {"cursor": 2}


def test_the_state_of_an_event_that_is_refused_is_not_kept(world: World) -> None:
    save(world, "d", watched("w"))
    [one] = world.triggers()
    late = Firing(id=one.id, epoch=one.epoch - 1, what=Event(state={"cursor": 1}), is_watch=True)
    assert world.store.triggers.settle("t", [late], now=NOW) == [False]
    assert states(world) == {}
