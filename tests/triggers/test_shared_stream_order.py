"""In which order brokers advance, and what becomes of a stream whose broker, poll or subscribers end."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Any

import pytest
from support.streams import KEY, Broker, Hosted, Pull, acking, turns

from stannel.triggers.shared_stream import AdvanceItem, AdvanceOutcome, SharedStreamManager, SharedStreamProducer


@pytest.fixture
async def broker() -> Broker:
    return Broker()


@pytest.fixture
async def manager() -> AsyncIterator[SharedStreamManager]:
    manager = SharedStreamManager()
    yield manager
    await manager.stop_all()


# --- order ------------------------------------------------------------------------------------------------------------


async def test_events_settled_out_of_order_are_advanced_in_order(manager: SharedStreamManager, broker: Broker) -> None:
    hosted = Hosted(manager, 1, acking(broker)())
    broker.give("a", "a", "a")
    await turns()
    first, second, third = [number for number in hosted.numbers if number is not None]
    manager.confirm_persisted([third, second])
    await turns()
    assert broker.batches == []
    manager.confirm_persisted([first])
    await turns()
    assert [[item.broker_payload for item in batch] for batch in broker.batches] == [[("a", 1), ("a", 2), ("a", 3)]]


async def test_events_settled_one_by_one_are_advanced_one_by_one(manager: SharedStreamManager, broker: Broker) -> None:
    hosted = Hosted(manager, 1, acking(broker)())
    broker.give("a", "a", "a")
    await turns()
    for number in hosted.numbers:
        assert number is not None
        manager.confirm_persisted([number])
        await turns()
    assert [[item.broker_payload for item in batch] for batch in broker.batches] == [[("a", n)] for n in (1, 2, 3)]


async def test_lanes_do_not_wait_for_one_another_and_batches_never_mix_them(
    manager: SharedStreamManager, broker: Broker
) -> None:
    hosted = Hosted(manager, 1, acking(broker)(lambda raw: raw["lane"] == "slow" and raw["number"] == 1))
    broker.give("slow", "quick", "slow", "quick", "other")
    await turns()
    assert sorted([item.broker_payload for item in batch] for batch in broker.batches) == [
        [("other", 1)],
        [("quick", 1), ("quick", 2)],
    ]
    hosted.confirm()
    await turns()
    assert [item.broker_payload for item in broker.batches[-1]] == [("slow", 1), ("slow", 2)]


async def test_a_lane_is_forgotten_when_it_is_empty(manager: SharedStreamManager, broker: Broker) -> None:
    Hosted(manager, 1, acking(broker)(lambda raw: False))
    broker.give(*range(100))
    await turns(150)
    assert len(broker.advanced) == 100
    [group] = manager._acked()
    assert group.ledger.lanes == {}
    assert group.ledger.outstanding == 0


async def test_one_call_is_awaited_at_a_time_whatever_the_lane(manager: SharedStreamManager, broker: Broker) -> None:
    broker.may_advance.clear()
    Hosted(manager, 1, acking(broker)(lambda raw: False))
    broker.give("a", "b", "a")
    await turns()
    broker.give("a", "b", "c")
    await turns()
    assert broker.in_flight == 1
    broker.may_advance.set()
    await turns(40)
    assert sorted(broker.advanced) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]
    assert broker.most_in_flight == 1


async def test_lanes_take_turns(manager: SharedStreamManager, broker: Broker) -> None:
    broker.may_advance.clear()
    Hosted(manager, 1, acking(broker)(lambda raw: False))
    for lanes in ("abc", "abc"):
        broker.give(*lanes)
        await turns()
    broker.may_advance.set()
    await turns(40)
    assert [batch[0].broker_payload[0] for batch in broker.batches[:3]] == ["a", "b", "c"]


async def test_a_lane_function_that_fails_ends_the_poll_after_what_was_settled(manager: SharedStreamManager) -> None:
    class NoLane(Broker):
        def get_advance_lane(self, broker_payload: Any) -> Hashable:
            if broker_payload == ("b", 1):
                raise LookupError("which lane?")
            return None

    broker = NoLane()
    broker.may_advance.clear()
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await reader.take()
    assert await reader.is_waiting()
    broker.give("b")
    await turns()
    assert manager._groups == {}
    broker.may_advance.set()
    await turns()
    assert broker.advanced == [("a", 1)]
    assert broker.closed == 1
    with pytest.raises(LookupError, match="which lane"):
        await reader.take()


async def test_a_lane_that_cannot_be_a_key_ends_the_poll(manager: SharedStreamManager) -> None:
    class Unhashable(Broker):
        def get_advance_lane(self, broker_payload: Any) -> Hashable:
            return []  # type: ignore[return-value]

    broker = Unhashable()
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    with pytest.raises(TypeError, match="unhashable"):
        await reader.take()
    await turns()
    assert broker.closed == 1


# --- errors and ends --------------------------------------------------------------------------------------------------


async def test_an_advance_that_fails_ends_the_group_for_all_and_nothing_more_is_advanced(
    manager: SharedStreamManager, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.errors = [ConnectionError("the broker hung up")]
    broker.may_advance.clear()
    trigger = acking(broker)
    readers = [Hosted(manager, number, trigger(lambda raw: False)) for number in range(3)]
    broker.give("a", "b", "a")
    await turns()
    broker.may_advance.set()
    await turns()
    assert broker.batches == []
    assert broker.closed == 1
    assert manager._groups == {}
    assert [str(reader.error) for reader in readers] == ["the broker hung up"] * 3
    assert "Producer advance raised; terminating shared-stream group" in caplog.text
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("shared-stream")]


async def test_an_advance_that_is_cancelled_by_its_library_ends_the_group_too(
    manager: SharedStreamManager,
) -> None:
    class GivesUp(Broker):
        async def advance(self, batch: Sequence[AdvanceItem]) -> None:
            raise asyncio.CancelledError

    broker = GivesUp()
    Hosted(manager, 1, acking(broker)(lambda raw: False))
    broker.give("a")
    await turns()
    assert manager._groups == {}
    assert broker.closed == 1


async def test_an_advance_that_fails_while_the_group_stops_tells_nobody_twice(broker: Broker) -> None:
    manager = SharedStreamManager()
    broker.errors = [ConnectionError("the broker hung up")]
    broker.may_advance.clear()
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await reader.take()
    assert await reader.is_waiting()
    stopping = asyncio.create_task(manager.stop_all())
    await turns()
    broker.may_advance.set()
    await stopping
    assert broker.closed == 1
    assert await reader.is_waiting()
    await reader.leave()


async def test_a_poll_that_fails_frees_its_key_before_anything_else_happens(manager: SharedStreamManager) -> None:
    class FailsAndLingers(Broker):
        async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
            yield "event", ("a", 1)
            assert set(manager._groups) == {KEY}
            asyncio.get_running_loop().call_soon(lambda: seen.append(set(manager._groups)))
            raise LookupError("gone")

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            self.closed += 1

    seen: list[set[Hashable]] = []
    broker = FailsAndLingers()
    Pull(manager, 1, acking(broker)())
    await turns()
    assert seen == [set()]
    assert broker.closed == 1


async def test_stopping_waits_for_the_advance_under_way_and_closes_once(broker: Broker) -> None:
    manager = SharedStreamManager()
    broker.may_advance.clear()
    Hosted(manager, 1, acking(broker)(lambda raw: False))
    broker.give("a")
    await turns()
    stopping = asyncio.create_task(manager.stop_all())
    await turns()
    assert not stopping.done()
    assert broker.closed == 0
    broker.may_advance.set()
    await stopping
    assert (broker.advanced, broker.closed) == ([("a", 1)], 1)


async def test_stopping_advances_what_is_settled_in_every_lane_and_leaves_the_rest_to_the_broker(
    broker: Broker,
) -> None:
    manager = SharedStreamManager()
    broker.may_advance.clear()
    Hosted(manager, 1, acking(broker)(lambda raw: raw["number"] == 2))
    broker.give("a", "b", "c", "a", "b")
    await turns()
    stopping = asyncio.create_task(manager.stop_all())
    await turns()
    broker.may_advance.set()
    await stopping
    assert sorted(broker.advanced) == [("a", 1), ("b", 1), ("c", 1)]
    assert broker.closed == 1


async def test_the_last_one_leaving_with_something_unstored_leaves_it_to_the_broker(
    manager: SharedStreamManager, broker: Broker
) -> None:
    reader = Pull(manager, 1, acking(broker)())
    broker.give("a")
    await reader.take()
    number = reader.fire()
    assert number is not None
    await reader.leave()
    assert (broker.advanced, broker.closed) == ([], 1)
    manager.confirm_persisted([number])
    await turns()
    assert broker.advanced == []


@pytest.mark.parametrize("fails", [True, False])
async def test_the_producer_is_closed_once_however_the_poll_ends(manager: SharedStreamManager, fails: bool) -> None:
    class ClosesBadly(Broker):
        async def aclose(self) -> None:
            self.closed += 1
            raise OSError("already closed")

    broker = ClosesBadly()
    reader = Pull(manager, 1, acking(broker)())
    await turns()
    if fails:
        broker.source.fail(LookupError("gone"))
        with pytest.raises(LookupError):
            await reader.take()
    else:
        await reader.leave()
    await turns()
    assert broker.closed == 1


async def test_groups_advance_beside_one_another(manager: SharedStreamManager) -> None:
    brokers = [Broker(), Broker()]
    for number, broker in enumerate(brokers):
        broker.may_advance.clear()
        Hosted(manager, number, acking(broker)(lambda raw: False), key=number)
        broker.give("a")
    await turns()
    assert [broker.in_flight for broker in brokers] == [1, 1]
    for broker in brokers:
        broker.may_advance.set()


async def test_a_producer_need_only_read_and_advance(manager: SharedStreamManager) -> None:
    told = []

    class Small(SharedStreamProducer):
        async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
            yield "event", "receipt"
            await asyncio.Event().wait()

        async def advance(self, batch: Sequence[AdvanceItem]) -> None:
            told.extend(batch)

    Hosted(manager, 1, acking(Small())(lambda raw: False))
    await turns()
    assert told == [("receipt", AdvanceOutcome(1, 0))]
