"""One side of the stream benchmark: reads cases, runs each with `PACKAGE.triggers.shared_stream`, and answers.

The same file runs in the environment of either engine; what it calls is what authors and trigger hosts call in both.
"""

import asyncio
import gc
import importlib
import json
import sys
import time
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

package = sys.argv[1]
streams: Any = importlib.import_module(f"{package}.triggers.shared_stream")
base: Any = importlib.import_module(f"{package}.triggers.base")

# Fewer than the default queue holds, so that no engine has to fail a subscriber.
BURST = 500
CONFIRMED_AT_ONCE = 100
SECONDS = 60


@dataclass
class Case:
    """What is done: `events` events to `subscribers`, `burst` of them without a pause."""

    kind: str
    subscribers: int
    events: int
    lanes: int = 1
    burst: int = BURST


@dataclass
class Bench:
    """One run of a case: what producer, filters and the host around them share."""

    case: Case
    go: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    advanced: int = 0
    passed: int = 0
    unconfirmed: list[int] = field(default_factory=list)

    def advance(self, count: int) -> None:
        self.advanced += count
        if self.advanced == self.case.events:
            self.over.set()

    def passed_all(self) -> None:
        """One subscriber has read the last event."""
        self.passed += 1
        if self.passed == self.case.subscribers and not self.is_acked:
            self.over.set()

    @property
    def is_acked(self) -> bool:
        return self.case.kind != "fast"

    async def numbers(self) -> Any:
        burst, is_acked = self.case.burst, self.is_acked
        await self.go.wait()
        for first in range(0, self.case.events, burst):
            for number in range(first, min(first + burst, self.case.events)):
                yield (number, number) if is_acked else number
            await asyncio.sleep(0)
        await asyncio.Event().wait()


class Fast(base.BaseEventTrigger):  # type: ignore[misc]
    bench: Bench

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "benchmark.Fast", {}

    async def run(self) -> Any:
        yield base.TriggerEvent(None)

    def shared_stream_key(self) -> str:
        return "benchmark"

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> Any:
        return Fast.bench.numbers()

    async def filter_shared_stream(self, shared_stream: Any) -> Any:
        last, emits = self.bench.case.events - 1, self.bench.case.kind in ("emit", "bound")
        async for number in shared_stream:
            if emits or (number == 0 and self.bench.case.kind == "blocked"):
                yield base.TriggerEvent(number)
            if number == last:
                self.bench.passed_all()


class Producer(streams.SharedStreamProducer):  # type: ignore[misc]
    def __init__(self) -> None:
        self.lanes = Fast.bench.case.lanes

    def open_stream(self) -> Any:
        return Fast.bench.numbers()

    async def advance(self, batch: Any) -> None:
        Fast.bench.advance(len(batch))

    def get_advance_lane(self, broker_payload: int) -> int:
        return broker_payload % self.lanes


class Acked(Fast):
    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        return Producer()


async def host(manager: Any, trigger_id: int, trigger: Any) -> None:
    """What the process that runs triggers does with each: bind every event, and confirm many at a time."""
    unconfirmed, key = Fast.bench.unconfirmed, "benchmark"
    at_once = CONFIRMED_AT_ONCE if Fast.bench.case.kind == "emit" else sys.maxsize
    stream = manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
    async for _ in trigger.filter_shared_stream(stream):
        unconfirmed.append(manager.bind_pending_event(trigger_id=trigger_id, key=key))
        if len(unconfirmed) >= at_once:
            confirm(manager)


def confirm(manager: Any) -> None:
    numbers = [*Fast.bench.unconfirmed]
    Fast.bench.unconfirmed.clear()
    manager.confirm_persisted(numbers)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def measure(case: Case) -> float:
    """Nanoseconds of processor time for each event and subscriber; of memory cases, bytes."""
    bench = Fast.bench = Bench(case)
    manager = streams.SharedStreamManager(max_subscriber_queue=max(1024, 2 * case.events))
    make = Acked if bench.is_acked else Fast
    tasks = []
    if case.kind == "unread":
        kept = [manager.subscribe(trigger_id=n, trigger=make(), key="benchmark") for n in range(case.subscribers)]
        tasks.append(asyncio.create_task(bench.over.wait()))
    else:
        kept = []
        tasks += [asyncio.create_task(host(manager, number, make())) for number in range(case.subscribers)]
    await turns(5)
    gc.collect()
    if case.kind in ("unread", "bound"):
        result = await outstanding_bytes(bench)
    else:
        result = await nanoseconds(bench, manager)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await manager.stop_all()
    for stream in kept:
        await stream.aclose()
    return result / case.events / case.subscribers


async def nanoseconds(bench: Bench, manager: Any) -> float:
    started = time.process_time_ns()
    bench.go.set()
    if bench.case.kind == "blocked":
        while bench.passed < bench.case.subscribers:
            await turns(1)
    while not bench.over.is_set() and bench.unconfirmed != []:
        confirm(manager)
        await turns(1)
    if bench.case.kind == "emit":
        while not bench.over.is_set():
            await turns(1)
            confirm(manager)
    await bench.over.wait()
    return time.process_time_ns() - started


async def outstanding_bytes(bench: Bench) -> float:
    """What is held for events that nobody has answered, without the events themselves (they are small numbers)."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    bench.go.set()
    await turns(3 * bench.case.events // bench.case.burst + 20)
    gc.collect()
    # The host keeps the sequence numbers in a list of its own.
    held = sys.getsizeof(bench.unconfirmed)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before - held


async def floor(case: Case) -> float:
    """A bare hand-over: a future for each receiver, all set at once, each awaited by a task of its own."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[int]] = []

    async def receive() -> None:
        for _ in range(case.events):
            future: asyncio.Future[int] = loop.create_future()
            waiting.append(future)
            await future

    tasks = [asyncio.create_task(receive()) for _ in range(case.subscribers)]
    await turns(2)
    started = time.process_time_ns()
    for number in range(case.events):
        woken, waiting[:] = [*waiting], []
        for future in woken:
            future.set_result(number)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return (time.process_time_ns() - started) / case.events / case.subscribers


def main() -> None:
    for line in sys.stdin:
        case = Case(**json.loads(line))
        work = floor(case) if case.kind == "floor" else measure(case)
        print(json.dumps(asyncio.run(asyncio.wait_for(work, timeout=SECONDS))), flush=True)


if __name__ == "__main__":
    main()
