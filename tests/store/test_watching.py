"""Watchers in the store: one trigger for equal ones, one owner for each stream, and events only from who holds it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from store.test_watchers import ORDERS, save
from store.world import NOW, World, after

from stannel.model.asset import AssetSpec, ThisAsset, WatcherSpec
from stannel.model.trigger import CancelReason, Event, Failure, Firing, Paced, Trigger
from stannel.store.events import StoredEvent, Which
from stannel.store.trigger_records import WatchRecord


def orders(*names: str, stream: str | None = None, asset: str = "orders", queue: str | None = None) -> AssetSpec:
    watchers = tuple(
        WatcherSpec(name=name, classpath="a.Trigger", kwargs={"topic": name}, stream_key=stream, queue=queue)
        for name in names
    )
    return AssetSpec(name=asset, uri=asset, watchers=watchers)


def fired(one: Trigger, payload: Any = None, **fields: Any) -> Firing:
    return Firing(id=one.id, epoch=one.epoch, what=Event(payload=payload, **fields), is_watch=True)


def settle(world: World, owner: str, *firings: Firing) -> list[bool]:
    return world.store.triggers.settle(owner, firings, now=NOW)


def events(world: World, of: ThisAsset = ORDERS) -> list[StoredEvent]:
    return world.store.events.find(Which(of=of))


def record(world: World) -> WatchRecord:
    [one] = world.store.triggers.all()
    assert one.watch is not None
    return one.watch


def names(claimed: list[Trigger]) -> set[str]:
    return {one.watch.name for one in claimed if one.watch is not None}


# --- which triggers there are -----------------------------------------------------------------------------------------


def test_there_is_one_trigger_for_equal_watchers_while_one_of_them_is_wanted(world: World) -> None:
    save(world, "one", orders("w"))
    save(world, "two", orders("w", asset="payments"), on=ThisAsset("payments", "payments"))
    assert len(world.store.triggers.all()) == 1
    world.store.dags.remove_file("one.py")
    assert len(world.store.triggers.all()) == 1
    world.store.dags.remove_file("two.py")
    assert world.store.triggers.all() == []


def test_a_watcher_that_runs_and_is_not_wanted_any_more_is_stopped_by_its_owner(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    world.store.dags.pause("d", paused=True)
    # Told until it is forgotten: until then it may have more to say.
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.UNWANTED)]
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.UNWANTED)]
    assert settle(world, "t", fired(one, "late")) == [True]
    world.store.triggers.forget("t", [one.id])
    assert world.store.triggers.all() == []
    assert [event.extra["payload"] for event in events(world)] == ["late"]


def test_one_that_is_wanted_again_before_it_has_stopped_is_another(world: World) -> None:
    save(world, "d", orders("w"))
    [old] = world.triggers("t")
    world.store.dags.pause("d", paused=True)
    world.store.dags.pause("d", paused=False)
    [new] = world.triggers("t")
    assert new.id != old.id
    assert world.store.triggers.orders("t") == [(old.id, CancelReason.UNWANTED)]


def test_a_paused_dag_keeps_its_place_in_a_stream_that_goes_on_for_others(world: World) -> None:
    save(world, "one", orders("a", stream="k"))
    save(world, "two", orders("b", stream="k", asset="payments"), on=ThisAsset("payments", "payments"))
    save(world, "three", orders("c", asset="refunds"), on=ThisAsset("refunds", "refunds"))
    world.store.dags.pause("two", paused=True)
    world.store.dags.pause("three", paused=True)
    assert names(world.triggers("t")) == {"a", "b"}
    world.store.dags.pause("one", paused=True)
    assert [reason for _, reason in world.store.triggers.orders("t")] == [CancelReason.UNWANTED] * 2


def test_another_stream_key_is_another_trigger(world: World) -> None:
    save(world, "d", orders("w", stream="k"))
    [old] = world.triggers("t")
    save(world, "d", orders("w", stream="other"))
    [new] = world.triggers("t")
    assert (new.watch and new.watch.stream_key, new.id != old.id) == ("other", True)


def test_a_trigger_too_many_or_too_few_is_repaired(world: World) -> None:
    save(world, "d", orders("a", "b"))
    assert not world.store.watchers.match()
    world.plant("DELETE FROM \"trigger\" WHERE watcher = 'a'", "UPDATE watcher SET is_wanted = 0 WHERE name = 'b'")
    assert world.store.watchers.match()
    assert [one.watch.name for one in world.store.triggers.all() if one.watch] == ["a"]


def test_resealing_keeps_the_triggers_that_run(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    assert world.store.watchers.reseal() == 1
    assert not world.store.watchers.match()
    assert settle(world, "t", fired(one)) == [True]


# --- who may run them -------------------------------------------------------------------------------------------------


def test_watchers_of_one_stream_are_claimed_together_though_there_is_no_room(world: World) -> None:
    save(world, "d", orders("a", "b", "c", stream="k"))
    assert names(world.triggers("t", most=1)) == {"a", "b", "c"}


def test_streams_are_claimed_as_long_as_there_is_room_and_the_rest_by_others(world: World) -> None:
    save(world, "d", orders("a", "b", stream="k"))
    save(world, "e", orders("c", "d", stream="l", asset="payments"), on=ThisAsset("payments", "payments"))
    assert names(world.triggers("t", most=2)) == {"a", "b"}
    assert names(world.triggers("u", most=2)) == {"c", "d"}


def test_one_that_comes_later_is_claimed_by_who_has_its_stream_and_by_nobody_else(world: World) -> None:
    save(world, "d", orders("a", stream="k"))
    world.triggers("t")
    save(world, "d", orders("a", "b", stream="k"))
    assert world.triggers("u") == []
    assert names(world.store.triggers.claim_owed("t", most=10, queues=None, now=NOW)) == {"b"}


def test_streams_of_the_same_key_in_different_queues_are_different_streams(world: World) -> None:
    save(world, "d", orders("a", stream="k"))
    save(world, "e", orders("b", stream="k", queue="gpu", asset="payments"), on=ThisAsset("payments", "payments"))
    assert names(world.triggers("t")) == {"a"}
    assert names(world.triggers("u", queues=["gpu"])) == {"b"}


def test_a_stream_of_an_owner_that_died_is_taken_over_as_a_whole(world: World) -> None:
    save(world, "d", orders("a", "b", stream="k"))
    old = world.triggers("t")
    assert world.triggers("u") == []
    assert world.store.triggers.take_over(after(60)) == 2
    new = world.triggers("u")
    assert names(new) == {"a", "b"}
    assert settle(world, "t", fired(old[0])) == [False]
    assert settle(world, "u", fired(new[0])) == [True]


def test_owners_of_one_stream_that_differ_are_a_contradiction(world: World) -> None:
    save(world, "d", orders("a", "b", stream="k"))
    world.triggers("t")
    assert world.store.upkeep.check() == []
    world.plant("UPDATE \"trigger\" SET owner = 'u' WHERE watcher = 'a'")
    assert [one.what for one in world.store.upkeep.check()] == ["watchers of one stream have different owners"]


# --- what they fire ---------------------------------------------------------------------------------------------------


def test_what_a_watcher_fires_is_an_event_of_every_asset_it_serves_and_it_goes_on(world: World) -> None:
    payments = ThisAsset("payments", "payments")
    save(world, "one", orders("w"))
    save(world, "two", orders("w", asset="payments"), on=payments)
    [one] = world.triggers("t")
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    firing = fired(one, {"n": 1}, identity="x", key="eu", extra={"rows": 3}, timestamp=moment)
    assert settle(world, "t", firing, fired(one, 2)) == [True, True]
    for of in (ORDERS, payments):
        first, second = events(world, of)
        assert first.extra == {"from_trigger": True, "payload": {"n": 1}, "rows": 3}
        assert (first.identity, first.partition_key, first.happened_at) == ("x", "eu", moment)
        assert second.extra["payload"] == 2
    assert (record(world).events, record(world).last_event_at) == (2, NOW)
    assert world.sql("SELECT dag_id, count(*) FROM event_queue GROUP BY dag_id ORDER BY 1") == [("one", 2), ("two", 2)]


def test_an_event_that_was_stored_before_is_accepted_and_only_counted(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    same = fired(one, "a", identity="p/1")
    assert settle(world, "t", same, same) == [True, True]
    assert settle(world, "t", same) == [True]
    [event] = events(world)
    assert event.repeats == 2
    assert world.sql("SELECT count(*) FROM event_queue") == [(1,)]


@pytest.mark.parametrize(("owner", "epoch"), [("u", 1), ("t", 7)])
def test_events_of_who_does_not_hold_the_watcher_are_refused(world: World, owner: str, epoch: int) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    firing = Firing(id=one.id, epoch=epoch, what=Event(payload=1), is_watch=True)
    assert settle(world, owner, firing) == [False]
    assert (events(world), record(world).events) == ([], 0)


def test_a_refused_event_does_not_keep_others_of_its_batch_from_being_stored(world: World) -> None:
    save(world, "d", orders("a", "b"))
    first, second = world.triggers("t")
    world.store.triggers.release("t", [first.id])
    assert settle(world, "t", fired(first), fired(second, "b")) == [False, True]
    assert [event.extra["payload"] for event in events(world)] == ["b"]


def test_a_failure_is_remembered_until_the_next_event(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    failure = Failure(error="Trigger failure", traceback=["Traceback", "ValueError: no such topic", ""])
    firing = Firing(id=one.id, epoch=one.epoch, what=failure, is_watch=True, again_at=after(5))
    assert settle(world, "t", firing, firing) == [True, True]
    found = record(world)
    assert (found.attempts, found.next_at, found.last_error) == (2, after(5), "ValueError: no such topic")
    world.store.triggers.release("t")
    [again] = world.triggers("u")
    assert again.watch is not None
    assert (again.watch.attempts, again.watch.next_at) == (2, after(5))
    assert settle(world, "u", fired(again)) == [True]
    assert (record(world).attempts, record(world).next_at) == (0, None)


def test_a_watcher_that_is_held_back_says_so(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    for trouble in ("it repeats itself", None):
        told = Firing(id=one.id, epoch=one.epoch, what=Paced(trouble=trouble), is_watch=True)
        assert settle(world, "t", told) == [True]
        assert record(world).trouble == trouble


def test_a_watcher_is_told_once_to_begin_anew_and_forgets_its_failures(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.triggers("t")
    firing = Firing(id=one.id, epoch=one.epoch, what=Failure(), is_watch=True, again_at=after(5))
    settle(world, "t", firing)
    assert world.store.triggers.redrive([one.id, 77]) == 1
    assert record(world).next_at is None
    assert world.store.triggers.orders("t") == [(one.id, CancelReason.RESTARTED)]
    assert world.store.triggers.orders("t") == []


def test_a_watcher_cannot_be_cancelled(world: World) -> None:
    save(world, "d", orders("w"))
    [one] = world.store.triggers.all()
    assert not world.store.triggers.cancel(one.id, now=NOW)
