from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.asset import ThisAsset
from stannel.model.dag import DagSpec
from stannel.model.schedule import AnySchedule, Continuous, Cron, DueRun, Every, Interval, Never, OnAssets, Once
from stannel.scheduler.timetables import interval_for_manual, next_run

DAILY = Cron("0 0 * * *")
DAILY_POINT = Cron("0 0 * * *", interval=False)
SIX_HOURS = Every(6 * 3600)
SIX_HOURS_POINT = Every(6 * 3600, interval=False)


def at(text: str) -> datetime:
    """A moment in January 2026: '05T12:30' or '05'."""
    return datetime.fromisoformat(f"2026-01-{text}").replace(tzinfo=UTC)


def dag(schedule: AnySchedule, start: str | None = None, end: str | None = None, *, catchup: bool = False) -> DagSpec:
    return DagSpec(
        dag_id="d",
        schedule=schedule,
        start_date=at(start) if start else None,
        end_date=at(end) if end else None,
        catchup=catchup,
    )


def covering(start: str, end: str) -> DueRun:
    return DueRun(at(start), Interval(at(start), at(end)), at(end))


def point(moment: str) -> DueRun:
    return DueRun(at(moment), Interval(at(moment), at(moment)), at(moment))


@pytest.mark.parametrize(
    ("spec", "last", "now", "expected"),
    [
        # Intervals with catch-up: from the first tick at or after the start date, one after the other.
        (dag(DAILY, "01", catchup=True), None, "05", covering("01", "02")),
        (dag(DAILY, "01T00:01", catchup=True), None, "05", covering("02", "03")),
        (dag(DAILY, "01", catchup=True), covering("01", "02"), "05", covering("02", "03")),
        (dag(DAILY, "10", catchup=True), None, "05", covering("10", "11")),
        (dag(SIX_HOURS, "01T01:00", catchup=True), None, "05", covering("01T01:00", "01T07:00")),
        (dag(SIX_HOURS, "01", catchup=True), covering("01", "01T06:00"), "05", covering("01T06:00", "01T12:00")),
        # Without catch-up: the most recent complete interval, and the past is left alone.
        (dag(DAILY, "01"), None, "05T12:00", covering("04", "05")),
        (dag(DAILY, "01"), None, "05", covering("04", "05")),
        (dag(DAILY, "05"), None, "05T12:00", covering("05", "06")),
        (dag(DAILY, "01"), covering("01", "02"), "05T12:00", covering("04", "05")),
        (dag(DAILY, "01"), covering("04", "05"), "05T12:00", covering("05", "06")),
        (dag(SIX_HOURS, "01T01:00"), None, "05T12:00", covering("05T01:00", "05T07:00")),
        (dag(SIX_HOURS, "01"), covering("05T06:00", "05T12:00"), "05T12:30", covering("05T12:00", "05T18:00")),
        # The schedule changed since the last run: the next interval starts at a tick of the new one.
        (dag(DAILY, "01", catchup=True), covering("01T06:00", "01T12:00"), "05", covering("02", "03")),
        # Points in time.
        (dag(DAILY_POINT, "01", catchup=True), None, "05", point("01")),
        (dag(DAILY_POINT, "01T00:01", catchup=True), None, "05", point("02")),
        (dag(DAILY_POINT, "01", catchup=True), point("01"), "05", point("02")),
        (dag(DAILY_POINT, "01"), point("01"), "05T12:00", point("05")),
        (dag(DAILY_POINT, "01"), point("05"), "05T12:00", point("06")),
        (dag(DAILY_POINT, "10"), None, "05", point("10")),
        (dag(SIX_HOURS_POINT, "01T01:00", catchup=True), None, "05", point("01T01:00")),
        (dag(SIX_HOURS_POINT, "01T01:00"), point("01T01:00"), "05T12:00", point("05T07:00")),
        # The end date: no run whose logical date is after it.
        (dag(DAILY, "01", "03", catchup=True), covering("02", "03"), "05", covering("03", "04")),
        (dag(DAILY, "01", "03", catchup=True), covering("03", "04"), "05", None),
        (dag(DAILY, "01", "03"), None, "05T12:00", None),
        (dag(DAILY_POINT, "01", "03", catchup=True), point("03"), "05", None),
        (dag(Once(), "04", "03"), None, "05", None),
        (dag(Continuous(), "01", "03"), covering("01", "04"), "05", None),
        # The other kinds.
        (dag(Never(), "01"), None, "05", None),
        (dag(Once(), "01"), None, "05", point("01")),
        (dag(Once(), "01"), point("01"), "05", None),
        (dag(Continuous(), "01"), None, "05", covering("01", "05")),
        (dag(Continuous(), "10"), None, "05", point("10")),
        (dag(Continuous(), "01"), covering("01", "05"), "05T12:00", covering("05", "05T12:00")),
    ],
)
def test_the_next_run_is_the_one_the_schedule_asks_for(
    spec: DagSpec, last: DueRun | None, now: str, expected: DueRun | None
) -> None:
    assert next_run(spec, last, at(now), first_seen=at("01")) == expected


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        (DAILY, "03T12:00", covering("04", "05")),
        (DAILY, "08T12:00", covering("07", "08")),
        (DAILY_POINT, "03T12:00", point("04")),
        (DAILY_POINT, "08T12:00", point("08")),
        (SIX_HOURS, "03T12:00", covering("03T12:00", "03T18:00")),
        (SIX_HOURS_POINT, "04T01:00", point("04")),
        (Once(), "08", point("03T12:00")),
        (Continuous(), "08", covering("03T12:00", "08")),
    ],
)
def test_a_dag_without_a_start_date_starts_when_it_was_first_seen(
    schedule: AnySchedule, now: str, expected: DueRun
) -> None:
    assert next_run(dag(schedule), None, at(now), first_seen=at("03T12:00")) == expected


