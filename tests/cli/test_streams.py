"""Shared streams from the command line: who reads them, how far they are, and how to push them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from store.world import World, task

from stannel.model.asset import AssetSpec, ThisAsset, WatcherSpec
from stannel.model.dag import DagSpec
from stannel.model.schedule import OnAssets
from stannel.model.trigger import CancelReason
from stannel.store.store import Store

KEY = "('kafka', 'orders')"
FIGURES: dict[str, Any] = {
    "key": KEY,
    "subscribers": 2,
    "online": 1,
    "depth": 7,
    "lanes": 3,
    "outstanding": 9,
    "oldest_age": 12.34,
    "owed_by": [2],
    "admitted": 100,
    "advanced": 91,
    "failed": 1,
    "rejected": 0,
    "redelivered": 2,
    "per_second": 5.5,
}


@pytest.fixture
def reading(store: Store) -> World:
    """Two watchers of one stream, and one of another."""
    watchers = [
        WatcherSpec(name=name, classpath="a.B", kwargs={"name": name}, stream_key=key)
        for name, key in (("eu", KEY), ("us", KEY), ("other", "('kafka', 'payments')"))
    ]
    spec = DagSpec(
        dag_id="d",
        fileloc="d.py",
        schedule=OnAssets(ThisAsset("orders", "orders")),
        tasks=(task("t"),),
        assets=(AssetSpec(name="orders", uri="orders", watchers=tuple(watchers)),),
    )
    world = World(store)
    world.save(spec, path="d.py")
    return world


def claim(store: Store) -> None:
    now = datetime.now(UTC)
    store.leases.take("triggerer-1", "triggerer", hostname="here", pid=77, now=now, seconds=600)
    store.leases.renew("triggerer-1", now=now, seconds=600, detail={"streams": [FIGURES]})
    store.triggers.claim("triggerer-1", most=10, queues=None, now=now)


def test_streams_are_listed_with_what_their_owner_said_last(stannel, reading, store):
    claim(store)
    orders, payments = stannel.json("streams", "list")
    assert (orders["key"], orders["owner"], orders["watchers"], orders["outstanding"]) == (KEY, "triggerer-1", 2, 9)
    assert (payments["watchers"], payments["outstanding"]) == (1, None)


def test_streams_that_nobody_runs_are_listed_too(stannel, reading):
    assert [row["owner"] for row in stannel.json("streams", "list")] == [None, None]
    assert stannel("streams", "outstanding").stderr == "Nothing is outstanding.\n"


def test_one_is_shown_by_a_part_of_its_key_with_who_reads_it(stannel, reading, store):
    claim(store)
    shown = stannel.json("streams", "show", "orders")
    assert (shown["redelivered"], shown["lanes"], shown["oldest_seconds"]) == (2, 3, 12.3)
    assert [(one["watcher"], one["owes_oldest"]) for one in shown["members"]] == [("eu", False), ("us", True)]
    assert "us" in stannel("streams", "show", KEY).stdout


@pytest.mark.parametrize(("key", "answer"), [("kafka", "in the keys of 2 streams"), ("rabbit", "No stream has")])
def test_a_key_that_names_none_or_several_is_refused(stannel, reading, key, answer):
    assert answer in stannel("streams", "show", key, code=1).stderr


def test_what_is_owed_names_who_owes_it(stannel, reading, store):
    claim(store)
    [row] = stannel.json("streams", "outstanding")
    assert (row["oldest_seconds"], row["owed_by"]) == (12.3, ["orders/us (2)"])
    assert [row["key"] for row in stannel.json("streams", "lag")] == [KEY, "('kafka', 'payments')"]


def test_redriving_tells_the_owner_to_begin_anew(stannel, reading, store):
    claim(store)
    assert "2 watchers of" in stannel("streams", "redrive", "orders").output
    assert store.triggers.orders("triggerer-1") == [(1, CancelReason.RESTARTED), (2, CancelReason.RESTARTED)]
    assert "1 watchers of" in stannel("streams", "redrive", "orders", "--id", "2").output
    assert store.triggers.orders("triggerer-1") == [(2, CancelReason.RESTARTED)]
    assert store.triggers.orders("triggerer-1") == []
    assert "is not read by 3" in stannel("streams", "redrive", "orders", "--id", "3", code=1).stderr


def test_no_stream_is_said_in_words(stannel, store):
    assert stannel("streams", "list").stderr == "No watcher reads a shared stream.\n"
