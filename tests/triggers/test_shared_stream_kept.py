"""Never lost: what streams promise beyond what is documented, when those who run triggers ask for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from support.streams import KEY, Broker, Hosted, Pull, Reading, acking, turns

from stannel.triggers.base import TriggerEvent
from stannel.triggers.shared_stream import AckTimeout, AdvanceItem, EventNotHandled, SharedStreamManager

Virtually = Callable[[Coroutine[Any, Any, None]], tuple[None, float]]


@pytest.fixture
async def broker() -> Broker:
    return Broker()


def nothing(raw: Any) -> bool:
    return False


class Fragile(Reading):
    """Raises on events that the test names, as often as it says."""

    troubles: "dict[int, int]"

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in shared_stream:
            if self.troubles.get(raw["number"], 0) > 0:
                self.troubles[raw["number"]] -= 1
                raise LookupError(f"cannot handle {raw['number']}")
            yield TriggerEvent(raw["number"])


def fragile(broker: Broker, troubles: dict[int, int]) -> Callable[[], Reading]:
    class Both(Fragile, acking(broker)):  # type: ignore[misc]
        pass

    Both.troubles = troubles
    return Both


# --- a filter that breaks off ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LookupError("cannot handle it"), None])
async def test_an_event_that_a_filter_broke_off_is_not_accepted(broker: Broker, error: Exception | None) -> None:
    manager = SharedStreamManager()
    trigger = acking(broker)
    Hosted(manager, 1, trigger(nothing))
    breaks = Pull(manager, 2, trigger())
    broker.give("a")
    await breaks.take()
    await breaks.break_off(error)
    await turns()
    assert broker.outcomes == {("a", 1): (1, 1, 0)}
    await manager.stop_all()


async def test_a_filter_that_breaks_off_alone_leaves_its_event_to_the_broker(broker: Broker) -> None:
    manager = SharedStreamManager()
    hosted = Hosted(manager, 1, fragile(broker, {1: 1})())
    broker.give("a")
    await turns()
    assert str(hosted.error) == "cannot handle 1"
    assert broker.closed == 1
    assert not any(item.outcome.is_clean for batch in broker.batches for item in batch)


def test_a_filter_that_raised_is_given_the_event_again_and_nothing_is_read_meanwhile(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(linger=60, redelivery_backoff=2, _now=asyncio.get_running_loop().time)
        trigger = fragile(broker, {2: 1})
        first = Hosted(manager, 1, trigger())
        broker.give("a", "a", "a")
        await turns()
        first.confirm()
        await turns()
        assert (first.fired, broker.advanced) == ([1], [("a", 1)])
        second = Hosted(manager, 1, trigger())
        await turns()
        assert second.fired == []
        await asyncio.sleep(2.1)
        assert second.fired == [2, 3]
        second.confirm()
        assert second.error is None
        await turns()
        assert broker.advanced == [("a", 1), ("a", 2), ("a", 3)]
        assert broker.made == 1
        assert manager.figures()[0].redelivered == 1
        await manager.stop_all()

    virtually(story())


def test_an_event_that_always_breaks_its_filter_fails_after_some_attempts_ever_further_apart(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(linger=600, redeliveries=3, redelivery_backoff=1)
        trigger = fragile(broker, {1: 1000})
        broker.give("a", "a")
        broken = []
        while not broker.batches:
            hosted = Hosted(manager, 1, trigger())
            await asyncio.wait([hosted.task])
            broken.append(asyncio.get_running_loop().time())
            await turns()
        assert [round(at) for at in broken] == [0, 1, 3, 7]
        assert broker.outcomes == {("a", 1): (0, 1, 0)}
        after = Hosted(manager, 1, trigger())
        await turns()
        assert after.fired == [2]
        await manager.stop_all()

    virtually(story())


def test_a_filter_that_is_cancelled_is_not_to_blame(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(linger=600, redeliveries=0)
        trigger = acking(broker)
        broker.give("a")
        for _ in range(5):
            reader = Pull(manager, 1, trigger())
            assert await reader.take() == {"lane": "a", "number": 1}
            await reader.break_off()
        assert asyncio.get_running_loop().time() == 0
        assert broker.batches == []
        await manager.stop_all()

    virtually(story())


def test_one_that_does_not_come_back_is_not_waited_for_without_end(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(linger=60)
        trigger = acking(broker)
        Hosted(manager, 1, trigger(nothing))
        lost = Pull(manager, 2, trigger())
        broker.give("a")
        await lost.take()
        await lost.break_off()
        broker.give("a")
        await asyncio.sleep(59)
        assert broker.advanced == []
        await asyncio.sleep(2)
        assert broker.outcomes == {("a", 1): (1, 1, 0), ("a", 2): (1, 1, 0)}
        await manager.stop_all()

    virtually(story())


# --- one that fires once and leaves ----------------------------------------------------------------------------------


class Once(Reading):
    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in shared_stream:
            yield TriggerEvent(raw["number"])
            return


def once(broker: Broker) -> Callable[[], Reading]:
    class Both(Once, acking(broker)):  # type: ignore[misc]
        pass

    return Both


async def test_what_the_last_one_fired_before_it_left_is_advanced_when_it_is_stored(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60)
    hosted = Hosted(manager, 1, once(broker)())
    broker.give("a")
    await asyncio.wait([hosted.task])
    await turns()
    assert broker.closed == 0
    hosted.confirm()
    await turns()
    assert (broker.outcomes, broker.closed) == ({("a", 1): (1, 0, 0)}, 1)
    assert manager._groups == {}
    await manager.stop_all()


async def test_one_that_fires_once_and_comes_back_at_once_reads_on_and_repeats_nothing(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60, cohort=lambda key: {1})
    broker.give("a", "a", "a")
    fired = []
    for _ in range(3):
        hosted = Hosted(manager, 1, once(broker)())
        await asyncio.wait([hosted.task])
        fired += hosted.fired
        hosted.confirm()
    await turns()
    assert fired == [1, 2, 3]
    assert broker.made == 1
    assert broker.advanced == [("a", 1), ("a", 2), ("a", 3)]
    await manager.stop_all()


def test_a_stream_that_nobody_comes_back_to_ends(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(linger=60)
        hosted = Hosted(manager, 1, once(broker)())
        broker.give("a", "a")
        await asyncio.sleep(59)
        assert (broker.closed, set(manager._groups)) == (0, {KEY})
        await asyncio.sleep(2)
        assert (broker.closed, manager._groups) == (1, {})
        hosted.confirm()
        await turns()
        assert broker.advanced == []
        await manager.stop_all()

    virtually(story())


async def test_stopping_waits_for_a_stream_that_is_being_left(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60)
    broker.may_advance.clear()
    hosted = Hosted(manager, 1, once(broker)())
    broker.give("a")
    await asyncio.wait([hosted.task])
    hosted.confirm()
    await turns()
    stopping = asyncio.create_task(manager.stop_all())
    await turns()
    assert not stopping.done()
    broker.may_advance.set()
    await stopping
    assert (broker.advanced, broker.closed) == ([("a", 1)], 1)


# --- who is registered -----------------------------------------------------------------------------------------------


async def test_who_is_registered_misses_nothing_though_it_comes_later(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60, cohort=lambda key: {1, 2})
    trigger = acking(broker)
    Hosted(manager, 1, trigger(nothing))
    broker.give("a", "a")
    await turns()
    assert broker.advanced == []
    late = Hosted(manager, 2, trigger())
    await turns()
    assert [raw["number"] for raw in late.fired] == [1, 2]
    late.confirm()
    await turns()
    assert broker.outcomes == {("a", 1): (2, 0, 0), ("a", 2): (2, 0, 0)}
    await manager.stop_all()


async def test_who_is_registered_and_restarts_misses_nothing(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60, cohort=lambda key: {1, 2})
    trigger = acking(broker)
    Hosted(manager, 1, trigger(nothing))
    broker.give("a", "a")
    restarts = Pull(manager, 2, trigger())
    await restarts.take()
    await restarts.leave()
    broker.give("a")
    await turns()
    back = Hosted(manager, 2, trigger(nothing))
    await turns()
    assert broker.outcomes == {("a", n): (2, 0, 0) for n in (1, 2, 3)}
    assert back.error is None
    await manager.stop_all()


async def test_who_is_no_longer_registered_is_not_waited_for(broker: Broker) -> None:
    registered = {1, 2}
    manager = SharedStreamManager(linger=60, cohort=lambda key: registered)
    Hosted(manager, 1, acking(broker)(nothing))
    broker.give("a")
    await turns()
    registered.discard(2)
    manager.cohort_changed()
    broker.give("a")
    await turns()
    assert broker.outcomes == {("a", 1): (1, 0, 0), ("a", 2): (1, 0, 0)}
    await manager.stop_all()


async def test_what_only_one_owed_who_is_no_longer_registered_is_delivered_again(broker: Broker) -> None:
    registered = {1}
    manager = SharedStreamManager(linger=60, cohort=lambda key: registered)
    old = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await old.take()
    registered.add(2)
    manager.cohort_changed()
    new = Hosted(manager, 2, acking(broker)(nothing))
    registered.discard(1)
    await old.break_off()
    manager.cohort_changed()
    await turns()
    assert "begins anew" in str(new.error)
    assert (broker.batches, broker.closed) == ([], 1)


def test_a_registered_one_that_was_too_late_misses_nothing_that_came_after(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(
            linger=600, ack_timeout=10, cohort=lambda key: {1}, _now=asyncio.get_running_loop().time
        )
        trigger = acking(broker)
        stuck = Pull(manager, 1, trigger())
        broker.give("a", "a")
        await stuck.take()
        await asyncio.sleep(12)
        broker.give("a")
        with pytest.raises(AckTimeout) as late:
            await stuck.take()
        await stuck.break_off(late.value)
        broker.give("a")
        await turns()
        back = Hosted(manager, 1, trigger(nothing))
        await turns()
        assert broker.outcomes == {("a", 1): (0, 1, 0)} | {("a", n): (1, 0, 0) for n in (2, 3, 4)}
        assert back.error is None
        await manager.stop_all()

    virtually(story())


async def test_a_registered_one_that_was_too_slow_misses_nothing_that_came_after(broker: Broker) -> None:
    manager = SharedStreamManager(linger=60, max_subscriber_queue=2, cohort=lambda key: {1, 2})
    trigger = acking(broker)
    Hosted(manager, 1, trigger(nothing))
    slow = Pull(manager, 2, trigger())
    for _ in range(3):
        broker.give("a")
        await turns()
    await slow.break_off(LookupError("too slow"))
    back = Hosted(manager, 2, trigger(nothing))
    await turns()
    assert broker.outcomes == {("a", 1): (1, 1, 0), ("a", 2): (1, 1, 0), ("a", 3): (2, 0, 0)}
    assert back.error is None
    await manager.stop_all()


# --- back-pressure ---------------------------------------------------------------------------------------------------


async def test_no_more_than_the_bound_is_outstanding(broker: Broker) -> None:
    manager = SharedStreamManager(max_in_flight=5)
    hosted = Hosted(manager, 1, acking(broker)())
    broker.give(*"a" * 12)
    fired = []
    for _ in range(3):
        await turns()
        fired.append(len(hosted.fired))
        hosted.confirm()
        await turns(40)
    assert fired == [5, 10, 12]
    assert len(broker.advanced) == 12
    await manager.stop_all()


# --- lanes and retries -----------------------------------------------------------------------------------------------


async def test_lanes_may_advance_beside_one_another_but_each_one_call_at_a_time(broker: Broker) -> None:
    manager = SharedStreamManager(advance_concurrency=3)
    broker.may_advance.clear()
    Hosted(manager, 1, acking(broker)(nothing))
    for _ in range(2):
        broker.give("a", "b")
        await turns()
    assert broker.in_flight == 2
    broker.give("c", "d")
    await turns()
    assert broker.in_flight == 3
    broker.may_advance.set()
    await turns(40)
    assert sorted(broker.advanced) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    await manager.stop_all()


class Forgiving(Broker):
    def may_retry_advance(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)


def test_an_advance_that_may_be_retried_is_and_other_lanes_do_not_wait(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Forgiving()
        manager = SharedStreamManager()
        broker.errors = [ConnectionError("hung up"), ConnectionError("hung up")]
        hosted = Hosted(manager, 1, acking(broker)(nothing))
        broker.give("a")
        await turns()
        broker.errors = []
        broker.give("b", "a")
        await turns()
        assert broker.advanced == [("b", 1)]
        await asyncio.sleep(1)
        assert [[item.broker_payload for item in batch] for batch in broker.batches[1:]] == [[("a", 1), ("a", 2)]]
        assert hosted.error is None
        await manager.stop_all()

    virtually(story())


def test_an_advance_is_not_retried_without_end_nor_against_the_producers_will(virtually: Virtually) -> None:
    async def story() -> None:
        for error, seconds in ((ConnectionError("hung up"), 25.5), (PermissionError("not yours"), 0.0)):
            broker = Forgiving()
            broker.errors = [error] * 100
            manager = SharedStreamManager()
            started = asyncio.get_running_loop().time()
            hosted = Hosted(manager, 1, acking(broker)(nothing))
            broker.give("a")
            await asyncio.wait([hosted.task])
            await turns()
            assert hosted.error is error
            assert asyncio.get_running_loop().time() - started == pytest.approx(seconds)
            assert broker.closed == 1

    virtually(story())


async def test_a_stream_that_stops_tries_once_more_what_it_was_to_retry_later() -> None:
    broker = Forgiving()
    broker.errors = [ConnectionError("hung up")]
    manager = SharedStreamManager()
    Hosted(manager, 1, acking(broker)(nothing))
    broker.give("a")
    await turns()
    assert broker.advanced == []
    await manager.stop_all()
    assert (broker.advanced, broker.closed) == ([("a", 1)], 1)


# --- the watermark ---------------------------------------------------------------------------------------------------


class Cumulative(Broker):
    """Commits the last event of a batch, and so all before it."""

    commits_cumulatively = True


def some_fail(manager: SharedStreamManager, broker: Broker) -> Hosted:
    """One that accepts everything, beside one that fails on the second of three events."""
    trigger = fragile(broker, {2: 1})
    Hosted(manager, 1, acking(broker)(nothing))
    return Hosted(manager, 2, trigger())


async def test_a_cumulative_commit_never_passes_an_event_that_somebody_failed_on() -> None:
    broker = Cumulative()
    manager = SharedStreamManager()
    fails = some_fail(manager, broker)
    broker.give("a", "a", "a")
    await turns()
    fails.confirm()
    await turns()
    assert broker.advanced == [("a", 1)]
    assert isinstance(fails.error, LookupError)
    assert manager._groups == {}
    assert broker.closed == 1


async def test_everybody_learns_which_event_a_cumulative_commit_could_not_pass() -> None:
    broker = Cumulative()
    manager = SharedStreamManager(max_subscriber_queue=1)
    good = Hosted(manager, 1, acking(broker)(nothing))
    Pull(manager, 2, acking(broker)())
    broker.give("a", "a")
    await turns(40)
    assert broker.advanced == []
    assert isinstance(good.error, EventNotHandled)
    assert "the event at ('a', 1) was not handled (1 subscribers failed on it)" in str(good.error)


async def test_a_cumulative_commit_passes_an_event_that_was_put_elsewhere() -> None:
    class DeadLetters(Cumulative):
        def __init__(self) -> None:
            super().__init__()
            self.dead: list[Any] = []

        async def dead_letter(self, item: AdvanceItem) -> None:
            self.dead.append((item.broker_payload, [*self.advanced]))

    broker = DeadLetters()
    manager = SharedStreamManager()
    fails = some_fail(manager, broker)
    broker.give("a", "a", "a")
    await turns()
    fails.confirm()
    await turns()
    assert broker.dead[0] == (("a", 2), [("a", 1)])
    assert broker.advanced == [("a", 1), ("a", 2), ("a", 3)]
    await manager.stop_all()


async def test_a_producer_that_decides_for_each_event_is_given_failures_in_its_batches(broker: Broker) -> None:
    manager = SharedStreamManager()
    fails = some_fail(manager, broker)
    broker.give("a", "a", "a")
    await turns()
    fails.confirm()
    await turns()
    assert [len(batch) for batch in broker.batches] == [3]
    assert broker.outcomes == {("a", 1): (2, 0, 0), ("a", 2): (1, 1, 0), ("a", 3): (1, 1, 0)}
    await manager.stop_all()


# --- identities and figures ------------------------------------------------------------------------------------------


class Named(Broker):
    def get_event_identity(self, broker_payload: Any) -> str:
        return f"{broker_payload[0]}-{broker_payload[1]}"


async def test_results_are_named_after_the_event_and_their_order() -> None:
    broker = Named()
    manager = SharedStreamManager(linger=60)
    names = []
    for _ in range(2):
        reader = Pull(manager, 1, acking(broker)())
        broker.give(*("a" if not names else ""))
        await reader.take()
        assert manager.pending_identity(trigger_id=1, key=KEY) is None
        for _ in range(2):
            reader.fire()
            names.append(manager.pending_identity(trigger_id=1, key=KEY))
        await reader.break_off()
    assert names == ["a-1/1", "a-1/2"] * 2
    assert manager.pending_identity(trigger_id=1, key=KEY) is None
    await manager.stop_all()


async def test_an_event_that_is_stored_already_is_advanced_and_shown_to_nobody() -> None:
    broker = Named()
    manager = SharedStreamManager(already_stored=lambda key, name: (key, name) == (KEY, "a-1"))
    hosted = Hosted(manager, 1, acking(broker)())
    broker.give("a", "a")
    await turns()
    assert [raw["number"] for raw in hosted.fired] == [2]
    assert broker.outcomes == {("a", 1): (1, 0, 0)}
    assert manager.figures()[0].duplicates == 1
    await manager.stop_all()


async def test_figures_say_who_owes_the_oldest_event(broker: Broker) -> None:
    now = 100.0
    manager = SharedStreamManager(cohort=lambda key: {1, 2, 3}, linger=60, _now=lambda: now)
    trigger = acking(broker)
    Hosted(manager, 1, trigger(nothing))
    fires = Hosted(manager, 2, trigger())
    broker.give("a", "b", "a")
    await turns()
    now += 5
    [figures] = manager.figures()
    assert (figures.subscribers, figures.online, figures.depth, figures.lanes) == (3, 2, 3, 2)
    assert (figures.outstanding, figures.oldest_age, figures.owed_by) == (3, 5.0, (2, 3))
    Hosted(manager, 3, trigger(nothing))
    fires.confirm()
    await turns()
    [figures] = manager.figures()
    assert (figures.outstanding, figures.oldest_age, figures.owed_by) == (0, None, ())
    assert (figures.admitted, figures.advanced, figures.failed) == (3, 3, 0)
    await manager.stop_all()