def test_a_new_dag_of_points_waits_for_its_next_tick_instead_of_running_for_an_old_one() -> None:
    assert next_run(dag(DAILY_POINT, "01"), None, at("05T12:00"), first_seen=at("05T11:00")) == point("06")
    assert next_run(dag(DAILY_POINT, "01"), None, at("06T00:01"), first_seen=at("05T11:00")) == point("06")


def test_once_without_any_start_is_now() -> None:
    assert next_run(dag(Once()), None, at("05T12:00")) == point("05T12:00")


def test_a_distance_without_any_start_is_counted_from_the_last_run() -> None:
    last = covering("05T01:00", "05T07:00")
    assert next_run(dag(SIX_HOURS), last, at("05T07:30")) == covering("05T07:00", "05T13:00")


def test_continuous_runs_in_one_instant_have_different_logical_dates() -> None:
    spec, now = dag(Continuous(), "10"), at("10")
    first = next_run(spec, None, now)
    second = next_run(spec, first, now)
    assert first is not None
    assert second is not None
    assert first.logical_date != second.logical_date


def test_a_daily_interval_has_23_hours_when_the_clock_jumps_forward() -> None:
    spec = DagSpec(
        dag_id="d",
        schedule=Cron("0 0 * * *", timezone="Europe/Berlin"),
        start_date=datetime(2026, 3, 28, 23, tzinfo=UTC),
        catchup=True,
    )
    run = next_run(spec, None, datetime(2026, 4, 1, tzinfo=UTC))
    assert run is not None
    assert run.interval is not None
    assert run.interval.end - run.interval.start == timedelta(hours=23)


@pytest.mark.parametrize(
    ("spec", "moment", "start", "end"),
    [
        (dag(DAILY, "01"), "05T12:00", "04", "05"),
        (dag(DAILY, "01"), "05", "04", "05"),
        (dag(SIX_HOURS, "01T01:00"), "05T12:00", "05T01:00", "05T07:00"),
        (dag(SIX_HOURS), "05T12:00", "05T06:00", "05T12:00"),
        (dag(DAILY_POINT, "01"), "05T12:00", "05T12:00", "05T12:00"),
        (dag(SIX_HOURS_POINT, "01"), "05T11:00", "05T11:00", "05T11:00"),
        (dag(Never()), "05T12:00", "05T12:00", "05T12:00"),
        (dag(Once()), "05T12:00", "05T12:00", "05T12:00"),
        (dag(Continuous()), "05T12:00", "05T12:00", "05T12:00"),
    ],
)
def test_a_run_by_hand_is_about_the_last_complete_interval(spec: DagSpec, moment: str, start: str, end: str) -> None:
    assert interval_for_manual(spec, at(moment)) == Interval(at(start), at(end))


SCHEDULES: st.SearchStrategy[AnySchedule] = st.one_of(
    st.builds(Cron, st.sampled_from(["0 0 * * *", "*/7 * * * *", "0 9 * * 1"]), interval=st.booleans()),
    st.builds(Every, st.sampled_from([0.5, 60.0, 5400.0, 86_400.0]), interval=st.booleans()),
    st.just(Continuous()),
)
MOMENTS = st.datetimes(datetime(2025, 12, 1), datetime(2026, 3, 1), timezones=st.just(UTC))


WAITS = st.lists(st.integers(0, 200_000), min_size=2, max_size=8)


@given(SCHEDULES, st.none() | MOMENTS, st.booleans(), MOMENTS, WAITS)
def test_runs_follow_each_other_without_going_back(
    schedule: AnySchedule, start: datetime | None, catchup: bool, seen: datetime, waits: list[int]
) -> None:
    spec = DagSpec(dag_id="d", schedule=schedule, start_date=start, catchup=catchup)
    now, last = seen, None
    for wait in waits:
        due = next_run(spec, last, now, first_seen=seen)
        assert due is not None
        assert due.logical_date is not None
        assert due.interval is not None
        assert due.logical_date >= (start or seen)
        if last is not None and last.logical_date is not None and last.interval is not None:
            assert due.logical_date > last.logical_date
            assert due.interval.start >= last.interval.end
        now = max(now, due.run_after) + timedelta(seconds=wait)
        last = due


@given(SCHEDULES, st.none() | MOMENTS, st.booleans(), MOMENTS, st.integers(0, 10_000_000), st.floats(0, 1))
def test_a_run_that_was_announced_is_still_due_when_its_moment_comes(
    schedule: AnySchedule, start: datetime | None, catchup: bool, seen: datetime, later: int, part: float
) -> None:
    spec = DagSpec(dag_id="d", schedule=schedule, start_date=start, catchup=catchup)
    now = seen + timedelta(seconds=later)
    due = next_run(spec, None, now, first_seen=seen)
    assert due is not None
    if due.run_after > now:
        assert next_run(spec, None, now + (due.run_after - now) * part, first_seen=seen) == due


def test_a_schedule_of_assets_is_due_by_its_part_about_time_alone() -> None:
    asset = ThisAsset("a", "a")
    assert next_run(dag(OnAssets(asset), "01"), None, at("05")) is None
    both = dag(OnAssets(asset, time=DAILY), "01")
    assert next_run(both, None, at("05")) == next_run(dag(DAILY, "01"), None, at("05"))
    assert interval_for_manual(both, at("05T12:00")) == interval_for_manual(dag(DAILY, "01"), at("05T12:00"))
    assert interval_for_manual(dag(OnAssets(asset)), at("05")) == Interval(at("05"), at("05"))
