"""Watchers run while somebody waits for their asset; what they fire is stored as events, and their streams hear it."""

import json
import os
import signal
from typing import Any

import pytest
from store.world import task
from support.durable_queue import MODULE, DurableQueue
from triggerer.conftest import Rig

from stannel.model.asset import AssetSpec, ThisAsset, WatcherSpec
from stannel.model.dag import DagSpec
from stannel.model.schedule import OnAssets
from stannel.store.events import Which
from stannel.store.trigger_records import TriggerRecord

MORE = """
import asyncio, os
from datetime import datetime, timezone
from pathlib import Path
from stannel.triggers.base import BaseEventTrigger, TriggerEvent

class Watching(BaseEventTrigger):
    def __init__(self, **kwargs):
        super().__init__()
        self.kwargs = kwargs
    def serialize(self):
        return f"watches.{type(self).__name__}", self.kwargs
    def mark(self, text):
        with open(self.kwargs["marks"], "a") as file:
            file.write(text + "\\n")

class Lines(Watching):
    # Fires for every new line of a file, for ever.
    async def run(self):
        if "marks" in self.kwargs:
            self.mark(f"run {os.getpid()}")
        seen = 0
        while True:
            path = Path(self.kwargs["path"])
            lines = path.read_text().splitlines() if path.exists() else []
            for line in lines[seen:]:
                yield TriggerEvent(line, identity=line)
            seen = len(lines)
            await asyncio.sleep(0.02)
    async def on_kill(self):
        self.mark("on_kill")
    async def cleanup(self):
        if "marks" in self.kwargs:
            self.mark("cleanup")

class Exists(Watching):
    # Its condition stays true.
    async def run(self):
        while not Path(self.kwargs["path"]).exists():
            await asyncio.sleep(0.02)
        yield TriggerEvent("it is there")

class Once(Watching):
    # Takes the first line away, fires it and ends.
    async def run(self):
        path = Path(self.kwargs["path"])
        while not (path.exists() and path.read_text()):
            await asyncio.sleep(0.01)
        first, *rest = path.read_text().splitlines()
        yield TriggerEvent(first)
        path.write_text("".join(line + "\\n" for line in rest))

class Rich(Watching):
    async def run(self):
        moment = datetime(2026, 1, 2, tzinfo=timezone.utc)
        yield TriggerEvent({"n": 1}, identity="one", key="eu", extra={"rows": 3}, timestamp=moment)
        await asyncio.sleep(3600)

class Breaks(Watching):
    async def run(self):
        self.mark("run")
        if len(Path(self.kwargs["marks"]).read_text().splitlines()) <= self.kwargs.get("times", 1000):
            raise ValueError("no such topic")
        yield TriggerEvent("at last")
        await asyncio.sleep(3600)
"""


def save(
    rig: Rig, *watchers: WatcherSpec, dag_id: str = "d", asset: str = "orders", fileloc: str | None = None
) -> None:
    """A DAG that waits for an asset with these watchers."""
    one = DagSpec(
        dag_id=dag_id,
        fileloc=fileloc or f"{dag_id}.py",
        schedule=OnAssets(ThisAsset(asset, asset)),
        tasks=(task("t"),),
        assets=(AssetSpec(name=asset, uri=asset, watchers=watchers),),
    )
    rig.world.save(one, path=one.fileloc)


def watch(
    trigger: str, /, name: str = "w", stream: str | None = None, queue: str | None = None, **kwargs: Any
) -> WatcherSpec:
    classpath = trigger if "." in trigger else f"watches.{trigger}"
    return WatcherSpec(name=name, classpath=classpath, kwargs=kwargs, queue=queue, stream_key=stream)


def payloads(rig: Rig, asset: str = "orders") -> list[Any]:
    found = rig.store.events.find(Which(of=ThisAsset(asset, asset)))
    return [one.extra["payload"] for one in found]


def rows(rig: Rig) -> list[TriggerRecord]:
    return [one for one in rig.store.triggers.all() if one.watch is not None]


@pytest.fixture(autouse=True)
def _code(request: pytest.FixtureRequest) -> None:
    for name in ("rig", "one_rig"):
        if name in request.fixturenames:
            found = request.getfixturevalue(name)
            found.module("watches", MORE)
            found.module("queues", MODULE)


