import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from stannel.triggers.base import TaskSuccessEvent, TriggerEvent
from stannel.triggers.temporal import DateTimeTrigger, TimeDeltaTrigger, sleep_until

MOMENT = datetime(2030, 1, 1, 12, tzinfo=UTC)
PAST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("given", ["2030-01-01", 12.5, None, MOMENT.date()])
def test_what_is_no_datetime_is_refused(given):
    with pytest.raises(TypeError, match="waits for a datetime"):
        DateTimeTrigger(given)


def test_a_moment_without_a_time_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        DateTimeTrigger(MOMENT.replace(tzinfo=None))


def test_a_moment_is_kept_in_utc():
    kept = DateTimeTrigger(datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))).moment
    assert (kept, kept.tzinfo) == (MOMENT, UTC)


def test_a_delta_is_stored_as_the_moment_it_ends_at():
    before = datetime.now(UTC)
    classpath, kwargs = TimeDeltaTrigger(timedelta(hours=1), end_from_trigger=True).serialize()
    assert classpath == "stannel.triggers.temporal.DateTimeTrigger"
    assert before <= kwargs["moment"] - timedelta(hours=1) <= datetime.now(UTC)
    assert kwargs["end_from_trigger"] is True


async def test_a_moment_that_has_passed_fires_at_once():
    assert [event async for event in DateTimeTrigger(PAST).run()] == [TriggerEvent(PAST)]


async def test_a_moment_may_end_the_task():
    assert [event async for event in DateTimeTrigger(PAST, end_from_trigger=True).run()] == [TaskSuccessEvent()]


def now_of_loop(shift: timedelta = timedelta(0)) -> datetime:
    return PAST + timedelta(seconds=asyncio.get_running_loop().time()) + shift


def test_a_wait_ends_when_its_moment_has_come(virtually):
    _, took = virtually(sleep_until(PAST + timedelta(hours=5, milliseconds=250), now_of_loop))
    assert took == pytest.approx(5 * 3600 + 0.25)


@pytest.mark.parametrize(("shift", "took"), [(timedelta(hours=1), 1800), (timedelta(minutes=-10), 4200)])
def test_a_clock_that_is_set_while_we_wait_is_followed(virtually, shift, took):
    """After half an hour of an hour's wait the clock is put forward, or back."""

    def now() -> datetime:
        return now_of_loop(shift if asyncio.get_running_loop().time() >= 1800 else timedelta(0))

    _, waited = virtually(sleep_until(PAST + timedelta(hours=1), now))
    assert waited == pytest.approx(took, abs=60)
