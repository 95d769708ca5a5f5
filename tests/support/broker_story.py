"""A broker in the whole engine: three assets read one queue, the triggerer is killed, and every message counts once."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stories.deferral import rows

from stannel.testing import Engine

_DAGS = """
    import json, os
    from stannel.messaging import MessageQueueTrigger
    from stannel.sdk import DAG, Asset, AssetWatcher, task

    arguments = json.loads(os.environ["STORY_TRIGGER"])
    for name, where in [("every", None), ("eu", {"region": "eu"}), ("us", {"region": ["us", "ca"]})]:
        asset = Asset(name, watchers=[AssetWatcher("queue", MessageQueueTrigger(where=where, **arguments))])
        with DAG(f"on_{name}", schedule=asset):

            @task
            def take(triggering_asset_events, asset=asset):
                return len(triggering_asset_events[asset])

            take()
"""
_REGIONS = ("eu", "us", "ca", "none")
_WANTED = {"every": _REGIONS, "eu": ("eu",), "us": ("us", "ca")}
_SECONDS = 60.0


def stored(engine: Engine) -> dict[str, Counter[int]]:
    """By asset: the messages it has events of, and how many of each."""
    found: dict[str, Counter[int]] = {name: Counter() for name in _WANTED}
    statement = "SELECT asset.name, asset_event.extra FROM asset_event JOIN asset ON asset.pk = asset_event.asset_pk"
    for name, extra in rows(engine.store, statement):
        found[name][json.loads(extra)["payload"]["value"]["n"]] += 1
    return found


def tell(
    folder: Path,
    trigger: dict[str, Any],
    publish: Callable[[Sequence[dict[str, Any]]], None],
    left: Callable[[], int],
    environ: dict[str, str] | None = None,
) -> None:
    """`publish` puts messages into the queue that `trigger` reads; `left` counts those it was not told about."""
    messages = [{"n": number, "region": _REGIONS[number % len(_REGIONS)]} for number in range(60)]

    def wait_for(count: int) -> None:
        engine.wait_until(
            lambda: len(stored(engine)["every"]) >= count, seconds=_SECONDS, what=f"{count} messages were not stored"
        )

    with Engine(folder) as engine:
        engine.environ |= {"STORY_TRIGGER": json.dumps(trigger), **(environ or {})}
        engine.add_dag_file("reads.py", _DAGS)
        engine.start("standalone", "--no-triggerer")
        first = engine.start("triggerer")
        engine.wait_for_dag("on_us")
        publish(messages[:20])
        wait_for(20)
        publish(messages[20:40])
        first.kill()
        first.wait()
        engine.start("triggerer")
        publish(messages[40:])
        wait_for(60)
        engine.wait_until(lambda: left() == 0, seconds=_SECONDS, what="the broker was not told about all messages")
        expected = {
            name: Counter(message["n"] for message in messages if message["region"] in regions)
            for name, regions in _WANTED.items()
        }
        assert stored(engine) == expected