def test_what_a_watcher_fires_is_an_event_that_waits_for_the_dag(rig: Rig) -> None:
    rig.file.write_text("a\nb\n")
    save(rig, watch("Lines", path=str(rig.file)))
    rig.start()
    rig.until(lambda: payloads(rig) == ["a", "b"])
    with rig.file.open("a") as file:
        file.write("c\n")
    rig.until(lambda: payloads(rig) == ["a", "b", "c"])
    [event, *_] = rig.store.events.find(Which(of=ThisAsset("orders", "orders")))
    assert (event.extra["from_trigger"], event.source) == (True, "watcher")
    assert rig.world.sql("SELECT count(*) FROM event_queue WHERE dag_id = 'd'") == [(3,)]
    [one] = rows(rig)
    assert one.watch is not None
    assert (one.watch.events, one.watch.asset, one.watch.name) == (3, "orders", "w")


def test_an_event_may_say_which_it_is_what_it_is_about_and_when_it_happened(rig: Rig) -> None:
    save(rig, watch("Rich"))
    rig.start()
    [event] = rig.until(lambda: rig.store.events.find(Which(of=ThisAsset("orders", "orders"))))
    assert (event.identity, event.partition_key, event.happened_at.isoformat()) == (
        "one",
        "eu",
        "2026-01-02T00:00:00+00:00",
    )
    assert event.extra == {"from_trigger": True, "payload": {"n": 1}, "rows": 3}


def test_the_same_event_told_again_is_only_counted(rig: Rig) -> None:
    rig.file.write_text("a\nb\n")
    save(rig, watch("Lines", path=str(rig.file), marks=str(rig.marks)))
    triggerer = rig.start()
    rig.until(lambda: payloads(rig) == ["a", "b"])
    rig.stop(triggerer)
    rig.start()
    rig.until(lambda: [one.repeats for one in rig.store.events.find(Which())] == [1, 1])
    assert payloads(rig) == ["a", "b"]


def test_equal_watchers_of_several_dags_are_one_trigger_that_serves_all_their_assets(rig: Rig) -> None:
    rig.file.write_text("a\n")
    save(rig, watch("Lines", path=str(rig.file)), dag_id="one", asset="orders")
    save(rig, watch("Lines", path=str(rig.file)), dag_id="two", asset="payments")
    rig.start()
    rig.until(lambda: payloads(rig, "orders") == ["a"] and payloads(rig, "payments") == ["a"])
    assert len(rows(rig)) == 1
    rig.world.store.dags.remove_file("one.py")
    with rig.file.open("a") as file:
        file.write("b\n")
    rig.until(lambda: payloads(rig, "payments") == ["a", "b"])
    assert len(rows(rig)) == 1
    assert payloads(rig, "orders") == ["a"]


def test_a_watcher_stops_without_on_kill_when_its_dag_is_paused_and_begins_again_after(rig: Rig) -> None:
    save(rig, watch("Lines", path=str(rig.file), marks=str(rig.marks)))
    rig.start()
    rig.until_marked("run")
    rig.store.dags.pause("d", paused=True)
    rig.until_marked("cleanup")
    rig.until(lambda: rig.store.triggers.all() == [])
    rig.store.dags.pause("d", paused=False)
    rig.until(lambda: rig.marked().count("run") == 2)
    assert "on_kill" not in rig.marked()


def test_an_edited_watcher_replaces_the_one_before(rig: Rig) -> None:
    other = rig.folder / "other"
    save(rig, watch("Lines", path=str(rig.file), marks=str(rig.marks)))
    rig.start()
    rig.until_marked("run")
    save(rig, watch("Lines", path=str(other)))
    rig.until_marked("cleanup")
    other.write_text("x\n")
    rig.until(lambda: payloads(rig) == ["x"])
    rig.until(lambda: len(rows(rig)) == 1)


