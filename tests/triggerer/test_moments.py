"""Whoever waits for a moment is resumed when it comes, and nobody looks more often than needed."""

import asyncio
from datetime import UTC, datetime, timedelta

import looptime

from stannel.errors import StoreUnavailable
from stannel.triggerer.moments import Moments

START = datetime(2026, 3, 1, tzinfo=UTC)


class Calendar:
    """Moments in virtual time."""

    def __init__(self, *seconds: float) -> None:
        self.due = sorted(START + timedelta(seconds=one) for one in seconds)
        self.fired: list[float] = []
        self.looks = 0
        self.broken = 0
        self.moments = Moments(self.next_due, self.fire_due, self.now)

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    async def next_due(self) -> datetime | None:
        self.looks += 1
        if self.broken:
            self.broken -= 1
            raise StoreUnavailable("sqlite:///x", "it is restarted")
        return self.due[0] if self.due else None

    async def fire_due(self, now: datetime, most: int) -> int:
        ready = [one for one in self.due if one <= now][:most]
        self.due = self.due[len(ready) :]
        self.fired += [round((now - START).total_seconds(), 2)] * len(ready)
        return len(ready)

    async def run(self, seconds: float) -> None:
        task = asyncio.create_task(self.moments.run())
        await asyncio.sleep(seconds)
        task.cancel()


def run(calendar: Calendar, seconds: float) -> None:
    loop = looptime.new_event_loop(start=0)
    try:
        loop.run_until_complete(calendar.run(seconds))
    finally:
        loop.close()


def test_each_moment_is_met_when_it_comes() -> None:
    calendar = Calendar(0.5, 3.0, 3.0, 25.0)
    run(calendar, 30)
    assert calendar.fired == [0.5, 3.0, 3.0, 25.0]
    assert calendar.looks < 20


def test_thousands_that_are_due_together_go_at_once() -> None:
    calendar = Calendar(*[1.0] * 9000)
    run(calendar, 2)
    assert calendar.fired == [1.0] * 9000


def test_a_nearer_moment_is_noticed_when_one_is_woken() -> None:
    calendar = Calendar(9.0)

    async def story() -> None:
        task = asyncio.create_task(calendar.moments.run())
        await asyncio.sleep(1)
        calendar.due.insert(0, START + timedelta(seconds=2))
        calendar.moments.wake()
        await asyncio.sleep(2)
        task.cancel()

    loop = looptime.new_event_loop(start=0)
    loop.run_until_complete(story())
    loop.close()
    assert calendar.fired == [2.0]


def test_a_store_that_is_away_only_delays_it() -> None:
    calendar = Calendar(1.0)
    calendar.broken = 3
    run(calendar, 5)
    assert len(calendar.fired) == 1


def test_without_moments_it_sleeps() -> None:
    calendar = Calendar()
    run(calendar, 60)
    assert calendar.looks <= 7
