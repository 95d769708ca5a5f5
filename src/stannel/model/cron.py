"""Cron on the wall clock: when an expression ticks in a time zone, also on the days the clock jumps.

A wall-clock time that does not exist ticks once, as much later as the clock jumped. A time that happens twice ticks
once, the first time; an expression for every hour ticks both times, so that no hour is left out.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from stannel.errors import InvalidCron, UnknownTimezone
from stannel.model.schedule import PRESETS

_DAY = timedelta(days=1)
_ZERO = timedelta(0)
_SOME_MONDAY = datetime(2024, 1, 1)  # noqa: DTZ001 (a wall clock without a zone)

# First value, how many values, and names, for the fields whose ranges may wrap round (22-5, FRI-MON).
_WRAPPING: dict[int, tuple[int, int, tuple[str, ...]]] = {
    1: (0, 60, ()),
    2: (0, 24, ()),
    4: (1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    5: (0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
}


def check_cron(expression: str) -> None:
    """Refuse an expression that cannot be read or that never ticks."""
    _parsed(expression)


def next_tick(expression: str, timezone: str, after: datetime) -> datetime:
    """The first tick strictly after a moment, in UTC."""
    cron = _parsed(expression)
    zone = zone_named(timezone)
    after = after.astimezone(UTC)
    local = after.astimezone(zone)
    offset = _offset(local)
    # Around a jump of the clock, ticks after this moment may carry an earlier wall-clock time than this moment does.
    jumped = offset - _offset((after - _DAY).astimezone(zone))
    falling = offset - _offset((after + _DAY).astimezone(zone)) if cron.every_hour else _ZERO
    start = local.replace(tzinfo=None) - max(jumped, falling, _ZERO)
    best: datetime | None = None
    for wall in _walls(cron.translated, start, reverse=False):
        plain, moments = _moments(wall, zone, cron.every_hour)
        for moment in moments:
            if moment > after and (best is None or moment < best):
                best = moment
        if plain and best is not None:
            return best
    raise InvalidCron(expression, f"it does not tick any more after {after.isoformat()}")


def previous_tick(expression: str, timezone: str, before: datetime) -> datetime:
    """The last tick strictly before a moment, in UTC."""
    cron = _parsed(expression)
    zone = zone_named(timezone)
    before = before.astimezone(UTC)
    for wall in _walls(cron.translated, before.astimezone(zone).replace(tzinfo=None), reverse=True):
        _, moments = _moments(wall, zone, cron.every_hour)
        earlier = [moment for moment in moments if moment < before]
        if earlier:
            return _last_before(expression, timezone, max(earlier), before)
    raise InvalidCron(expression, f"it did not tick before {before.isoformat()}")


def zone_named(timezone: str) -> ZoneInfo:
    """The time zone of that name; refuses a name nobody knows."""
    try:
        return ZoneInfo(timezone)
    # zoneinfo reports a bad key as ValueError, an unknown one as KeyError, a directory's name as OSError.
    except (KeyError, ValueError, OSError) as error:
        raise UnknownTimezone(timezone) from error


def _last_before(expression: str, timezone: str, tick: datetime, before: datetime) -> datetime:
    # Walking the wall clock backwards may miss ticks where it jumps; walking forwards never does.
    while (later := next_tick(expression, timezone, tick)) < before:
        tick = later
    return tick


class _Cron:
    __slots__ = ("every_hour", "translated")

    def __init__(self, translated: str, every_hour: bool) -> None:
        self.translated = translated
        self.every_hour = every_hour


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> _Cron:
    translated = _translate(expression)
    try:
        simulation = CronSim(translated, _SOME_MONDAY)
        next(simulation)
    except CronSimError as error:
        raise InvalidCron(expression, _complaint(error)) from error
    except StopIteration as error:
        raise InvalidCron(expression, "it never ticks: no such date exists") from error
    return _Cron(translated, every_hour=len(simulation.hours) == 24)


def _complaint(error: CronSimError) -> str:
    text = str(error)
    return f"its {text[4:]} field cannot be read" if text.startswith("Bad ") else text.lower()


def _translate(expression: str) -> str:
    """The expression as the simulator reads it: presets spelled out, seconds first, ranges that wrap round listed."""
    if not isinstance(expression, str):
        raise InvalidCron(str(expression), "it must be a string")
    text = expression.strip()
    if text.startswith("@") and text.lower() not in PRESETS:
        raise InvalidCron(expression, f"the presets are {', '.join(PRESETS)}")
    fields = PRESETS.get(text.lower(), text).upper().split()
    if len(fields) not in (5, 6):
        raise InvalidCron(expression, f"it has {len(fields)} fields; 5 are needed, or 6 with the seconds last")
    seconds = fields.pop() if len(fields) == 6 else "0"
    fields = [seconds, *("*" if field == "?" else field for field in fields)]
    return " ".join(_unwrapped(number, field) for number, field in enumerate(fields))


def _unwrapped(number: int, field: str) -> str:
    if number not in _WRAPPING or "-" not in field:
        return field
    return ",".join(_unwrapped_term(number, term) for term in field.split(","))


def _unwrapped_term(number: int, term: str) -> str:
    first, count, names = _WRAPPING[number]
    span, _, step = term.partition("/")
    ends = [str(first + names.index(end)) if end in names else end for end in span.split("-")]
    if len(ends) != 2 or not all(end.isdecimal() for end in [*ends, step or "1"]) or step == "0":
        return term
    low, high = int(ends[0]), int(ends[1])
    if low <= high or low >= first + count or high < first:
        return term
    values = range(low, high + count + 1, int(step or "1"))
    return ",".join(str(first + (value - first) % count) for value in values)


def _walls(translated: str, start: datetime, *, reverse: bool) -> Iterator[datetime]:
    """Wall-clock ticks on one side of a wall-clock time, without a zone."""
    simulation: Iterator[datetime] = CronSim(translated, start, reverse=reverse)
    return simulation


def _moments(wall: datetime, zone: ZoneInfo, every_hour: bool) -> tuple[bool, list[datetime]]:
    """Whether this wall-clock time is an ordinary one, and the moments at which it ticks."""
    local = wall.replace(tzinfo=zone)
    early, late = _offset(local), _offset(local.replace(fold=1))
    first = (wall - early).replace(tzinfo=UTC)
    if early == late:
        return True, [first]
    missing = early < late
    if not every_hour:
        return not missing, [first]
    return False, [] if missing else [first, (wall - late).replace(tzinfo=UTC)]


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None, "every moment here has a zone"
    return offset
