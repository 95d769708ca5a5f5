"""Schedules as objects: `DAG(schedule=CronTriggerTimetable("0 6 * * *", timezone="Europe/Berlin"))`."""

from datetime import timedelta, tzinfo
from typing import Any

from stannel.model.schedule import PRESETS, AnySchedule, Continuous, Cron, Every, Never, Once
from stannel.sdk.timezone import zone_name


class Timetable:
    """A schedule; `compiled` is what the engine sees."""

    def compiled(self) -> AnySchedule:
        raise NotImplementedError

    @property
    def summary(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.compiled()!r})"


class NullTimetable(Timetable):
    """Only by hand."""

    def compiled(self) -> AnySchedule:
        return Never()


class OnceTimetable(Timetable):
    """A single run."""

    def compiled(self) -> AnySchedule:
        return Once()


class ContinuousTimetable(Timetable):
    """The next run as soon as the last one ended."""

    def compiled(self) -> AnySchedule:
        return Continuous()


class _CronTimetable(Timetable):
    _interval = False

    def __init__(self, cron: str, timezone: str | tzinfo = "UTC") -> None:
        self.expression = cron_expression(cron)
        self.timezone = timezone if isinstance(timezone, str) else zone_name(timezone)

    def compiled(self) -> AnySchedule:
        return Cron(expression=self.expression, timezone=self.timezone, interval=self._interval)


class CronTriggerTimetable(_CronTimetable):
    """A run at each tick; it is about that point in time."""

    def __init__(self, cron: str, *, timezone: str | tzinfo = "UTC") -> None:
        super().__init__(cron, timezone)


class CronDataIntervalTimetable(_CronTimetable):
    """A run at the end of each stretch between two ticks; it is about that stretch."""

    _interval = True


class DeltaTriggerTimetable(Timetable):
    """A run every `delta`; it is about that point in time."""

    _interval = False

    def __init__(self, delta: timedelta) -> None:
        if delta <= timedelta(0):
            raise ValueError(f"the distance between runs must be more than 0, not {delta!r}")
        self.delta = delta

    def compiled(self) -> AnySchedule:
        return Every(seconds=self.delta.total_seconds(), interval=self._interval)


class DeltaDataIntervalTimetable(DeltaTriggerTimetable):
    """A run at the end of each stretch of `delta`; it is about that stretch."""

    _interval = True


def cron_expression(text: str) -> str:
    """A preset written out, or the expression with single spaces. Its fields are checked when the DAG is stored."""
    expression = PRESETS.get(text.strip().lower(), text)
    fields = expression.split()
    if len(fields) not in (5, 6):
        known = ", ".join(["@once", "@continuous", *PRESETS])
        raise ValueError(f"{text!r} is neither a cron expression of five or six fields nor one of {known}")
    return " ".join(fields)


def timetable_of(schedule: Any, zone: tzinfo | None = None) -> Timetable:
    """The timetable an author means by the value of `schedule`."""
    if schedule is None:
        return NullTimetable()
    if isinstance(schedule, Timetable):
        return schedule
    if isinstance(schedule, timedelta):
        return DeltaTriggerTimetable(schedule)
    if isinstance(schedule, str):
        special = {"@once": OnceTimetable, "@continuous": ContinuousTimetable, "@none": NullTimetable}
        kind = special.get(schedule.strip().lower())
        return kind() if kind is not None else CronTriggerTimetable(schedule, timezone=zone or "UTC")
    raise ValueError(f"{schedule!r} is not a schedule; use None, a cron text, a preset, a timedelta or a timetable")
