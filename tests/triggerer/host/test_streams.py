"""Shared streams in the host: brokers hear only of what was confirmed, whoever comes, fails or leaves."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.durable_queue import MODULE, DurableQueue

from stannel.model.trigger import CancelReason
from stannel.protocol.triggering import (
    Confirmed,
    Drain,
    Failed,
    Finished,
    Fired,
    Registered,
    Report,
    StreamEnded,
    Streams,
)

HostOf = Callable[..., Any]
PATIENCE = 20.0

MORE = """
from queues import FromQueue, TriggerEvent

class First(FromQueue):
    # Fires once and leaves.
    async def filter_shared_stream(self, shared_stream):
        async for message in shared_stream:
            yield TriggerEvent(message)
            return

class Breaks(FromQueue):
    async def filter_shared_stream(self, shared_stream):
        async for message in shared_stream:
            raise LookupError("cannot read it")
            yield

class Stays(FromQueue):
    # Has fired for a message, and is not done with it.
    async def filter_shared_stream(self, shared_stream):
        async for message in shared_stream:
            yield TriggerEvent(message)
            await asyncio.sleep(3600)

class Unstorable(FromQueue):
    async def filter_shared_stream(self, shared_stream):
        async for message in shared_stream:
            yield TriggerEvent(object())

class NoFilter(FromQueue):
    def filter_shared_stream(self, shared_stream):
        raise TypeError("no filter here")

class BadKey(FromQueue):
    def shared_stream_key(self):
        raise ValueError("no key today")

    async def run(self):
        yield TriggerEvent("alone")

class Wrong(FromQueue):
    def shared_stream_key(self):
        return None

    async def run(self):
        yield TriggerEvent(1, **{"key": " "})
