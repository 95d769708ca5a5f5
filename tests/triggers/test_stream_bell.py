"""Waking many tasks with one callback: nobody is forgotten, and each can be cancelled alone."""

import asyncio
from collections.abc import Awaitable

import pytest
from support.streams import turns

from stannel.triggers.stream_bell import Bell, Waiter


@pytest.fixture
async def bell() -> Bell:
    return Bell(asyncio.get_running_loop())


async def waits(awaitable: Awaitable[None], woken: list[int], number: int = 0) -> None:
    await awaitable
    woken.append(number)


@pytest.mark.parametrize("count", [1, 2, 50])
async def test_all_who_wait_are_woken_in_the_order_they_came(bell: Bell, count: int) -> None:
    woken: list[int] = []
    tasks = [asyncio.create_task(waits(Waiter(bell), woken, number)) for number in range(count)]
    await turns(2)
    assert woken == []
    bell.ring()
    bell.ring()
    await turns(3)
    assert woken == list(range(count))
    assert all(task.done() for task in tasks)


async def test_ringing_for_nobody_is_not_remembered(bell: Bell) -> None:
    woken: list[int] = []
    bell.ring()
    task = asyncio.create_task(waits(Waiter(bell), woken))
    await turns()
    assert woken == []
    task.cancel()
    await asyncio.wait([task])


async def test_a_waiter_can_be_awaited_again(bell: Bell) -> None:
    woken: list[int] = []
    waiter, other = Waiter(bell), asyncio.create_task(waits(Waiter(bell), []))

    async def twice() -> None:
        await waits(waiter, woken, 1)
        await waits(waiter, woken, 2)

    task = asyncio.create_task(twice())
    for expected in ([1], [1, 2]):
        await turns(3)
        bell.ring()
        await turns(3)
        assert woken == expected
    assert task.done()
    assert other.done()


async def test_one_that_is_cancelled_is_cancelled_alone_with_its_message(bell: Bell) -> None:
    woken: list[int] = []
    tasks = [asyncio.create_task(waits(Waiter(bell), woken, number)) for number in range(3)]
    await turns(2)
    tasks[1].cancel("not needed")
    with pytest.raises(asyncio.CancelledError, match="not needed"):
        await tasks[1]
    assert woken == []
    assert len(bell.waiting) == 2
    bell.ring()
    await turns(3)
    assert woken == [0, 2]


async def test_one_that_is_cancelled_before_it_waits_does_not_wait(bell: Bell) -> None:
    task = asyncio.create_task(waits(Waiter(bell), []))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_one_that_is_cancelled_by_another_that_was_just_woken_is_cancelled(bell: Bell) -> None:
    async def cancels() -> None:
        await Waiter(bell)
        second.cancel()

    first = asyncio.create_task(cancels())
    second = asyncio.create_task(waits(Waiter(bell), []))
    await turns(2)
    bell.ring()
    await asyncio.wait([first, second])
    assert second.cancelled()


async def test_a_cancellation_after_the_bell_finds_the_task_at_its_next_wait(bell: Bell) -> None:
    woken: list[int] = []
    tasks = [asyncio.create_task(waits(Waiter(bell), woken, number)) for number in range(2)]
    await turns(2)
    bell.ring()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert tasks[0].cancelled()
    assert woken == [1]


async def test_a_timeout_ends_a_wait(bell: Bell) -> None:
    other = asyncio.create_task(waits(Waiter(bell), []))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await Waiter(bell)
    other.cancel()
    await asyncio.wait([other])
    assert bell.waiting == []


async def test_one_who_waits_alone_is_woken_and_cancelled_like_any_other(bell: Bell) -> None:
    woken: list[int] = []
    task = asyncio.create_task(waits(bell.alone(), woken, 1))
    gone = asyncio.create_task(waits(bell.alone(), woken, 2))
    await turns(2)
    gone.cancel()
    await asyncio.wait([gone])
    bell.ring()
    await turns(3)
    assert woken == [1]
    assert task.done()


def test_a_task_that_ends_the_program_leaves_nobody_behind() -> None:
    woken: list[int] = []

    async def exits(bell: Bell) -> None:
        await Waiter(bell)
        raise SystemExit(3)

    async def start(bell: Bell) -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(exits(bell))]
        tasks += [asyncio.create_task(waits(Waiter(bell), woken, number)) for number in (1, 2)]
        await turns(2)
        return tasks

    loop = asyncio.new_event_loop()
    try:
        bell = Bell(loop)
        tasks = loop.run_until_complete(start(bell))
        bell.ring()
        with pytest.raises(SystemExit):
            loop.run_until_complete(turns())
        loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()
    assert woken == [1, 2]
    assert isinstance(tasks[0].exception(), SystemExit)
