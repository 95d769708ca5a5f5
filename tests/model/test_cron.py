from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.errors import InvalidCron, UnknownTimezone
from stannel.model.cron import check_cron, next_tick, previous_tick, zone_named
from stannel.model.schedule import PRESETS

BERLIN, NEW_YORK, KOLKATA = "Europe/Berlin", "America/New_York", "Asia/Kolkata"


def local_ticks(expression: str, timezone: str, after: str, count: int) -> list[str]:
    """The ticks after a local time, written as local time with the offset."""
    zone = ZoneInfo(timezone)
    moment = datetime.fromisoformat(after).replace(tzinfo=zone).astimezone(UTC)
    found = []
    for _ in range(count):
        moment = next_tick(expression, timezone, moment)
        found.append(moment.astimezone(zone).strftime("%m-%dT%H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "expected"),
    [
        # An ordinary day, and a zone with half an hour.
        ("0 6 * * *", BERLIN, "2026-01-10T12:00", ["01-11T06:00+0100", "01-12T06:00+0100"]),
        ("30 5 * * *", KOLKATA, "2026-01-10T05:29", ["01-10T05:30+0530", "01-11T05:30+0530"]),
        ("0 * * * *", KOLKATA, "2026-01-10T05:29", ["01-10T06:00+0530", "01-10T07:00+0530"]),
        # Spring: the clock jumps from 02:00 to 03:00.
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["03-29T03:30+0200", "03-30T02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", ["03-08T03:30-0400", "03-09T02:30-0400"]),
        ("0 2,3 * * *", BERLIN, "2026-03-28T12:00", ["03-29T03:00+0200", "03-30T02:00+0200", "03-30T03:00+0200"]),
        ("0 * * * *", BERLIN, "2026-03-29T00:30", ["03-29T01:00+0100", "03-29T03:00+0200", "03-29T04:00+0200"]),
        ("40 2 * * *", BERLIN, "2026-03-29T03:05", ["03-29T03:40+0200", "03-30T02:40+0200"]),
        ("40 2,3 * * *", BERLIN, "2026-03-29T03:05", ["03-29T03:40+0200", "03-30T02:40+0200"]),
        (
            "20,40 2-3 * * *",
            BERLIN,
            "2026-03-29T00:00",
            ["03-29T03:20+0200", "03-29T03:40+0200", "03-30T02:20+0200"],
        ),
        # Autumn: 02:00 to 03:00 happens twice.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["10-25T02:30+0200", "10-26T02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", ["11-01T01:30-0400", "11-02T01:30-0500"]),
        (
            "0 * * * *",
            BERLIN,
            "2026-10-25T01:30",
            ["10-25T02:00+0200", "10-25T02:00+0100", "10-25T03:00+0100"],
        ),
        (
            "*/30 * * * *",
            NEW_YORK,
            "2026-11-01T00:45",
            ["11-01T01:00-0400", "11-01T01:30-0400", "11-01T01:00-0500", "11-01T01:30-0500", "11-01T02:00-0500"],
        ),
        ("*/30 2 * * *", BERLIN, "2026-10-25T00:00", ["10-25T02:00+0200", "10-25T02:30+0200", "10-26T02:00+0100"]),
        # Six fields: the seconds stand last.
        ("0 12 * * * 30", "UTC", "2026-01-01T00:00", ["01-01T12:00+0000", "01-02T12:00+0000"]),
        # Ranges that wrap round.
        ("0 22-1 * * *", "UTC", "2026-01-01T12:00", ["01-01T22:00+0000", "01-01T23:00+0000", "01-02T00:00+0000"]),
        ("0 0 * * FRI-MON/2", "UTC", "2026-01-01T12:00", ["01-02T00:00+0000", "01-04T00:00+0000", "01-09T00:00+0000"]),
        ("0 0 1 nov-feb ?", "UTC", "2026-01-01T12:00", ["02-01T00:00+0000", "11-01T00:00+0000"]),
        ("0 0 L * *", "UTC", "2026-02-01T12:00", ["02-28T00:00+0000"]),
        ("0 0 29 2 *", "UTC", "2026-02-01T12:00", ["02-29T00:00+0000"]),
    ],
)
def test_an_expression_ticks_on_the_wall_clock(expression: str, timezone: str, after: str, expected: list[str]) -> None:
    assert local_ticks(expression, timezone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "timezone", "before", "expected"),
    [
        ("0 6 * * *", BERLIN, "2026-01-10T06:00+01:00", "2026-01-09T06:00+01:00"),
        ("40 2 * * *", BERLIN, "2026-03-29T03:20+02:00", "2026-03-28T02:40+01:00"),
        ("40 2 * * *", BERLIN, "2026-03-29T03:50+02:00", "2026-03-29T03:40+02:00"),
        # The first 02:45 lies before the second 02:30.
        ("45 * * * *", BERLIN, "2026-10-25T02:30+01:00", "2026-10-25T02:45+02:00"),
        ("30 2 * * *", BERLIN, "2026-10-25T02:40+01:00", "2026-10-25T02:30+02:00"),
        # Lord Howe jumps from 02:00 to 02:30: 02:10 is put off to 02:40, which is after 02:35.
        ("10,35 2 * * *", "Australia/Lord_Howe", "2026-10-04T02:50+11:00", "2026-10-04T02:40+11:00"),
    ],
)
def test_the_previous_tick_is_the_last_one_before(expression: str, timezone: str, before: str, expected: str) -> None:
    assert previous_tick(expression, timezone, datetime.fromisoformat(before)) == datetime.fromisoformat(expected)