"""


@pytest.fixture
def queue(tmp_path: Path) -> DurableQueue:
    return DurableQueue(tmp_path / "queue.db")


@pytest.fixture
def host(host_of: HostOf, dags: Path) -> Any:
    (dags / "queues.py").write_text(MODULE)
    (dags / "more.py").write_text("import asyncio\n" + MORE)
    return host_of()


def key_of(queue: DurableQueue) -> str:
    return repr(("queue", str(queue.path)))


def read(host: Any, queue: DurableQueue, *ids: int, kind: str = "queues.FromQueue", waiter: bool = False) -> None:
    """Watchers of the queue, registered and started."""
    if not waiter:
        host.say(Registered(key_of(queue), list(ids)))
    for trigger_id in ids:
        host.start(trigger_id, kind, waiter=waiter, path=str(queue.path), kind=None)


def put(queue: DurableQueue, *numbers: int) -> None:
    queue.put(json.dumps({"n": number}) for number in numbers)


def fired(host: Any, trigger_id: int, count: int) -> list[Fired]:
    """Its first so many events."""
    found: list[Fired] = []

    def counted(report: Report) -> list[Fired] | None:
        if isinstance(report, Fired) and report.id == trigger_id:
            found.append(report)
        return found if len(found) == count else None

    return host.until(counted, f"{count} events of {trigger_id}")


def confirm(host: Any, *events: Fired) -> None:
    host.say(Confirmed([event.number for event in events]))


def until_committed(host: Any, queue: DurableQueue, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while queue.committed < number:
        assert time.monotonic() < deadline, f"{queue.committed} was committed, not {number}"
        host.beats()


def test_an_event_says_its_place_and_its_broker_is_told_when_it_is_confirmed(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, 2)
    put(queue, 1, 2)
    first, second = fired(host, 1, 2)
    assert (first.event.payload, first.position, second.position) == ({"n": 1}, "1/1", "2/1")
    others = fired(host, 2, 2)
    confirm(host, first, second, others[0])
    until_committed(host, queue, 1)
    assert queue.committed == 1
    confirm(host, others[1])
    until_committed(host, queue, 2)
    assert len(queue.rows("SELECT * FROM opened")) == 1


def test_nothing_is_told_before_everyone_who_is_registered_has_had_it(host: Any, queue: DurableQueue) -> None:
    host.say(Registered(key_of(queue), [1, 2]))
    host.start(1, "queues.FromQueue", waiter=False, path=str(queue.path), kind=None)
    put(queue, 1)
    confirm(host, *fired(host, 1, 1))
    host.beats(3)
    assert queue.committed == 0
    host.start(2, "queues.FromQueue", waiter=False, path=str(queue.path), kind=None)
    confirm(host, *fired(host, 2, 1))
    until_committed(host, queue, 1)


def test_who_is_registered_no_longer_is_not_waited_for(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, 2)
    put(queue, 1)
    confirm(host, *fired(host, 1, 1))
    host.cancel(2, CancelReason.UNWANTED)
    host.of(Finished, 2)
    host.say(Registered(key_of(queue), [1]))
    until_committed(host, queue, 1)
    assert queue.rows("SELECT failed FROM commits") == [(0,)]


def test_a_filter_that_raises_has_not_handled_its_event_and_gets_it_again(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, kind="more.Breaks")
    put(queue, 1)
    assert host.of(Failed, 1).traceback[-1] == "LookupError: cannot read it"
    host.of(Finished, 1)
    host.start(1, "queues.FromQueue", waiter=False, epoch=2, path=str(queue.path), kind=None)
    [event] = fired(host, 1, 1)
    assert (event.event.payload, queue.committed) == ({"n": 1}, 0)
    confirm(host, event)
    until_committed(host, queue, 1)
    assert len(queue.rows("SELECT * FROM opened")) == 1


@pytest.mark.parametrize("reason", [CancelReason.MOVED, CancelReason.RESTARTED, CancelReason.UNWANTED])
def test_one_that_is_stopped_in_the_middle_has_not_handled_its_event(
    host: Any, queue: DurableQueue, reason: CancelReason
) -> None:
    read(host, queue, 1, kind="more.Stays")
    put(queue, 1)
    [event] = fired(host, 1, 1)
    host.cancel(1, reason)
    host.of(Finished, 1)
    confirm(host, event)
    host.say(Registered(key_of(queue), []))
    assert host.any(StreamEnded).stream_key == key_of(queue)
    assert (queue.committed, queue.rows("SELECT * FROM dead")) == (0, [])


def test_one_that_fires_once_and_leaves_has_its_event_told(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, kind="more.First", waiter=True)
    put(queue, 1, 2)
    host.of(Finished, 1)
    [event] = fired(host, 1, 1)
    assert queue.committed == 0
    confirm(host, event)
    until_committed(host, queue, 1)
    # What it has not read is there for who comes next.
    read(host, queue, 2, kind="more.First", waiter=True)
    [event] = fired(host, 2, 1)
    assert (event.event.payload, queue.committed, queue.rows("SELECT * FROM dead")) == ({"n": 2}, 1, [])


def test_a_stream_goes_on_when_the_one_that_opened_it_leaves(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, 2)
    put(queue, 1)
    confirm(host, *fired(host, 1, 1), *fired(host, 2, 1))
    until_committed(host, queue, 1)
    host.cancel(1, CancelReason.UNWANTED)
    host.of(Finished, 1)
    host.say(Registered(key_of(queue), [2]))
    put(queue, 2)
    confirm(host, fired(host, 2, 2)[1])
    until_committed(host, queue, 2)
    assert len(queue.rows("SELECT * FROM opened")) == 1


def test_a_stream_that_is_given_up_is_closed_and_opened_anew_for_who_comes_next(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1)
    put(queue, 1)
    fired(host, 1, 1)
    host.cancel(1, CancelReason.MOVED)
    host.say(Registered(key_of(queue), []))
    host.say(Registered(key_of(queue), [2]))
    host.start(2, "queues.FromQueue", waiter=False, path=str(queue.path), kind=None)
    host.any(StreamEnded)
    confirm(host, *fired(host, 2, 1))
    until_committed(host, queue, 1)
    assert len(queue.rows("SELECT * FROM opened")) == 2


def test_a_host_that_is_told_to_end_waits_for_the_last_confirmations(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1)
    put(queue, 1)
    events = fired(host, 1, 1)
    host.say(Drain())
    host.of(Finished, 1)
    confirm(host, *events)
    assert host.process.wait(PATIENCE) == 0
    assert queue.committed == 1


def test_what_is_not_confirmed_when_a_host_ends_is_not_told(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1)
    put(queue, 1)
    fired(host, 1, 1)
    assert host.drain() == 0
    assert (queue.committed, queue.rows("SELECT * FROM dead")) == (0, [])


def test_an_event_that_cannot_be_stored_fails_its_trigger_and_is_not_told(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1, kind="more.Unstorable")
    put(queue, 1)
    assert "could not be serialized" in host.of(Failed, 1).error
    host.of(Finished, 1)
    assert queue.committed == 0


def test_a_trigger_without_a_filter_fails_alone(host: Any, queue: DurableQueue) -> None:
    host.say(Registered(key_of(queue), [1, 2]))
    host.start(1, "more.NoFilter", waiter=False, path=str(queue.path), kind=None)
    assert host.of(Failed, 1).traceback[-1] == "TypeError: no filter here"
    host.say(Registered(key_of(queue), [2]))
    host.start(2, "queues.FromQueue", waiter=False, path=str(queue.path), kind=None)
    put(queue, 1)
    confirm(host, *fired(host, 2, 1))
    until_committed(host, queue, 1)


def test_a_trigger_whose_key_cannot_be_told_runs_alone(host: Any, queue: DurableQueue) -> None:
    host.start(1, "more.BadKey", waiter=False, path=str(queue.path), kind=None)
    [event] = fired(host, 1, 1)
    assert (event.event.payload, event.number, event.position) == ("alone", None, None)


def test_an_event_with_a_key_that_is_none_fails_its_trigger(host: Any, queue: DurableQueue) -> None:
    host.start(1, "more.Wrong", waiter=False, path=str(queue.path), kind=None)
    assert "The key of an event is a text" in host.of(Failed, 1).traceback[-1]


def test_how_streams_stand_is_told_now_and_then(host: Any, queue: DurableQueue) -> None:
    read(host, queue, 1)
    put(queue, 1)
    fired(host, 1, 1)

    def owed(report: Report) -> dict[str, Any] | None:
        figures = report.figures if isinstance(report, Streams) else []
        return next((one for one in figures if one["outstanding"]), None)

    found = host.until(owed, "figures of what is outstanding")
    assert (found["key"], found["owed_by"], found["subscribers"]) == (key_of(queue), [1], 1)
