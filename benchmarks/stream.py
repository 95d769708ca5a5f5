"""What it costs to give one event of a shared stream to one subscriber, and to hold it until it is answered."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import airflow_side
import harness

SIDE = Path(__file__).with_name("stream_side.py")
SIZES = (1, 10, 100, 1000)
# Events times subscribers of one measurement: some tens of milliseconds for either engine.
DELIVERIES = 20_000


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for size in SIZES:
        events = max(100, DELIVERIES // size)
        yield f"fast-{size}", {"kind": "fast", "subscribers": size, "events": events}
        yield f"fast-single-{size}", {"kind": "fast", "subscribers": size, "events": events // 2, "burst": 1}
        yield f"ack-skip-{size}", {"kind": "skip", "subscribers": size, "events": events}
        yield f"ack-emit-{size}", {"kind": "emit", "subscribers": size, "events": events}
    for lanes in (1, 16, 1000):
        yield f"ack-lanes-{lanes}", {"kind": "skip", "subscribers": 10, "events": 2000, "lanes": lanes}
    yield "ack-blocked-head", {"kind": "blocked", "subscribers": 2, "events": 10_000}


def memory_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for size in (1, 10, 100):
        events = max(200, DELIVERIES // size)
        yield f"bytes-unread-{size}", {"kind": "unread", "subscribers": size, "events": events}
        yield f"bytes-unconfirmed-{size}", {"kind": "bound", "subscribers": size, "events": events}


def main() -> None:
    options = harness.options("stream", repeat=5, stores=["sqlite"])
    with contextlib.ExitStack() as running:
        stannel = running.enter_context(side(Path(sys.executable), "stannel"))
        airflow = None
        if options.against_airflow:
            airflow = running.enter_context(side(airflow_side.installed() / "bin/python", "airflow"))
        for name, case in cases():
            report(name, "ns/delivery", case, stannel, airflow, options.repeat)
        for name, case in memory_cases():
            report(name, "bytes/delivery", case, stannel, airflow, repeat=1)


def report(name: str, unit: str, case: dict[str, Any], stannel: "Side", airflow: "Side | None", repeat: int) -> None:
    """The best of several runs of each engine, taken in turn, so that both meet the machine in the same moods."""
    ours, theirs, floors = [], [], []
    hand_over = {"kind": "floor", "subscribers": case["subscribers"], "events": min(200, case["events"])}
    for _ in range(repeat):
        ours.append(stannel.measure(case))
        if airflow is not None:
            theirs.append(airflow.measure(case))
        if unit == "ns/delivery":
            floors.append(stannel.measure(hand_over))
    harness.print_result(
        "stream", unit, "lower", min(ours), min(theirs, default=None), case=name, **case,
        **({"hand_over_floor": min(floors)} if floors else {}),
    )  # fmt: skip


class Side:
    """A process that measures one engine, and stays warm between cases."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measure(self, case: dict[str, Any]) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(case), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


@contextlib.contextmanager
def side(python: Path, package: str) -> Iterator[Side]:
    with harness.empty_home() as home:
        env = harness.clean_environment(AIRFLOW_HOME=str(home), PYTHONPATH="", STANNEL_HOME=str(home))
        process = subprocess.Popen(
            [python, SIDE, package], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield Side(process)
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