def test_a_watcher_that_fails_is_tried_again_and_says_why(rig: Rig) -> None:
    save(rig, watch("Breaks", marks=str(rig.marks), times=1))
    rig.start()
    [one] = rig.until(lambda: [one for one in rows(rig) if one.watch and one.watch.last_error])
    assert one.watch is not None
    assert one.watch.last_error == "ValueError: no such topic"
    rig.until(lambda: payloads(rig) == ["at last"])
    [one] = rows(rig)
    assert one.watch is not None
    assert (one.watch.attempts, one.watch.next_at, one.watch.events) == (0, None, 1)
    log = rig.settings.logging.base_log_folder / "watchers/asset=orders/watcher=w.log"
    said = log.read_text()
    assert "ValueError: no such topic" in said
    assert "tried again in" in said


def test_a_pause_after_a_failure_outlasts_the_triggerer(rig: Rig) -> None:
    save(rig, watch("Breaks", marks=str(rig.marks)), dag_id="watched")
    rig.world.plant(f'UPDATE "trigger" SET attempts = 6, next_at = {2**52}')
    rig.start()
    rig.until(lambda: rows(rig)[0].owner)
    rig.defer("Now")
    rig.until_states("scheduled")
    assert rig.marked() == []
    assert rig.store.triggers.redrive([rows(rig)[0].id]) == 1
    rig.until_marked("run")


def test_a_watcher_that_fires_once_begins_again_at_once(rig: Rig) -> None:
    rig.file.write_text("".join(f"{number}\n" for number in range(20)))
    save(rig, watch("Once", path=str(rig.file)))
    rig.start()
    rig.until(lambda: payloads(rig) == [str(number) for number in range(20)])
    assert rows(rig)[0].watch.trouble is None  # type: ignore[union-attr]


def test_a_watcher_whose_condition_stays_true_is_held_back_and_reported(rig: Rig) -> None:
    rig.file.touch()
    save(rig, watch("Exists", path=str(rig.file)))
    rig.start()
    rig.until(lambda: rows(rig)[0].watch.trouble)  # type: ignore[union-attr]
    assert "condition stays true" in str(rows(rig)[0].watch)
    count = len(payloads(rig))
    assert count <= 8
    rig.until(lambda: len(payloads(rig)) > count)


def test_a_watcher_that_cannot_be_made_harms_no_other(rig: Rig) -> None:
    rig.file.write_text("a\n")
    save(rig, watch("no.such.Thing", name="bad"), watch("Lines", path=str(rig.file)))
    rig.start()
    rig.until(lambda: payloads(rig) == ["a"])
    rig.until(lambda: any("no module 'no'" in str(one.watch) for one in rows(rig)))


def test_watchers_begin_anew_when_their_code_has_changed(one_rig: Rig) -> None:
    rig = one_rig
    save(rig, watch("fresh.Fires"))
    text = """
        import asyncio
        from stannel.triggers.base import BaseEventTrigger, TriggerEvent
        class Fires(BaseEventTrigger):
            def serialize(self): return "fresh.Fires", {}
            async def run(self):
                yield TriggerEvent("VERSION", identity="VERSION")
                await asyncio.sleep(3600)
    """
    rig.module("fresh", text.replace("VERSION", "first"))
    rig.start()
    rig.until(lambda: payloads(rig) == ["first"])
    rig.module("fresh", text.replace("VERSION", "second one"))
    rig.until(lambda: payloads(rig) == ["first", "second one"])


# --- streams ----------------------------------------------------------------------------------------------------------


def queue_of(rig: Rig) -> DurableQueue:
    return DurableQueue(rig.folder / "queue.db")


def from_queue(queue: DurableQueue, name: str, kind: str | None = None) -> WatcherSpec:
    key = repr(("queue", str(queue.path)))
    return watch("queues.FromQueue", name, stream=key, path=str(queue.path), kind=kind)


def bodies(first: int, count: int, **more: Any) -> list[str]:
    return [json.dumps({"n": number, **more}) for number in range(first, first + count)]


def numbers(rig: Rig, asset: str) -> list[int]:
    return sorted(one["n"] for one in payloads(rig, asset))


