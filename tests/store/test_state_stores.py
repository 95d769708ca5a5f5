"""State stores in the database: scopes, expiry, changes that are made together, and what a success clears."""

import contextlib
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from store.world import NOW, World, after, task

from stannel.model.asset import AssetNamed, AssetSpec, ThisAsset
from stannel.model.moments import to_micros
from stannel.model.run import Attempt
from stannel.model.state_store import AssetScope, Change, Put, StateRefused, TaskScope
from stannel.model.states import TaskState
from stannel.model.trigger import Event, Firing
from stannel.store import Store
from stannel.store.state_stores import AssetKeeper, Keeper, TaskKeeper, save_asset_state


def keeper(attempt: Attempt, *, writes: bool = True) -> TaskKeeper:
    scope = TaskScope(attempt.dag_id, attempt.run_id, attempt.task_id, attempt.map_index)
    return TaskKeeper(attempt.run.pk, scope, *((attempt.ti_pk, attempt.attempt_id) if writes else ()))


def puts(expires_at: datetime | None = None, **values: Any) -> dict[str, Put]:
    return {key: Put(msgspec.json.encode(value).decode(), expires_at) for key, value in values.items()}


class Keys:
    """One owner's keys, in few words."""

    def __init__(self, store: Store, owner: Keeper) -> None:
        self.store, self.owner = store, owner

    def put(self, at: datetime = NOW, expires_at: datetime | None = None, **values: Any) -> bool:
        return self.store.state_stores.change(self.owner, Change(put=puts(expires_at, **values)), now=at)

    def change(self, **change: Any) -> bool:
        return self.store.state_stores.change(self.owner, Change(**change), now=NOW)

    def get(self, key: str, at: datetime = NOW) -> Any:
        found = self.store.state_stores.get(self.owner, key, now=at)
        return None if found is None else msgspec.json.decode(found)


@pytest.fixture
def attempt(world: World) -> Attempt:
    return world.running("a", "b")[0]


@pytest.fixture
def keys(world: World, attempt: Attempt) -> Keys:
    return Keys(world.store, keeper(attempt))


@pytest.fixture
def asset_keys(world: World) -> Keys:
    orders = AssetSpec(name="orders", uri="s3://orders")
    world.dag(task("t", outlets=(ThisAsset("orders", "s3://orders"),)), assets=(orders,))
    found = world.store.assets.find(AssetNamed("orders"))
    assert found is not None
    return Keys(world.store, AssetKeeper(AssetScope(found.pk, found.name, found.uri), {"kind": "task", "dag_id": "d"}))


def test_a_key_is_kept_overwritten_and_forgotten(keys: Keys) -> None:
    assert keys.get("a/b") is None
    keys.put(**{"a/b": [1], "c": 0})
    keys.put(**{"a/b": {"x": None}})
    assert (keys.get("a/b"), keys.get("c")) == ({"x": None}, 0)
    keys.change(remove=("a/b", "nothing"))
    assert keys.get("a/b") is None
    keys.store.state_stores.clear(keys.owner)
    assert keys.get("c") is None


def test_every_task_instance_has_keys_of_its_own(world: World) -> None:
    mine, sibling = (Keys(world.store, keeper(one)) for one in world.running("a", "b"))
    mine.put(k=1)
    other_index = TaskKeeper(mine.owner.run_pk, TaskScope("d", "r", "a", 3))  # type: ignore[union-attr]
    assert sibling.get("k") is None
    assert Keys(world.store, other_index).get("k") is None
    world.store.state_stores.clear(sibling.owner)
    assert mine.get("k") == 1


def test_an_expired_key_is_not_there_and_then_deleted(keys: Keys) -> None:
    keys.put(expires_at=after(60), short=1)
    keys.put(long=2)
    assert (keys.get("short", after(59)), keys.get("short", after(60))) == (1, None)
    states = keys.store.state_stores
    assert (states.expired(after(59)), states.expired(after(60))) == (0, 1)
    assert states.delete_expired(after(60), 10) == 1
    assert states.delete_expired(after(60), 10) == 0
    assert keys.get("long", after(10**6)) == 2