def test_seconds_stand_last() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_tick("* * * * * 15", "UTC", start) == start + timedelta(seconds=15)
    assert previous_tick("* * * * * 15", "UTC", start) == start - timedelta(seconds=45)


def test_a_whole_day_that_the_calendar_left_out_loses_no_run() -> None:
    # Samoa had no 30 December 2011.
    assert local_ticks("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00", 3) == [
        "12-29T09:00-1000",
        "12-31T09:00+1400",
        "01-01T09:00+1400",
    ]


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_ticks_at_a_full_hour(preset: str) -> None:
    tick = next_tick(preset, "UTC", datetime(2026, 5, 5, 5, 5, tzinfo=UTC))
    assert (tick.minute, tick.second, tick.microsecond) == (0, 0, 0)
    assert next_tick(PRESETS[preset], "UTC", datetime(2026, 5, 5, 5, 5, tzinfo=UTC)) == tick


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("61 * * * *", "minute field"),
        ("* 25 * * *", "hour field"),
        ("* * 0 * *", "day-of-month field"),
        ("* * * 13 *", "month field"),
        ("* * * * MOO", "day-of-week field"),
        ("* * * * * 60", "second field"),
        ("*/0 * * * *", "minute field"),
        ("5-2/0 * * * *", "minute field"),
        ("80-2 * * * *", "minute field"),
        ("0 0 31 2 *", "day-of-month field"),
        ("0 0 * 2 MON#5,9", "day-of-week field"),
        ("@fortnightly", "@hourly"),
        ("@once", "@hourly"),
    ],
)
def test_a_bad_expression_is_refused_with_what_is_wrong(expression: str, complaint: str) -> None:
    with pytest.raises(InvalidCron) as refusal:
        check_cron(expression)
    assert complaint in str(refusal.value)
    assert repr(expression) in str(refusal.value)
    assert refusal.value.expression == expression


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "../etc/passwd", "", "Europe"])
def test_an_unknown_time_zone_is_named(timezone: str) -> None:
    with pytest.raises(UnknownTimezone, match="There is no time zone"):
        zone_named(timezone)


EXPRESSIONS = st.sampled_from(
    [
        "0 * * * *",
        "*/10 * * * *",
        "30 2 * * *",
        "*/20 1-3 * * *",
        "0 */2 * * *",
        "15 2,3 * * 0",
        "0 0 1 * *",
        "5 1 * * * 30",
    ]
)
ZONES = st.sampled_from(["UTC", BERLIN, NEW_YORK, KOLKATA, "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"])
# Days around the jumps of the zones above, so that most examples meet one.
JUMPS = [
    (2026, 3, 29),
    (2026, 10, 25),
    (2026, 3, 8),
    (2026, 11, 1),
    (2026, 4, 4),
    (2026, 10, 3),
    (2011, 12, 30),
    (2018, 11, 4),
]
MOMENTS = st.builds(
    lambda day, seconds: datetime(*day, tzinfo=UTC) + timedelta(seconds=seconds),
    st.sampled_from(JUMPS),
    st.integers(-90_000, 120_000),
)


@given(EXPRESSIONS, ZONES, MOMENTS)
def test_ticks_strictly_increase(expression: str, timezone: str, start: datetime) -> None:
    ticks = [start]
    for _ in range(12):
        ticks.append(next_tick(expression, timezone, ticks[-1]))
    assert all(earlier < later for earlier, later in pairwise(ticks))
    assert all(tick.tzinfo is UTC for tick in ticks)


@given(EXPRESSIONS, ZONES, MOMENTS)
def test_no_tick_lies_between_a_moment_and_its_next(expression: str, timezone: str, moment: datetime) -> None:
    tick = next_tick(expression, timezone, moment)
    halfway = moment + (tick - moment) / 2
    assert next_tick(expression, timezone, halfway) == tick
    assert previous_tick(expression, timezone, tick) <= moment
    assert previous_tick(expression, timezone, tick + timedelta(microseconds=1)) == tick


@given(EXPRESSIONS, ZONES, MOMENTS)
def test_the_tick_after_the_previous_tick_is_not_before_the_moment(
    expression: str, timezone: str, moment: datetime
) -> None:
    tick = previous_tick(expression, timezone, moment)
    assert tick < moment <= next_tick(expression, timezone, tick)


@given(st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe"]), MOMENTS)
def test_every_hour_of_a_jump_has_its_tick(timezone: str, moment: datetime) -> None:
    tick = next_tick("0 * * * *", timezone, moment)
    # Lord Howe jumps by half an hour, so an hour on its wall clock may last 30 or 90 minutes.
    assert tick - moment <= timedelta(minutes=90)