def test_one_stream_serves_many_assets_and_advances_when_all_have_stored_it(rig: Rig) -> None:
    queue = queue_of(rig)
    for number in range(3):
        save(
            rig,
            from_queue(queue, "w", kind=None if number == 0 else f"k{number}"),
            dag_id=f"d{number}",
            asset=f"a{number}",
        )
    rig.start()
    queue.put(bodies(1, 50, kind="k1") + bodies(51, 50, kind="k2"))
    rig.until(lambda: queue.committed == 100)
    assert numbers(rig, "a0") == list(range(1, 101))
    assert numbers(rig, "a1") == list(range(1, 51))
    assert numbers(rig, "a2") == list(range(51, 101))
    assert len(queue.rows("SELECT * FROM opened")) == 1
    assert queue.rows("SELECT DISTINCT acked, failed, rejected FROM commits") == [(3, 0, 0)]


def test_watchers_of_one_stream_have_one_owner_however_small_it_is(rig: Rig) -> None:
    queue = queue_of(rig)
    save(rig, *(from_queue(queue, f"w{number}", kind=f"k{number}") for number in range(6)))
    rig.start(capacity=2)
    rig.start(capacity=2)
    rig.until(lambda: all(one.owner for one in rows(rig)) and len(rows(rig)) == 6)
    assert len({one.owner for one in rows(rig)}) == 1
    # One that comes later joins the others.
    save(rig, from_queue(queue, "late"), dag_id="later", asset="payments")
    rig.until(lambda: len(rows(rig)) == 7 and all(one.owner for one in rows(rig)))
    assert len({one.owner for one in rows(rig)}) == 1
    queue.put(bodies(1, 5))
    rig.until(lambda: queue.committed == 5)
    assert numbers(rig, "payments") == [1, 2, 3, 4, 5]
    assert len(queue.rows("SELECT * FROM opened")) == 1


def test_a_clean_stop_hands_a_stream_over_and_repeats_at_most_the_event_it_was_on(rig: Rig) -> None:
    queue = queue_of(rig)
    save(rig, from_queue(queue, "w"))
    first = rig.start()
    queue.put(bodies(1, 200))
    rig.until(lambda: queue.committed >= 50)
    rig.start()
    rig.stop(first)
    assert queue.committed >= len(payloads(rig)) - 1
    queue.put(bodies(201, 10))
    rig.until(lambda: queue.committed == 210)
    assert numbers(rig, "orders") == list(range(1, 211))
    assert sum(one.repeats for one in rig.store.events.find(Which())) <= 1


def test_an_event_waits_for_a_watcher_that_is_being_tried_again(rig: Rig) -> None:
    queue = queue_of(rig)
    rig.module(
        "picky",
        """
        import os
        from queues import FromQueue
        class Picky(FromQueue):
            # Raises once, at the third message.
            async def filter_shared_stream(self, shared_stream):
                async for event in super().filter_shared_stream(shared_stream):
                    if event.payload["n"] == 3 and not os.path.exists(self.path + ".seen"):
                        open(self.path + ".seen", "w").close()
                        raise LookupError("not the third")
                    yield event
    """,
    )
    picky = watch("picky.Picky", "picky", stream=repr(("queue", str(queue.path))), path=str(queue.path), kind=None)
    save(rig, picky, dag_id="one", asset="orders")
    save(rig, from_queue(queue, "w"), dag_id="two", asset="payments")
    rig.start()
    queue.put(bodies(1, 5))
    rig.until(lambda: numbers(rig, "payments") == [1, 2, 3, 4, 5])
    rig.until(lambda: queue.committed == 5)
    assert numbers(rig, "orders") == [1, 2, 3, 4, 5]
    assert queue.rows("SELECT DISTINCT acked, failed FROM commits") == [(2, 0)]
    assert len(queue.rows("SELECT * FROM opened")) == 1


def test_a_stream_outlasts_its_process_and_nothing_is_told_that_is_not_stored(rig: Rig) -> None:
    queue = queue_of(rig)
    for number in range(2):
        save(rig, from_queue(queue, f"w{number}", kind=None), dag_id=f"d{number}", asset=f"a{number}")
    triggerer = rig.start()
    for first in range(1, 401, 100):
        queue.put(bodies(first, 100))
        rig.until(lambda first=first: queue.committed >= first)  # type: ignore[misc]
        for pid in triggerer.host_pids:
            os.kill(pid, signal.SIGKILL)
        committed = queue.committed
        assert set(range(1, committed + 1)) <= set(numbers(rig, "a0"))
    rig.until(lambda: queue.committed == 400)
    for asset in ("a0", "a1"):
        assert numbers(rig, asset) == list(range(1, 401))
    assert queue.rows("SELECT * FROM dead") == []


