"""A broker advances when everybody has stored what came of an event: the documented promises of streams in ack mode."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from support.streams import KEY, Broker, Hosted, Pull, Reading, acking, reading, turns

from stannel.triggers.base import TriggerEvent
from stannel.triggers.shared_stream import (
    AckTimeout,
    AdvanceItem,
    AdvanceOutcome,
    SharedStreamManager,
    _SubscriberOverflow,
    reject_shared_stream_event,
)

Virtually = Callable[[Coroutine[Any, Any, None]], tuple[None, float]]


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def manager() -> AsyncIterator[SharedStreamManager]:
    manager = SharedStreamManager()
    yield manager
    await manager.stop_all()


def tasks_of_streams() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("shared-stream")}


class Refusing(Reading):
    """Refuses every event, and fires nothing."""

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for _ in shared_stream:
            reject_shared_stream_event()
        yield TriggerEvent("never")


def refusing(broker: Broker) -> Reading:
    class Both(Refusing, acking(broker)):  # type: ignore[misc]
        pass

    return Both()


# --- what makes a stream tell its broker -----------------------------------------------------------------------------


async def test_who_overrides_the_factory_is_told_to_its_broker_and_so_are_its_heirs() -> None:
    def rewritten(base: type[Reading]) -> type[Reading]:
        class Rewritten(base):  # type: ignore[misc, valid-type]
            @classmethod
            def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
                return super().create_shared_stream_producer(kwargs)

        return Rewritten

    class Heir(acking(Broker())):  # type: ignore[misc]
        pass

    class HeirOfHeir(Heir):
        pass

    for trigger in (Heir, HeirOfHeir, rewritten(acking(Broker()))):
        manager = SharedStreamManager()
        Pull(manager, 1, trigger())
        await turns()
        assert f"shared-stream-advance-pump[{KEY!r}]" in tasks_of_streams()
        await manager.stop_all()
        assert tasks_of_streams() == set()


async def test_the_tasks_of_a_group_are_named_after_its_key(manager: SharedStreamManager, broker: Broker) -> None:
    Pull(manager, 1, acking(broker)())
    await turns()
    assert tasks_of_streams() == {f"shared-stream-{duty}[{KEY!r}]" for duty in ("poll", "advance-pump", "ack-timeout")}


async def test_one_producer_serves_the_group_and_filters_see_bare_events(
    manager: SharedStreamManager, broker: Broker
) -> None:
    trigger = acking(broker)
    hosted = [Hosted(manager, number, trigger()) for number in range(3)]
    broker.give("a", "a")
    await turns()
    assert broker.made == 1
    for one in hosted:
        assert one.fired == [{"lane": "a", "number": 1}, {"lane": "a", "number": 2}]


async def test_a_factory_that_fails_ends_the_group(manager: SharedStreamManager) -> None:
    class Broken(Reading):
        @classmethod
        def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
            raise LookupError("no credentials")

    reader = Pull(manager, 1, Broken())
    with pytest.raises(LookupError, match="no credentials"):
        await reader.take()
    assert manager._groups == {}


# --- when an event is settled -----------------------------------------------------------------------------------------


async def test_the_broker_advances_once_when_all_have_moved_on(manager: SharedStreamManager, broker: Broker) -> None:
    trigger = acking(broker)
    one, two = Pull(manager, 1, trigger()), Pull(manager, 2, trigger())
    broker.give("a")
    await one.take()
    await two.take()
    assert await one.is_waiting()
    assert broker.batches == []
    assert await two.is_waiting()
    assert broker.batches == [[AdvanceItem(("a", 1), AdvanceOutcome(acked=2, failed=0, rejected=0))]]


async def test_an_event_that_fires_waits_until_all_it_fired_is_stored(
    manager: SharedStreamManager, broker: Broker
) -> None:
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await reader.take()
    first, second = reader.fire(), reader.fire()
    assert await reader.is_waiting()
    assert first is not None
    assert second is not None
    manager.confirm_persisted([first])
    await turns()
    assert broker.advanced == []
    manager.confirm_persisted(number for number in (second,))
    await turns()
    assert broker.outcomes == {("a", 1): (1, 0, 0)}


async def test_an_event_that_is_stored_while_its_filter_is_on_it_waits_for_the_filter(
    manager: SharedStreamManager, broker: Broker
) -> None:
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await reader.take()
    number = reader.fire()
    assert number is not None
    manager.confirm_persisted([number])
    await turns()
    assert broker.advanced == []
    assert await reader.is_waiting()
    assert broker.advanced == [("a", 1)]


async def test_numbers_are_unique_across_streams_and_unknown_ones_are_passed_over(manager: SharedStreamManager) -> None:
    brokers = [Broker() for _ in range(3)]
    hosted = [Hosted(manager, 1, acking(broker)(), key=number) for number, broker in enumerate(brokers)]
    for broker in brokers:
        broker.give("a", "a")
    await turns()
    numbers = [number for one in hosted for number in one.numbers]
    assert len(set(numbers)) == 6
    manager.confirm_persisted([-1, 0, 10**30, *[number for number in numbers if number is not None]])
    await turns()
    assert [broker.advanced for broker in brokers] == [[("a", 1), ("a", 2)]] * 3


async def test_a_late_joiner_owes_nothing_of_what_came_before(manager: SharedStreamManager, broker: Broker) -> None:
    trigger = acking(broker)
    first = Pull(manager, 1, trigger())
    broker.give("a")
    await first.take()
    late = Pull(manager, 2, trigger())
    assert await first.is_waiting()
    assert broker.outcomes == {("a", 1): (1, 0, 0)}
    broker.give("a")
    assert await late.take() == {"lane": "a", "number": 2}


async def test_leaving_while_on_an_event_accepts_it(manager: SharedStreamManager, broker: Broker) -> None:
    trigger = acking(broker)
    stays, leaves = Pull(manager, 1, trigger()), Pull(manager, 2, trigger())
    broker.give("a")
    await stays.take()
    await leaves.take()
    await leaves.leave()
    assert await stays.is_waiting()
    assert broker.outcomes == {("a", 1): (2, 0, 0)}


async def test_leaving_what_was_never_read_fails_it(manager: SharedStreamManager, broker: Broker) -> None:
    trigger = acking(broker)
    stays, leaves = Pull(manager, 1, trigger()), Pull(manager, 2, trigger())
    broker.give("a")
    await stays.take()
    await leaves.leave()
    assert await stays.is_waiting()
    assert broker.outcomes == {("a", 1): (1, 1, 0)}
    assert not broker.batches[0][0].outcome.is_clean


async def test_leaving_keeps_what_was_passed_waiting_for_its_results(
    manager: SharedStreamManager, broker: Broker
) -> None:
    trigger = acking(broker)
    Hosted(manager, 1, trigger(lambda raw: False))
    leaves = Pull(manager, 2, trigger())
    broker.give("a", "a")
    await leaves.take()
    number = leaves.fire()
    await leaves.take()
    await leaves.leave()
    await turns()
    assert broker.advanced == []
    assert number is not None
    manager.confirm_persisted([number])
    await turns()
    assert broker.outcomes == {("a", 1): (2, 0, 0), ("a", 2): (2, 0, 0)}


async def test_leaving_right_after_firing_waits_for_the_result(manager: SharedStreamManager, broker: Broker) -> None:
    trigger = acking(broker)
    Hosted(manager, 1, trigger(lambda raw: False))
    leaves = Pull(manager, 2, trigger())
    broker.give("a")
    await leaves.take()
    number = leaves.fire()
    await leaves.leave()
    await turns()
    assert broker.advanced == []
    assert number is not None
    manager.confirm_persisted([number])
    await turns()
    assert broker.outcomes == {("a", 1): (2, 0, 0)}


async def test_an_event_that_nobody_was_there_for_is_advanced_in_order_and_not_clean(broker: Broker) -> None:
    manager = SharedStreamManager(max_subscriber_queue=1)
    Pull(manager, 1, acking(broker)())
    broker.give("a", "b", "a", "b", "a", "b")
    await turns(60)
    assert sorted(broker.advanced) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    assert [payload for payload in broker.advanced if payload[0] == "a"] == [("a", 1), ("a", 2), ("a", 3)]
    assert broker.outcomes[("b", 3)] == (0, 0, 0)
    assert not broker.batches[-1][-1].outcome.is_clean
    await manager.stop_all()


@pytest.mark.parametrize(
    ("outcome", "is_clean"),
    [
        (AdvanceOutcome(acked=1, failed=0), True),
        (AdvanceOutcome(acked=3, failed=0, rejected=0), True),
        (AdvanceOutcome(acked=0, failed=0), False),
        (AdvanceOutcome(acked=1, failed=1), False),
        (AdvanceOutcome(acked=1, failed=0, rejected=1), False),
        (AdvanceOutcome(acked=0, failed=0, rejected=1), False),
    ],
)
def test_clean_is_accepted_by_somebody_and_by_all(outcome: AdvanceOutcome, is_clean: bool) -> None:
    assert outcome.is_clean is is_clean
    with pytest.raises(AttributeError):
        outcome.acked = 7  # type: ignore[misc]


def test_an_item_is_a_pair() -> None:
    payload, outcome = AdvanceItem(("topic", 1), AdvanceOutcome(1, 0))
    assert (payload, outcome.acked) == (("topic", 1), 1)


# --- refusing ---------------------------------------------------------------------------------------------------------


async def test_a_refused_event_counts_as_rejected_and_needs_nothing_stored(
    manager: SharedStreamManager, broker: Broker
) -> None:
    Hosted(manager, 1, refusing(broker))
    broker.give("a", "a")
    await turns()
    assert broker.outcomes == {("a", 1): (0, 0, 1), ("a", 2): (0, 0, 1)}


async def test_accepting_refusing_and_failing_are_counted_apart(broker: Broker) -> None:
    manager = SharedStreamManager(max_subscriber_queue=1)
    slow = Pull(manager, 1, acking(broker)())
    Hosted(manager, 2, refusing(broker))
    Hosted(manager, 3, acking(broker)(lambda raw: False))
    broker.give("a", "a")
    await turns(40)
    assert broker.outcomes[("a", 1)] == (1, 1, 1)
    with pytest.raises(_SubscriberOverflow):
        await slow.take()
    await manager.stop_all()


async def test_firing_after_refusing_fires_but_holds_nothing(manager: SharedStreamManager, broker: Broker) -> None:
    class RefusesAndFires(acking(broker)):  # type: ignore[misc]
        async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in shared_stream:
                reject_shared_stream_event()
                yield TriggerEvent(raw)

    hosted = Hosted(manager, 1, RefusesAndFires())
    broker.give("a")
    await turns()
    assert (len(hosted.fired), hosted.numbers) == (1, [None])
    assert broker.outcomes == {("a", 1): (0, 0, 1)}


async def test_refusing_after_firing_refuses(manager: SharedStreamManager, broker: Broker) -> None:
    class FiresAndRefuses(acking(broker)):  # type: ignore[misc]
        async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in shared_stream:
                yield TriggerEvent(raw)
                reject_shared_stream_event()
                reject_shared_stream_event()

    hosted = Hosted(manager, 1, FiresAndRefuses())
    broker.give("a", "a")
    await turns()
    assert broker.outcomes == {("a", 1): (0, 0, 1), ("a", 2): (0, 0, 1)}
    hosted.confirm()
    await turns()
    assert len(broker.advanced) == 2


async def test_another_task_or_thread_cannot_refuse(
    manager: SharedStreamManager, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        reject_shared_stream_event()

    class Delegating(acking(broker)):  # type: ignore[misc]
        async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in shared_stream:
                await asyncio.create_task(refuse())
                await asyncio.to_thread(reject_shared_stream_event)
                yield TriggerEvent(raw)

    hosted = Hosted(manager, 1, Delegating())
    broker.give("a")
    async with asyncio.timeout(10):
        while not hosted.fired:
            await asyncio.sleep(0.001)
    hosted.confirm()
    await turns()
    assert broker.outcomes == {("a", 1): (1, 0, 0)}
    assert caplog.text.count("outside an ack-mode binding window") == 2


async def test_between_two_events_there_is_nothing_to_refuse(
    manager: SharedStreamManager, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    events = manager.subscribe(trigger_id=1, trigger=acking(broker)(), key=KEY)
    broker.give("a")
    await anext(events)
    reject_shared_stream_event()
    assert caplog.text == ""
    reject_shared_stream_event()
    assert "outside an ack-mode binding window" in caplog.text
    await turns()
    assert broker.outcomes == {("a", 1): (0, 0, 1)}


# --- too slow, too late -----------------------------------------------------------------------------------------------


async def test_one_that_overflows_fails_on_everything_it_owes_and_the_others_go_on(broker: Broker) -> None:
    manager = SharedStreamManager(max_subscriber_queue=3)
    trigger = acking(broker)
    slow, quick = Pull(manager, 1, trigger()), Hosted(manager, 2, trigger(lambda raw: False))
    broker.give("a")
    await slow.take()
    slow.fire()
    for _ in range(5):
        broker.give("a")
        await turns()
    assert quick.fired == []
    assert broker.outcomes == {("a", n): (1, 1, 0) for n in range(1, 5)} | {("a", n): (1, 0, 0) for n in (5, 6)}
    with pytest.raises(_SubscriberOverflow):
        await slow.take()
    await manager.stop_all()


def test_who_is_too_late_fails_alone_and_the_broker_advances(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(ack_timeout=10, _now=asyncio.get_running_loop().time)
        trigger = acking(broker)
        late, quick = Pull(manager, 1, trigger()), Hosted(manager, 2, trigger(lambda raw: False))
        broker.give("a", "a")
        await late.take()
        await asyncio.sleep(9.5)
        assert broker.advanced == []
        await asyncio.sleep(1)
        assert broker.outcomes == {("a", 1): (1, 1, 0), ("a", 2): (1, 1, 0)}
        with pytest.raises(AckTimeout):
            await late.take()
        broker.give("a")
        await turns()
        assert broker.outcomes[("a", 3)] == (1, 0, 0)
        assert quick.error is None
        await manager.stop_all()

    virtually(story())


@pytest.mark.parametrize(("age", "fails"), [(9.999, False), (10.0, True)])
def test_late_is_exactly_the_timeout_old(virtually: Virtually, age: float, fails: bool) -> None:
    async def story() -> None:
        now = 100.0
        broker = Broker()
        manager = SharedStreamManager(ack_timeout=10, _now=lambda: now)
        reader = Pull(manager, 1, acking(broker)())
        broker.give("a")
        await reader.take()
        now += age
        await asyncio.sleep(1.1)
        assert bool(broker.advanced) is fails
        await manager.stop_all()

    virtually(story())


@pytest.mark.parametrize(("timeout", "cadence"), [(300.0, 30.0), (1.0, 0.1), (0.05, 0.01)])
def test_deadlines_are_looked_at_ten_times_in_a_timeout_but_not_in_a_rush(
    virtually: Virtually, timeout: float, cadence: float
) -> None:
    async def story() -> None:
        looks = 0

        def now() -> float:
            nonlocal looks
            looks += 1
            return 0.0

        manager = SharedStreamManager(ack_timeout=timeout, _now=now)
        Pull(manager, 1, acking(Broker())())
        await turns()
        looks = 0
        await asyncio.sleep(cadence * 5.5)
        assert looks == 5
        await manager.stop_all()

    virtually(story())


def test_a_result_that_is_never_stored_fails_at_the_timeout_and_its_number_is_void(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(ack_timeout=10, _now=asyncio.get_running_loop().time)
        reader = Pull(manager, 1, acking(broker)())
        broker.give("a")
        await reader.take()
        number = reader.fire()
        assert number is not None
        assert await reader.is_waiting()
        await asyncio.sleep(11)
        assert broker.outcomes == {("a", 1): (0, 1, 0)}
        manager.confirm_persisted([number])
        await turns()
        assert len(broker.advanced) == 1
        with pytest.raises(AckTimeout):
            await reader.take()
        await manager.stop_all()

    virtually(story())


def test_a_result_stored_just_in_time_is_accepted(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(ack_timeout=10, _now=asyncio.get_running_loop().time)
        reader = Hosted(manager, 1, acking(broker)())
        broker.give("a")
        await asyncio.sleep(9.5)
        reader.confirm()
        await asyncio.sleep(20)
        assert broker.outcomes == {("a", 1): (1, 0, 0)}
        assert reader.error is None
        await manager.stop_all()

    virtually(story())


def test_one_that_left_and_whose_results_are_never_stored_fails_at_the_timeout(virtually: Virtually) -> None:
    async def story() -> None:
        broker = Broker()
        manager = SharedStreamManager(ack_timeout=10, _now=asyncio.get_running_loop().time)
        trigger = acking(broker)
        Hosted(manager, 1, trigger(lambda raw: False))
        leaves = Pull(manager, 2, trigger())
        broker.give("a")
        await leaves.take()
        leaves.fire()
        await leaves.leave()
        # The same trigger is back as another subscriber; what its former self owes is not its business.
        back = Hosted(manager, 2, trigger(lambda raw: False))
        await asyncio.sleep(11)
        assert broker.outcomes == {("a", 1): (1, 1, 0)}
        assert back.error is None
        await manager.stop_all()

    virtually(story())


async def test_a_class_that_tells_its_broker_never_shares_with_one_that_does_not(
    manager: SharedStreamManager, broker: Broker
) -> None:
    class Plain(Broker):
        pass

    plain = Plain()
    unacked = Hosted(manager, 1, reading(plain.source)())
    acked = Hosted(manager, 2, acking(broker)())
    again = Hosted(manager, 3, acking(broker)(lambda raw: False))
    plain.source.give("plain")
    broker.give("a")
    await turns()
    assert (unacked.fired, unacked.numbers) == (["plain"], [None])
    acked.confirm()
    await turns()
    assert broker.outcomes == {("a", 1): (2, 0, 0)}
    await again.cancel()
    await acked.cancel()
    assert set(manager._groups) == {KEY}
    assert broker.closed == 1
