"""When the next run of a DAG is due, computed from its schedule and its last scheduled run. Pure: it reads no clock."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from stannel.model.cron import next_tick, previous_tick
from stannel.model.dag import DagSpec
from stannel.model.schedule import Continuous, Cron, DueRun, Every, Interval, Never, OnAssets, Once

_INSTANT = timedelta(microseconds=1)


class _Ticks(msgspec.Struct, frozen=True):
    """The moments a schedule is made of: the first one at or after, and the last one at or before, a given moment."""

    at_or_after: Callable[[datetime], datetime]
    at_or_before: Callable[[datetime], datetime]


def next_run(spec: DagSpec, last: DueRun | None, now: datetime, *, first_seen: datetime | None = None) -> DueRun | None:
    """The run that follows `last`; it may lie in the future. None: the schedule asks for no more runs.

    `first_seen` is when the DAG was first known. It stands in for a missing start date, and a DAG whose runs are points
    in time does not run for ticks before it unless it catches up. It must be the same in every call.
    """
    match spec.schedule:
        case Never():
            due = None
        case Once():
            due = _point(spec.start_date or first_seen or now) if last is None else None
        case Continuous():
            due = _continuous(spec.start_date or first_seen or now, last, now)
        case Cron(interval=interval) | Every(interval=interval):
            seen = first_seen or (_end_of(last) if last else now)
            ticks = _ticks(spec.schedule, spec.start_date or seen)
            following = _interval_run if interval else _point_run
            due = following(spec, ticks, last, now, seen)
        case OnAssets(time=time):
            timed = msgspec.structs.replace(spec, schedule=time)
            return next_run(timed, last, now, first_seen=first_seen)
        case unknown:
            assert_never(unknown)
    return None if due is None or _is_over(spec, due) else due


def interval_for_manual(spec: DagSpec, moment: datetime) -> Interval:
    """What a run started by hand is about: the last complete interval before the moment, else the moment itself."""
    schedule = spec.schedule.time if isinstance(spec.schedule, OnAssets) else spec.schedule
    match schedule:
        case Cron(interval=True):
            ticks = _ticks(schedule, moment)
            end = ticks.at_or_before(moment)
            return Interval(ticks.at_or_before(end - _INSTANT), end)
        case Every(interval=True, seconds=seconds):
            ticks = _ticks(schedule, spec.start_date or moment)
            end = ticks.at_or_before(moment)
            return Interval(end - timedelta(seconds=seconds), end)
        case _:
            return Interval(moment, moment)


def _interval_run(spec: DagSpec, ticks: _Ticks, last: DueRun | None, now: datetime, first_seen: datetime) -> DueRun:
    start = ticks.at_or_after(_after_last(spec.start_date or first_seen, last, step=timedelta(0)))
    if not spec.catchup:
        complete = ticks.at_or_before(now)
        start = max(start, ticks.at_or_before(complete - _INSTANT))
    end = ticks.at_or_after(start + _INSTANT)
    return DueRun(logical_date=start, interval=Interval(start, end), run_after=end)


def _point_run(spec: DagSpec, ticks: _Ticks, last: DueRun | None, now: datetime, first_seen: datetime) -> DueRun:
    earliest = spec.start_date or first_seen
    if not spec.catchup:
        earliest = max(earliest, first_seen)
    tick = ticks.at_or_after(_after_last(earliest, last, step=_INSTANT))
    if not spec.catchup:
        tick = max(tick, ticks.at_or_before(now))
    return _point(tick)


def _continuous(earliest: datetime, last: DueRun | None, now: datetime) -> DueRun:
    start = _after_last(earliest, last, step=timedelta(0))
    if last is not None and last.logical_date is not None:
        # Two runs in the same instant would have the same logical date, and a DAG has each only once.
        start = max(start, last.logical_date + _INSTANT)
    end = max(start, now)
    return DueRun(logical_date=start, interval=Interval(start, end), run_after=end)


def _after_last(earliest: datetime, last: DueRun | None, *, step: timedelta) -> datetime:
    return earliest if last is None else max(earliest, _end_of(last) + step)


def _end_of(run: DueRun) -> datetime:
    return run.interval.end if run.interval is not None else run.run_after


def _point(moment: datetime) -> DueRun:
    return DueRun(logical_date=moment, interval=Interval(moment, moment), run_after=moment)


def _is_over(spec: DagSpec, due: DueRun) -> bool:
    return spec.end_date is not None and due.logical_date is not None and due.logical_date > spec.end_date


def _ticks(schedule: Cron | Every, origin: datetime) -> _Ticks:
    if isinstance(schedule, Cron):
        return _cron_ticks(schedule.expression, schedule.timezone)
    return _even_ticks(timedelta(seconds=schedule.seconds), origin)


def _cron_ticks(expression: str, timezone: str) -> _Ticks:
    return _Ticks(
        at_or_after=lambda moment: next_tick(expression, timezone, moment - _INSTANT),
        at_or_before=lambda moment: previous_tick(expression, timezone, moment + _INSTANT),
    )


def _even_ticks(distance: timedelta, origin: datetime) -> _Ticks:
    # A distance that rounds to nothing would never get past its origin.
    distance = max(distance, _INSTANT)
    return _Ticks(
        at_or_after=lambda moment: origin - (origin - moment) // distance * distance,
        at_or_before=lambda moment: origin + (moment - origin) // distance * distance,
    )
