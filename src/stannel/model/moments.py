"""Time as the store and the wire keep it: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware moment."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The moment as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def maybe_moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