def test_the_lease_tells_how_streams_stand(one_rig: Rig) -> None:
    rig = one_rig
    queue = queue_of(rig)
    save(rig, from_queue(queue, "w"))
    rig.start()
    queue.put(bodies(1, 3))
    [figures] = rig.until(
        lambda: [
            one for lease in rig.store.leases.all() for one in lease.detail.get("streams", ()) if one["advanced"] == 3
        ]
    )
    assert figures["key"] == repr(("queue", str(queue.path)))
    assert (figures["outstanding"], figures["subscribers"], figures["failed"]) == (0, 1, 0)


def test_who_holds_up_a_stream_s_process_takes_the_whole_stream_along(one_rig: Rig) -> None:
    rig = one_rig
    queue = queue_of(rig)
    rig.module(
        "slow",
        """
        import os, time
        from queues import FromQueue
        class Slow(FromQueue):
            # Stands still at the third message, once.
            async def filter_shared_stream(self, shared_stream):
                async for event in super().filter_shared_stream(shared_stream):
                    if event.payload["n"] == 3 and not os.path.exists(self.path + ".seen"):
                        open(self.path + ".seen", "w").close()
                        time.sleep(600)
                    yield event
        """,
    )
    slow = watch("slow.Slow", "slow", stream=repr(("queue", str(queue.path))), path=str(queue.path), kind=None)
    save(rig, slow, dag_id="one", asset="orders")
    save(rig, from_queue(queue, "w"), dag_id="two", asset="payments")
    rig.start()
    queue.put(bodies(1, 6))
    rig.until(lambda: queue.committed == 6)
    assert numbers(rig, "orders") == numbers(rig, "payments") == [1, 2, 3, 4, 5, 6]
    assert len(queue.rows("SELECT DISTINCT pid FROM opened")) == 2
    assert queue.rows("SELECT DISTINCT acked, failed FROM commits") == [(2, 0)]


@pytest.mark.timeout(60)
def test_a_triggerer_that_joins_is_given_whole_streams(rig: Rig) -> None:
    queues = [DurableQueue(rig.folder / f"queue{number}.db") for number in range(2)]
    for at, queue in enumerate(queues):
        several = (from_queue(queue, f"w{number}", kind=f"k{number}") for number in range(8))
        save(rig, from_queue(queue, "all"), *several, dag_id=f"d{at}", asset=f"a{at}")
    rig.start()
    rig.until(lambda: len([one for one in rows(rig) if one.owner]) == 18)
    rig.start()

    def owners() -> list[set[str | None]]:
        keys = {one.watch.stream_key for one in rows(rig) if one.watch}
        return [{one.owner for one in rows(rig) if one.watch and one.watch.stream_key == key} for key in sorted(keys)]  # type: ignore[type-var]

    def are_shared() -> bool:
        found = owners()
        return None not in set.union(*found) and len(set.union(*found)) == 2

    rig.until(are_shared)
    assert [len(found) for found in owners()] == [1, 1]
    for at, queue in enumerate(queues):
        queue.put(bodies(1, 5))
        rig.until(lambda queue=queue: queue.committed == 5)  # type: ignore[misc]
        assert numbers(rig, f"a{at}") == [1, 2, 3, 4, 5]
        assert len({pid for (pid,) in queue.rows("SELECT pid FROM commits")}) == 1


def test_a_deferred_task_reads_a_stream_and_leaves_the_rest_of_it_to_others(rig: Rig) -> None:
    queue = queue_of(rig)
    queue.put(bodies(1, 3))
    rig.defer("queues.FromQueue", path=str(queue.path))
    rig.start()
    rig.until_states("scheduled")
    assert rig.resumed() == {"a": ("resume", {"event": {"n": 1}})}
    rig.until(lambda: queue.committed == 1)
    save(rig, from_queue(queue, "w"), dag_id="watched")
    rig.until(lambda: queue.committed == 3)
    assert numbers(rig, "orders") == [2, 3]
    assert queue.rows("SELECT * FROM dead") == []
