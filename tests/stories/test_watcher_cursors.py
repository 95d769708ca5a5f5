"""A watcher's cursor is stored with its event: whoever is killed, nothing is skipped and nothing is told twice."""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from stories.deferral import hosts, rows, send

from stannel.testing import Engine

SEED = int(os.environ.get("STANNEL_STORY_SEED", "20261115"))
LINES = 400
SECONDS = 60.0

# Reads a file line by line. Its events have no identity: only the cursor keeps it from telling a line twice.
DAGS = """
    import asyncio, os
    from stannel.sdk import DAG, Asset, AssetWatcher, task
    from stannel.triggers.base import BaseEventTrigger, TriggerEvent

    class Lines(BaseEventTrigger):
        def __init__(self, path):
            super().__init__()
            self.path = path

        def serialize(self):
            return f"{type(self).__module__}.{type(self).__qualname__}", {"path": self.path}

        async def run(self):
            cursor = await self.asset_state_store.aget("cursor", 0)
            assert self.asset_state_store.get("cursor", 0) == cursor
            while True:
                with open(self.path) as file:
                    lines = file.read().splitlines()
                for line in lines[cursor:]:
                    cursor += 1
                    yield TriggerEvent(line, state={"cursor": cursor, "half": cursor if cursor % 2 else None})
                await asyncio.sleep(0.01)

    lines = Asset("lines", watchers=[AssetWatcher("file", Lines(os.environ["STORY_LINES"]))])
    with DAG("reads", schedule=lines):
        @task(inlets=[lines])
        def take(asset_state_store, triggering_asset_events):
            return [asset_state_store.get("cursor"), len(triggering_asset_events[lines])]

        take()
"""


def told(engine: Engine) -> list[str]:
    found = rows(engine.store, "SELECT extra FROM asset_event ORDER BY pk")
    return [json.loads(extra)["payload"] for (extra,) in found]


def cursor(engine: Engine) -> int:
    found = {one.key: one.value for one in engine.store.state_stores.of_assets(name="lines")}
    assert ("half" in found) == (found.get("cursor", 0) % 2 == 1)
    return int(found.get("cursor", 0))


@pytest.mark.timeout(180)
def test_every_line_is_told_once_whatever_is_killed(engine: Engine, tmp_path: Path) -> None:
    chance, path = random.Random(SEED), tmp_path / "lines"
    path.touch()
    engine.environ["STORY_LINES"] = str(path)
    engine.add_dag_file("reads.py", DAGS)
    engine.start("standalone", "--no-triggerer")
    triggerer = engine.start("triggerer")
    engine.wait_for_dag("reads")
    for number in range(LINES):
        with path.open("a") as file:
            print(f"line {number}", file=file)
        if number % 50 != 49:
            continue
        before = len(told(engine))
        engine.wait_until(lambda: len(told(engine)) > before, seconds=SECONDS, what="nothing was told")  # noqa: B023
        if chance.random() < 0.5:
            for host in hosts(engine):
                send(host, signal.SIGKILL)
        else:
            triggerer.kill()
            triggerer = engine.start("triggerer")
    engine.wait_until(lambda: len(told(engine)) >= LINES, seconds=SECONDS, what="not every line was told")
    assert Counter(told(engine)) == Counter(f"line {number}" for number in range(LINES)), f"seed {SEED}"
    assert told(engine) == [f"line {number}" for number in range(LINES)]
    assert cursor(engine) == LINES
