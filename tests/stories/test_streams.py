"""Messages of one queue become events of several assets: each once, whoever is killed, and the queue is told after."""

import contextlib
import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from stories.deferral import frozen, hosts, rows, send
from support.durable_queue import MODULE, DurableQueue

from stannel.testing import Engine
from stannel.testing.engine import EngineTrouble

SEED = int(os.environ.get("STANNEL_STORY_SEED", "20261115"))
ASSETS = ("every", "eu", "us")
REGIONS = ("eu", "us", "none")
SECONDS = 60.0

DAGS = """
    import os
    from stannel.sdk import DAG, Asset, AssetWatcher, task
    from queues import FromQueue

    path = os.environ["STORY_QUEUE"]
    for name, kind in [("every", None), ("eu", "eu"), ("us", "us")]:
        asset = Asset(name, watchers=[AssetWatcher("queue", FromQueue(path, kind))])
        with DAG(f"on_{name}", schedule=asset):

            @task
            def take(triggering_asset_events, asset=asset):
                return len(triggering_asset_events[asset])

            take()
"""


class Story:
    """A queue, three assets that are made of it, and two triggerers."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.store = engine, engine.store
        self.chance = random.Random(SEED)
        self.queue = DurableQueue(folder / "queue.db")
        self.sent: list[str] = []
        engine.environ["STORY_QUEUE"] = str(self.queue.path)
        engine.add_dag_file("queues.py", MODULE)
        self.dag_file = engine.add_dag_file("reads.py", DAGS)
        engine.start("standalone", "--no-triggerer")
        self.triggerers = [engine.start("triggerer") for _ in range(2)]
        engine.wait_for_dag("on_us")

    def put(self, count: int) -> None:
        fresh = [self.chance.choice(REGIONS) for _ in range(count)]
        first = len(self.sent) + 1
        self.sent += fresh
        self.queue.put(json.dumps({"n": first + at, "kind": kind}) for at, kind in enumerate(fresh))

    def stored(self) -> dict[str, Counter[int]]:
        """By asset: the messages it has events of, and how many of each."""
        found: dict[str, Counter[int]] = {name: Counter() for name in ASSETS}
        statement = (
            "SELECT asset.name, asset_event.extra FROM asset_event JOIN asset ON asset.pk = asset_event.asset_pk"
        )
        for name, extra in rows(self.store, statement):
            found[name][json.loads(extra)["payload"]["n"]] += 1
        return found

    def expected(self, upto: int | None = None) -> dict[str, Counter[int]]:
        numbered = list(enumerate(self.sent[:upto], start=1))
        wanted = {"every": REGIONS, "eu": ("eu",), "us": ("us",)}
        return {name: Counter(n for n, kind in numbered if kind in kinds) for name, kinds in wanted.items()}

    def check_told(self) -> None:
        """The queue was told of nothing that is not stored for everybody."""
        told = self.queue.committed
        stored = self.stored()
        for name, expected in self.expected(told).items():
            assert expected.keys() <= stored[name].keys(), f"seed {SEED}: {told} was committed too early for {name}"

    def wait_for_all(self, seconds: float = SECONDS) -> None:
        count = len(self.sent)
        self.engine.wait_until(
            lambda: self.queue.committed == count, seconds=seconds, what=f"{count} messages were not all committed"
        )
        assert self.stored() == self.expected(), f"seed {SEED}"

    def owner(self) -> subprocess.Popen[bytes]:
        """The triggerer that has the stream."""

        def look() -> subprocess.Popen[bytes] | None:
            owners = {one.owner for one in self.engine.triggers() if one.watch is not None}
            pids = {lease.pid for lease in self.engine.leases("triggerer") if lease.owner in owners}
            return next((one for one in self.triggerers if one.pid in pids and one.poll() is None), None)

        found = self.engine.wait_until(look, seconds=SECONDS, what="nobody has the stream")
        assert found is not None
        return found


@pytest.mark.timeout(240)
def test_every_message_is_one_event_of_each_asset_whoever_is_killed_or_frozen(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path)
    story.put(300)
    story.wait_for_all()
    harms = ["kill triggerer", "kill host", "freeze triggerer", "freeze host", "stop triggerer"]
    story.chance.shuffle(harms)
    for harm in harms:
        before = story.queue.committed
        story.put(400)
        engine.wait_until(lambda: story.queue.committed > before, seconds=SECONDS, what="nothing was committed")  # noqa: B023
        owner = story.owner()
        host = next((pid for pid, parent in hosts(engine).items() if parent == owner.pid), owner.pid)
        match harm.split():
            case ["kill", "triggerer"]:
                send(owner.pid, signal.SIGKILL)
            case ["kill", "host"]:
                send(host, signal.SIGKILL)
            case ["stop", "triggerer"]:
                assert engine.stop(owner) == 0
            case ["freeze", what]:
                # Whoever is frozen in the middle of a transaction holds others up: for ever on SQLite.
                with frozen(owner.pid if what == "triggerer" else host), contextlib.suppress(EngineTrouble):
                    story.wait_for_all(seconds=8)
        if owner.poll() is not None or harm == "kill triggerer":
            story.triggerers.append(engine.start("triggerer"))
        story.check_told()
    story.wait_for_all()
    story.check_told()
    assert story.queue.rows("SELECT * FROM dead") == []
    assert story.queue.rows("SELECT DISTINCT acked, failed, rejected FROM commits") == [(3, 0, 0)]
    assert story.store.upkeep.check() == []


@pytest.mark.timeout(120)
def test_watchers_follow_their_dags(engine: Engine, tmp_path: Path) -> None:
    story = Story(engine, tmp_path)
    story.put(20)
    story.wait_for_all()
    for name in ASSETS:
        story.store.dags.pause(f"on_{name}", paused=True)
    engine.wait_until(lambda: engine.triggers() == [], seconds=10, what="the watchers did not stop")
    story.put(20)
    assert story.queue.committed == 20
    for name in ASSETS:
        story.store.dags.pause(f"on_{name}", paused=False)
    story.wait_for_all()
    runs = engine.wait_until(
        lambda: story.store.runs.latest(dag_id="on_every"), seconds=SECONDS, what="events started no run"
    )
    assert engine.wait_for_run(runs[0]).state == "success"
    story.dag_file.unlink()
    engine.wait_until(lambda: engine.triggers() == [], seconds=30, what="the watchers of a file that is gone run on")
