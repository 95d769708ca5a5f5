"""Dates for DAG authors."""

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from stannel.sdk import timezone as tz

BERLIN = ZoneInfo("Europe/Berlin")


def test_moments_are_aware_and_utc_by_default() -> None:
    assert tz.datetime(2026, 1, 2, 3) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert tz.datetime(2026, 1, 2, tzinfo=BERLIN).tzinfo is BERLIN
    assert tz.utcnow().tzinfo is UTC


def test_texts_are_read_with_and_without_a_zone() -> None:
    assert tz.parse("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert tz.parse("2026-01-02") == datetime(2026, 1, 2, tzinfo=UTC)
    assert tz.parse("2026-01-02T00:00", timezone=BERLIN).tzinfo is BERLIN


def test_naive_and_aware_are_told_apart_and_turned_into_each_other() -> None:
    naive, aware = datetime(2026, 7, 1, 12), datetime(2026, 7, 1, 12, tzinfo=BERLIN)
    assert tz.is_naive(naive)
    assert tz.is_localized(aware)
    assert tz.make_aware(naive, BERLIN) == aware
    assert tz.make_naive(aware) == datetime(2026, 7, 1, 10)
    assert tz.convert_to_utc(aware) == datetime(2026, 7, 1, 10, tzinfo=UTC)
    with pytest.raises(ValueError, match="already has"):
        tz.make_aware(aware)
    with pytest.raises(ValueError, match="no time zone"):
        tz.make_naive(naive)


def test_zones_are_known_by_name() -> None:
    assert tz.timezone("utc") is UTC
    assert tz.zone_name(BERLIN) == "Europe/Berlin"
    assert tz.zone_name(None) == tz.zone_name(UTC) == "UTC"
    assert tz.zone_name(timezone(timedelta(hours=2))) == "UTC+02:00"


def test_start_dates_may_be_days_and_texts() -> None:
    assert tz.as_moment(date(2026, 1, 1)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert tz.as_moment("2026-01-01", BERLIN) == datetime(2026, 1, 1, tzinfo=BERLIN)
