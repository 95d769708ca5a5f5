"""Dates for DAG authors: always aware, UTC unless said otherwise."""

from datetime import UTC, date, tzinfo
from datetime import datetime as _datetime
from zoneinfo import ZoneInfo

from stannel.sdk import environment

__all__ = [
    "coerce_datetime",
    "convert_to_utc",
    "datetime",
    "is_localized",
    "is_naive",
    "make_aware",
    "make_naive",
    "parse",
    "parse_timezone",
    "timezone",
    "utc",
    "utcnow",
]

utc = UTC


def datetime(*args: int, tzinfo: tzinfo | None = None, **kwargs: int) -> _datetime:
    """A `datetime` in UTC, or in the given zone."""
    return _datetime(*args, **kwargs, tzinfo=tzinfo or UTC)  # type: ignore[misc,arg-type]


def utcnow() -> _datetime:
    return _datetime.now(UTC)


def timezone(name: str) -> tzinfo:
    """The zone of that name in the zone database."""
    return UTC if name.upper() == "UTC" else ZoneInfo(name)


def default_timezone() -> tzinfo:
    """The zone of dates that name none: `[core] default_timezone`."""
    return timezone(environment.setting("CORE__DEFAULT_TIMEZONE", "UTC"))


def parse_timezone(name: str) -> tzinfo:
    return timezone(name)


def parse(text: str, timezone: tzinfo | None = None, *, strict: bool = False) -> _datetime:
    """Read an ISO 8601 date or date and time; without a zone it is taken as `timezone` (UTC)."""
    moment = _datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone or UTC)


def is_localized(moment: _datetime) -> bool:
    return moment.utcoffset() is not None


def is_naive(moment: _datetime) -> bool:
    return moment.utcoffset() is None


def make_aware(moment: _datetime, timezone: tzinfo | None = None) -> _datetime:
    """Attach a zone to a naive moment."""
    if is_localized(moment):
        raise ValueError(f"{moment} already has a time zone")
    return moment.replace(tzinfo=timezone or UTC)


def make_naive(moment: _datetime, timezone: tzinfo | None = None) -> _datetime:
    """The wall clock reading in `timezone` (UTC), without a zone."""
    if is_naive(moment):
        raise ValueError(f"{moment} has no time zone")
    return moment.astimezone(timezone or UTC).replace(tzinfo=None)


def convert_to_utc(moment: _datetime | None) -> _datetime | None:
    """The same moment in UTC; a naive one is taken as UTC."""
    if moment is None:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def coerce_datetime(moment: _datetime | None, tz: tzinfo | None = None) -> _datetime | None:
    """An aware moment, in `tz` if given."""
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(tz) if tz else aware


def zone_name(zone: tzinfo | None) -> str:
    """The name under which the zone can be found again. Fixed offsets become `UTC+02:00`."""
    if zone is None or zone is UTC:
        return "UTC"
    name = getattr(zone, "key", None) or getattr(zone, "name", None) or getattr(zone, "zone", None)
    return str(name or zone.tzname(None) or "UTC")


def as_moment(value: _datetime | date | str, zone: tzinfo | None = None) -> _datetime:
    """What authors write as a start or end date, as an aware moment."""
    if isinstance(value, str):
        return parse(value, zone)
    if not isinstance(value, _datetime):
        value = _datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return value if value.tzinfo else value.replace(tzinfo=zone or UTC)
