"""How long a broker waits: from the moment an event of its stream is handed to the store until it is told to advance.

Events come at a steady pace through the whole engine: a producer, a filter, the triggerer, the store, and back.
"""

import json
import statistics
import time
from pathlib import Path

import harness
import stannel_side

PACES = (100, 2000)
STORES = ("sqlite", "postgres")
CODE = """\
import asyncio, os, time
from datetime import timedelta
from stannel.sdk import DAG, Asset, AssetWatcher, task
from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import SharedStreamProducer


class Steady(SharedStreamProducer):
    def __init__(self, pace, count, notes):
        self.pace, self.count, self.notes = pace, count, notes

    async def open_stream(self):
        begun = time.time()
        for number in range(self.count):
            due = begun + number / self.pace
            if (left := due - time.time()) > 0:
                await asyncio.sleep(left)
            yield time.time(), number
        await asyncio.sleep(3600)

    async def advance(self, batch):
        now = time.time()
        with open(self.notes, "a") as notes:
            notes.writelines(f"{number} {now!r}\\n" for number, outcome in batch)

    def get_event_identity(self, number):
        return str(number)


class EveryEvent(BaseEventTrigger):
    def __init__(self, **kwargs):
        super().__init__()
        self.kwargs = kwargs

    def serialize(self):
        return f"{__name__}.EveryEvent", self.kwargs

    def shared_stream_key(self):
        return "steady"

    @classmethod
    def create_shared_stream_producer(cls, kwargs):
        return Steady(**kwargs)

    async def filter_shared_stream(self, shared_stream):
        async for moment in shared_stream:
            yield TriggerEvent(moment)

    async def run(self):
        raise NotImplementedError
        yield


steady = Asset("steady", watchers=[AssetWatcher("all", EveryEvent(pace=PACE, count=COUNT, notes="NOTES"))])
# What becomes of the events afterwards is not measured: they wait.
with DAG("takes", schedule=steady.batch(wait=timedelta(hours=1))):
    task(task_id="nothing")(len)([])
"""


def main() -> None:
    # The size of the workload is how many seconds events come.
    options = harness.options("advance", count=10, stores=("both", *STORES))
    for store in STORES if options.store == "both" else (options.store,):
        for pace in PACES:
            measure(store, pace, pace * options.count)


def measure(store: str, pace: int, count: int) -> None:
    with harness.empty_home() as home:
        dags, notes = home / "dags", home / "notes"
        dags.mkdir(parents=True)
        source = CODE.replace("PACE", str(pace)).replace("COUNT", str(count)).replace("NOTES", str(notes))
        (dags / "takes.py").write_text(source)
        with stannel_side.running(home, dags, store=store, parallelism=2) as engine:
            advanced = wait_for(notes, count, count / pace + 60)
            stored = stored_events(engine)
    whole = sorted((advanced[number] - fired) * 1000 for number, (fired, _) in stored.items())
    after = sorted((advanced[number] - moment) * 1000 for number, (_, moment) in stored.items())
    harness.print_result(
        "advance", "ms from store to broker, p50", "lower", statistics.median(after), None,
        case=f"{store}-{pace}", p99=percentile(after, 0.99), whole_p50=statistics.median(whole),
        whole_p99=percentile(whole, 0.99), events=count, store=store,
    )  # fmt: skip


def stored_events(engine: stannel_side.Stannel) -> dict[int, tuple[float, float]]:
    """When each event was read from its source, and when it was handed to the store."""
    found = {}
    for identity, extra, stored_at in engine.ask("SELECT identity, extra, stored_at FROM asset_event"):
        number = int(str(identity).split("/")[1])
        found[number] = (float(json.loads(str(extra))["payload"]), int(str(stored_at)) / 1e6)
    return found


def wait_for(notes: Path, count: int, seconds: float) -> dict[int, float]:
    """When the broker was told of each event."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = notes.read_text().splitlines() if notes.exists() else []
        if len(lines) >= count:
            return {int(number): float(moment) for number, moment in (line.split() for line in lines)}
        harness.note(f"{len(lines)} of {count} events advanced")
        time.sleep(1)
    raise RuntimeError(f"{count} events were not advanced in {seconds:g} s")


def percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


if __name__ == "__main__":
    main()