def test_expired_keys_are_deleted_a_few_at_a_time(keys: Keys) -> None:
    keys.put(expires_at=after(1), **{f"k{number}": number for number in range(7)})
    states = keys.store.state_stores
    assert [states.delete_expired(after(2), 3) for _ in range(4)] == [3, 3, 1, 0]


def test_a_later_set_gives_a_key_a_new_life(keys: Keys) -> None:
    keys.put(expires_at=after(60), k=1)
    keys.put(k=2)
    assert keys.get("k", after(10**6)) == 2


@pytest.mark.parametrize("owner", ["keys", "asset_keys"])
def test_changes_are_made_together_or_not_at_all(request: pytest.FixtureRequest, world: World, owner: str) -> None:
    keys: Keys = request.getfixturevalue(owner)
    assert keys.change(put=puts(a=1, b=2), expect={"a": None, "b": None, "c": None})
    assert (keys.get("a"), keys.get("b"), keys.get("c")) == (1, 2, None)
    for expect in ({"a": 2}, {"a": None}, {"a": 1, "c": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}):
        assert not keys.change(put=puts(a=9, c=9), remove=("b",), expect=expect), expect
        assert (keys.get("a"), keys.get("b"), keys.get("c")) == (1, 2, None)
    assert keys.change(put=puts(c=3), remove=("b",), expect={"a": 1, "b": 2})
    assert (keys.get("a"), keys.get("b"), keys.get("c")) == (1, None, 3)


def test_values_are_compared_by_what_they_mean(keys: Keys) -> None:
    keys.put(k={"b": [1, 2], "a": "ü"})
    assert keys.change(put=puts(k=1), expect={"k": {"a": "ü", "b": [1, 2]}})


def test_an_expired_key_counts_as_missing_when_it_is_compared(keys: Keys) -> None:
    keys.put(at=NOW - timedelta(hours=1), expires_at=NOW - timedelta(minutes=1), k=1)
    assert not keys.change(put=puts(k=2), expect={"k": 1})
    assert keys.change(put=puts(k=2), expect={"k": None})
    assert keys.get("k") == 2


@pytest.mark.parametrize("owner", ["keys", "asset_keys"])
@pytest.mark.parametrize("begin", [lambda keys: None, lambda keys: keys.put(n=0)], ids=["missing", "there"])
def test_of_many_who_compare_and_set_at_once_one_wins(
    request: pytest.FixtureRequest, world: World, owner: str, begin: Callable[[Keys], Any]
) -> None:
    keys: Keys = request.getfixturevalue(owner)
    begin(keys)
    barrier, won = threading.Barrier(4), []

    def contend(number: int) -> None:
        expected = keys.get("n")
        barrier.wait()
        if keys.change(put=puts(n=number), expect={"n": expected}):
            won.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [keys.get("n")] == won


def test_keys_survive_a_retry_and_a_clear_and_die_with_the_run(world: World, attempt: Attempt, keys: Keys) -> None:
    keys.put(k=1)
    world.finish(attempt, TaskState.UP_FOR_RETRY, retry_at=after(1))
    assert keys.get("k") == 1
    world.store.tasks.clear(world.run(), [attempt.ti_pk], now=after(2))
    assert keys.get("k") == 1
    world.store.runs.delete(world.run())
    assert world.sql("SELECT count(*) FROM task_state") == [(0,)]


def test_a_late_attempt_cannot_write_any_more(world: World, attempt: Attempt, keys: Keys) -> None:
    keys.put(k=1)
    world.finish(attempt, TaskState.UP_FOR_RETRY, retry_at=after(1))
    world.schedule(after(2))
    world.queue(after(2))
    for write in (lambda: keys.put(k=2), lambda: keys.store.state_stores.clear(keys.owner)):
        with pytest.raises(StateRefused, match="Another attempt") as refusal:
            write()
        assert refusal.value.status == 409
    assert keys.get("k") == 1


def test_nothing_is_written_for_a_run_that_is_gone(world: World, keys: Keys) -> None:
    world.store.runs.delete(world.run())
    with pytest.raises(StateRefused, match="gone") as refusal:
        keys.put(k=2)
    assert refusal.value.status == 404


# --- clear_on_success -------------------------------------------------------------------------------------------------


