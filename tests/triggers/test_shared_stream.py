"""Triggers with equal keys read one stream: who shares, what each is given, and how streams end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.streams import KEY, Hosted, Pull, Reading, Source, reading, turns

from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import (
    SharedStreamManager,
    _PollTerminated,
    _SharedStreamGroup,
    _SubscriberOverflow,
    reject_shared_stream_event,
)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def manager() -> AsyncIterator[SharedStreamManager]:
    manager = SharedStreamManager()
    yield manager
    await manager.stop_all()


def poll_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("shared-stream-poll")]


# --- who shares ------------------------------------------------------------------------------------------------------


async def test_a_subscriber_is_given_every_event(manager: SharedStreamManager, source: Source) -> None:
    one = Hosted(manager, 1, reading(source)())
    source.give("a", "b", "c")
    await turns()
    assert one.fired == ["a", "b", "c"]


async def test_equal_keys_share_one_poll_and_filter_each_for_themselves(
    manager: SharedStreamManager, source: Source
) -> None:
    trigger = reading(source)
    odd = Hosted(manager, 1, trigger(lambda raw: raw % 2 == 1))
    even = Hosted(manager, 2, trigger(lambda raw: raw % 2 == 0))
    source.give(1, 2, 3, 4)
    await turns()
    assert (odd.fired, even.fired) == ([1, 3], [2, 4])
    assert len(manager._groups) == 1
    assert len(source.opened_with) == 1


async def test_unequal_keys_never_share(manager: SharedStreamManager, source: Source) -> None:
    other = Source()
    here = Hosted(manager, 1, reading(source)(), key="here")
    there = Hosted(manager, 2, reading(other)(), key="there")
    source.give("for here")
    other.give("for there")
    await turns()
    assert (here.fired, there.fired) == (["for here"], ["for there"])
    assert set(manager._groups) == {"here", "there"}


async def test_classes_of_one_mode_share_when_their_keys_are_equal(
    manager: SharedStreamManager, source: Source
) -> None:
    one = Hosted(manager, 1, reading(source)())
    two = Hosted(manager, 2, reading(Source())())
    source.give("event")
    await turns()
    assert one.fired == two.fired == ["event"]


async def test_the_first_subscriber_says_what_is_opened(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    Hosted(manager, 1, trigger(name="first"))
    Hosted(manager, 2, trigger(name="second"))
    await turns()
    assert source.opened_with == [{"name": "first"}]


def test_no_key_is_no_stream() -> None:
    with pytest.raises(ValueError, match="must not be None"):
        SharedStreamManager().subscribe(trigger_id=1, trigger=reading(Source())(), key=None)


async def test_a_trigger_cannot_subscribe_twice(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)()
    manager.subscribe(trigger_id=1, trigger=trigger, key=KEY)
    with pytest.raises(RuntimeError, match="already subscribed"):
        manager.subscribe(trigger_id=1, trigger=trigger, key=KEY)


async def test_a_trigger_that_cannot_be_serialised_leaves_no_group(manager: SharedStreamManager) -> None:
    class Broken(Reading):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            raise LookupError("no name")

    with pytest.raises(LookupError, match="no name"):
        manager.subscribe(trigger_id=1, trigger=Broken(), key=KEY)
    assert manager._groups == {}
    assert poll_tasks() == []


async def test_an_event_given_before_a_reader_begins_to_read_waits_for_it(
    manager: SharedStreamManager, source: Source
) -> None:
    late = Pull(manager, 1, reading(source)())
    source.give("early")
    await turns()
    assert await late.take() == "early"


async def test_who_joins_later_is_given_only_what_comes_later(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    first = Hosted(manager, 1, trigger())
    source.give("before")
    await turns()
    second = Hosted(manager, 2, trigger())
    source.give("after")
    await turns()
    assert (first.fired, second.fired) == (["before", "after"], ["after"])


async def test_the_first_snapshot_waits_for_siblings_in_the_grace_period(source: Source) -> None:
    manager = SharedStreamManager(cohort_grace_period=0.01)
    trigger = reading(source)
    source.give("event")
    first = Pull(manager, 1, trigger())
    await turns()
    second = Pull(manager, 2, trigger())
    assert await asyncio.wait_for(asyncio.gather(first.next(), second.next()), timeout=10) == ["event", "event"]
    await manager.stop_all()


async def test_without_a_grace_period_the_stream_opens_at_once(manager: SharedStreamManager, source: Source) -> None:
    Pull(manager, 1, reading(source)())
    await turns(1)
    assert source.opened_with == [{}]


async def test_the_start_of_a_group_is_logged_once_and_its_poll_is_named(
    manager: SharedStreamManager, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for number in range(3):
            Pull(manager, number, reading(source)())
    lines = [(record.levelname, record.message) for record in caplog.records]
    assert lines == [("INFO", "Shared stream group started key=('test', 'stream')")]
    assert poll_tasks() == ["shared-stream-poll[('test', 'stream')]"]


async def test_the_log_of_the_caller_is_used(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    manager = SharedStreamManager(log=logging.getLogger("mine"))
    with caplog.at_level(logging.INFO, logger="mine"):
        Pull(manager, 1, reading(source)())
    assert [record.name for record in caplog.records] == ["mine"]
    await manager.stop_all()


# --- how it ends -----------------------------------------------------------------------------------------------------


async def test_the_last_one_to_leave_ends_the_stream(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    one, two = Pull(manager, 1, trigger()), Pull(manager, 2, trigger())
    await one.leave()
    assert set(manager._groups) == {KEY}
    await two.leave()
    assert manager._groups == {}
    assert poll_tasks() == []


async def test_leaving_what_one_never_joined_changes_nothing(manager: SharedStreamManager, source: Source) -> None:
    one = Hosted(manager, 1, reading(source)())
    await manager.unsubscribe(1, "another key")
    await manager.unsubscribe(2, KEY)
    source.give("event")
    await turns()
    assert one.fired == ["event"]


async def test_an_error_of_the_stream_reaches_every_subscriber_and_the_key_is_free_by_then(
    manager: SharedStreamManager, source: Source
) -> None:
    trigger = reading(source)
    pulls = [Pull(manager, number, trigger()) for number in range(3)]
    for pull in pulls:
        pull.next()
    source.fail(LookupError("the upstream is gone"))
    await turns()
    assert manager._groups == {}
    for pull in pulls:
        with pytest.raises(LookupError, match="the upstream is gone"):
            await pull.take()


async def test_the_error_comes_before_events_that_were_not_read(manager: SharedStreamManager, source: Source) -> None:
    reader = Pull(manager, 1, reading(source)())
    source.give(*range(5))
    source.fail(LookupError("gone"))
    await turns()
    with pytest.raises(LookupError):
        await reader.take()


async def test_a_stream_that_returns_has_failed(manager: SharedStreamManager, source: Source) -> None:
    reader = Pull(manager, 1, reading(source)())
    source.end()
    with pytest.raises(_PollTerminated, match="expected to run for the lifetime"):
        await reader.take()
    assert manager._groups == {}


async def test_who_comes_after_a_failure_opens_the_stream_anew_and_the_old_ones_still_learn_of_it(
    manager: SharedStreamManager, source: Source
) -> None:
    trigger = reading(source)
    old = Pull(manager, 1, trigger())
    source.fail(LookupError("gone"))
    await turns()
    fresh = Hosted(manager, 1, trigger())
    source.give("again")
    await turns()
    assert fresh.fired == ["again"]
    assert len(source.opened_with) == 2
    with pytest.raises(LookupError):
        await old.take()


async def test_who_comes_while_the_last_one_leaves_opens_the_stream_anew(
    manager: SharedStreamManager, source: Source
) -> None:
    trigger = reading(source)
    Pull(manager, 1, trigger())
    await turns()
    leaving = asyncio.create_task(manager.unsubscribe(1, KEY))
    await asyncio.sleep(0)
    fresh = Hosted(manager, 2, trigger())
    await leaving
    source.give("event")
    await turns()
    assert fresh.fired == ["event"]
    assert set(manager._groups) == {KEY}


async def test_all_leaving_at_once_leaves_no_group_and_no_task(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    for number in range(8):
        Pull(manager, number, trigger())
    await turns()
    await asyncio.gather(*(manager.unsubscribe(number, KEY) for number in range(8)))
    assert manager._groups == {}
    assert poll_tasks() == []


async def test_leaving_late_does_not_disturb_the_group_that_came_after(
    manager: SharedStreamManager, source: Source
) -> None:
    trigger = reading(source)
    Pull(manager, 1, trigger())
    source.fail(LookupError("gone"))
    await turns()
    fresh = Hosted(manager, 2, trigger())
    await manager.unsubscribe(1, KEY)
    source.give("event")
    await turns()
    assert fresh.fired == ["event"]


async def test_stopping_all_frees_every_key_before_it_waits_and_tells_nobody(source: Source) -> None:
    manager = SharedStreamManager()
    readers = [Pull(manager, number, reading(source)(), key=number) for number in range(3)]
    for reader in readers:
        reader.next()
    await turns()
    stopping = asyncio.create_task(manager.stop_all())
    await asyncio.sleep(0)
    assert manager._groups == {}
    await stopping
    assert all([await reader.is_waiting() for reader in readers])
    assert poll_tasks() == []
    for reader in readers:
        await reader.leave()


async def test_the_source_is_closed_when_its_stream_ends(manager: SharedStreamManager) -> None:
    closed = []

    class Careful(Reading):
        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            try:
                yield "event"
                await asyncio.Event().wait()
            finally:
                closed.append(True)

    reader = Pull(manager, 1, Careful())
    await reader.take()
    await reader.leave()
    assert closed == [True]


async def test_one_that_has_left_reads_nothing_more(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    Hosted(manager, 1, trigger())
    left = Pull(manager, 2, trigger())
    source.give("a", "b")
    assert await left.take() == "a"
    await left.leave()
    source.give("c")
    assert await left.is_waiting()
    await left.leave()


# --- too slow --------------------------------------------------------------------------------------------------------


async def test_only_the_slow_one_fails(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=4)
    trigger = reading(source)
    slow, quick = Pull(manager, 1, trigger()), Hosted(manager, 2, trigger())
    for number in range(10):
        source.give(number)
        await turns()
    assert quick.fired == list(range(10))
    with pytest.raises(_SubscriberOverflow, match="exceeded maxsize=4"):
        await slow.take()
    assert set(manager._groups) == {KEY}
    await manager.stop_all()


async def test_a_queue_that_is_just_full_is_not_too_slow(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=4)
    slow = Pull(manager, 1, reading(source)())
    source.give(*range(4))
    await turns()
    assert [await slow.take() for _ in range(4)] == [0, 1, 2, 3]
    await manager.stop_all()


async def test_one_that_failed_is_given_nothing_more_and_leaves_in_order(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=1)
    slow = Pull(manager, 1, reading(source)())
    source.give(1, 2, 3)
    await turns()
    with pytest.raises(_SubscriberOverflow):
        await slow.take()
    await slow.leave()
    assert manager._groups == {}


async def test_the_end_of_the_stream_does_not_replace_the_error_of_one_that_was_too_slow(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=1)
    slow = Pull(manager, 1, reading(source)())
    source.give(1, 2)
    await turns()
    source.fail(LookupError("gone"))
    await turns()
    with pytest.raises(_SubscriberOverflow):
        await slow.take()


async def test_a_burst_without_a_pause_fails_nobody_who_reads(manager: SharedStreamManager) -> None:
    class Bursting(Reading):
        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            for number in range(5000):
                yield number
            await asyncio.Event().wait()

    readers = [Hosted(manager, number, Bursting()) for number in range(3)]
    await turns(40)
    assert [reader.fired for reader in readers] == [list(range(5000))] * 3


async def test_a_reader_that_takes_one_event_a_turn_is_waited_for(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=4)

    class Steady(Reading):
        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            for number in range(100):
                yield number
            await asyncio.Event().wait()

        async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in shared_stream:
                await asyncio.sleep(0)
                yield TriggerEvent(raw)

    reader = Hosted(manager, 1, Steady())
    await turns(300)
    assert reader.fired == list(range(100))
    await manager.stop_all()


async def test_a_source_that_never_pauses_does_not_stop_the_loop_though_nobody_is_left_to_read() -> None:
    manager = SharedStreamManager(max_subscriber_queue=2)
    given = []

    class Endless(Reading):
        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            for number in range(100_000):
                given.append(number)
                yield number

    slow = Pull(manager, 1, Endless())
    await turns(20)
    await slow.leave()
    assert len(given) < 100_000
    assert poll_tasks() == []


async def test_when_streams_block_a_slow_reader_holds_the_source_and_nobody_fails(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=4, overflow="block")
    trigger = reading(source)
    slow, quick = Pull(manager, 1, trigger()), Hosted(manager, 2, trigger())
    source.give(*range(12))
    await turns(40)
    assert quick.fired == [0, 1, 2, 3]
    assert [await slow.take() for _ in range(12)] == list(range(12))
    await turns(40)
    assert quick.fired == list(range(12))
    await manager.stop_all()


async def test_who_leaves_does_not_hold_a_blocked_source(source: Source) -> None:
    manager = SharedStreamManager(max_subscriber_queue=2, overflow="block")
    trigger = reading(source)
    slow, quick = Pull(manager, 1, trigger()), Hosted(manager, 2, trigger())
    source.give(*range(5))
    await turns(40)
    await slow.leave()
    await turns(40)
    assert quick.fired == list(range(5))
    await manager.stop_all()


# --- what it is not --------------------------------------------------------------------------------------------------


async def test_nothing_is_bound_where_no_broker_waits(manager: SharedStreamManager, source: Source) -> None:
    reader = Pull(manager, 1, reading(source)())
    source.give("event")
    await reader.take()
    assert reader.fire() is None
    assert manager.bind_pending_event(trigger_id=1, key="no such key") is None
    manager.confirm_persisted([1, 2, 3])


async def test_refusing_without_a_broker_only_warns(
    manager: SharedStreamManager, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(Reading):
        async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in shared_stream:
                reject_shared_stream_event()
                yield TriggerEvent(raw)

        @classmethod
        def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            return source.read(kwargs)

    reader = Hosted(manager, 1, Refusing())
    source.give("event")
    await turns()
    assert reader.fired == ["event"]
    assert "outside an ack-mode binding window; ignored" in caplog.text


def test_refusing_where_there_is_no_stream_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    reject_shared_stream_event()
    assert "reject_shared_stream_event called outside an ack-mode binding window; ignored" in caplog.text


async def test_an_idle_stream_keeps_no_events(manager: SharedStreamManager, source: Source) -> None:
    trigger = reading(source)
    for number in range(3):
        Hosted(manager, number, trigger())
    source.give(*range(10))
    await turns()
    [group] = manager._groups.values()
    assert isinstance(group, _SharedStreamGroup)
    assert group._log.items == []


async def test_a_trigger_without_hooks_says_which_one_is_missing() -> None:
    class Bare(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "Bare", {}

        async def run(self) -> AsyncIterator[TriggerEvent]:
            yield TriggerEvent("alone")

    manager = SharedStreamManager()
    reader = Pull(manager, 1, Bare())
    with pytest.raises(NotImplementedError, match="Bare has a shared_stream_key but no open_shared_stream"):
        await reader.take()