def clearing(world: World) -> Store:
    """The same store as `clear_on_success` makes it."""
    return Store(world.store.database, world.store.attempts._vault, clears_state=True)


@pytest.mark.parametrize("state", [TaskState.SUCCESS, TaskState.FAILED, TaskState.SKIPPED])
def test_only_a_success_clears_and_only_its_own_keys(world: World, state: TaskState) -> None:
    first, second = world.running("a", "b")
    kept = [Keys(world.store, keeper(one)) for one in (first, second)]
    for one in kept:
        one.put(k=1)
    assert World(clearing(world)).finish(first, state)
    assert [one.get("k") for one in kept] == [None if state is TaskState.SUCCESS else 1, 1]


def test_without_the_setting_a_success_clears_nothing(world: World, attempt: Attempt, keys: Keys) -> None:
    keys.put(k=1)
    world.finish(attempt)
    assert keys.get("k") == 1


def test_a_success_that_is_refused_clears_nothing(world: World, attempt: Attempt, keys: Keys) -> None:
    keys.put(k=1)
    world.finish(attempt, TaskState.UP_FOR_RETRY, retry_at=after(1))
    assert not World(clearing(world)).finish(attempt)
    assert keys.get("k") == 1


def test_a_persons_verdict_of_success_clears(world: World, attempt: Attempt, keys: Keys) -> None:
    keys.put(k=1)
    store = clearing(world)
    store.tasks.set_state(world.run(), [attempt.ti_pk], TaskState.FAILED, now=NOW)
    assert keys.get("k") == 1
    store.tasks.set_state(world.run(), [attempt.ti_pk], TaskState.SUCCESS, now=NOW)
    assert keys.get("k") is None


def test_a_success_by_the_trigger_clears(world: World) -> None:
    [attempt] = world.deferred("a")
    keys = Keys(world.store, keeper(attempt))
    keys.put(k=1)
    [waiting] = world.triggers()
    firing = Firing(id=waiting.id, epoch=waiting.epoch, what=Event(ends=TaskState.SUCCESS))
    assert clearing(world).triggers.settle("t", [firing], now=NOW) == [True]
    assert keys.get("k") is None


# --- assets -----------------------------------------------------------------------------------------------------------


def test_a_value_of_an_asset_says_who_wrote_it(asset_keys: Keys) -> None:
    asset_keys.put(watermark="2026-11-15")
    [found] = asset_keys.store.state_stores.of_assets(name="orders")
    assert (found.key, found.value, found.writer) == ("watermark", "2026-11-15", {"kind": "task", "dag_id": "d"})
    assert asset_keys.store.state_stores.of_assets(name="other") == []


class EventLost(Exception):
    """The event that the state belongs to could not be stored."""


def test_state_can_be_saved_in_the_transaction_of_something_else(asset_keys: Keys) -> None:
    store, owner = asset_keys.store, asset_keys.owner
    assert isinstance(owner, AssetKeeper)
    asset_keys.put(old=1)
    with contextlib.suppress(EventLost), store.transaction() as tx:
        save_asset_state(tx, owner, {"cursor": 7}, to_micros(NOW))
        raise EventLost
    assert asset_keys.get("cursor") is None
    with store.transaction() as tx:
        save_asset_state(tx, owner, {"cursor": 7, "old": None}, to_micros(NOW))
    assert (asset_keys.get("cursor"), asset_keys.get("old")) == (7, None)


def test_people_see_the_keys_of_one_run_or_of_all(world: World) -> None:
    first, second = (Keys(world.store, keeper(one)) for one in world.running("a", "b"))
    first.put(x=1, y=[2])
    second.put(expires_at=after(60), z=3)
    states = world.store.state_stores

    def shown(**which: Any) -> list[tuple[str, str, Any]]:
        return [(one.scope.task_id, one.key, one.value) for one in states.of_tasks(now=NOW, **which)]  # type: ignore[union-attr]

    assert shown() == [("a", "x", 1), ("a", "y", [2]), ("b", "z", 3)]
    assert shown(dag_id="d", run_id="r", task_id="b") == [("b", "z", 3)]
    assert shown(limit=1) == [("a", "x", 1)]
    assert shown(dag_id="other") == []
    assert [one.key for one in states.of_tasks(now=after(61))] == ["x", "y"]
