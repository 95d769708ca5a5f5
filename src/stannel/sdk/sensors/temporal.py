"""Sensors that wait for a moment, a time of day or a day of the week."""

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from enum import IntEnum
from typing import Any

from stannel.sdk import timezone
from stannel.sdk.exceptions import AirflowFailException
from stannel.sdk.sensors.base import BaseSensorOperator


class TimeSensor(BaseSensorOperator):
    """Waits for a time of the day on which the try started, in the DAG's time zone."""

    def __init__(self, *, target_time: time, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(target_time, time):
            raise self.invalid(f"target_time must be a datetime.time, not {target_time!r}")
        self.target_time = target_time

    def poke(self, context: Any) -> bool:
        zone = self.target_time.tzinfo or self.dag.timezone
        # The day of the first start: a wait that crosses midnight is not to begin anew.
        day = context["ti"].first_start_date.astimezone(zone).date()
        target = datetime.combine(day, self.target_time.replace(tzinfo=None), zone)
        self.log.info("Waiting until %s", target)
        return timezone.utcnow() >= target


class DateTimeSensor(BaseSensorOperator):
    """Waits for a moment: a `datetime`, or a text in ISO 8601, which may be a template."""

    template_fields: Sequence[str] = ("target_time",)

    def __init__(self, *, target_time: str | datetime, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A reference to another task's output is as good; what it holds is read when the task runs.
        self.target_time: Any = target_time

    def poke(self, context: Any) -> bool:
        target = timezone.as_moment(self.target_time, self.dag.timezone)
        self.log.info("Waiting until %s", target)
        return timezone.utcnow() >= target


class TimeDeltaSensor(BaseSensorOperator):
    """Waits until some time has passed since the end of the run's data interval, or since the run was due."""

    def __init__(self, *, delta: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(delta, timedelta):
            raise self.invalid(f"delta must be a timedelta, not {delta!r}")
        self.delta = delta

    def poke(self, context: Any) -> bool:
        run = context["dag_run"]
        target = (run.data_interval_end or run.run_after) + self.delta
        self.log.info("Waiting until %s", target)
        return bool(timezone.utcnow() >= target)


class WeekDay(IntEnum):
    """The days of the week, from Monday, which is 1."""

    MONDAY = 1
    TUESDAY = 2
    WEDNESDAY = 3
    THURSDAY = 4
    FRIDAY = 5
    SATURDAY = 6
    SUNDAY = 7

    @classmethod
    def named(cls, day: "str | WeekDay") -> "WeekDay":
        """The day of that name, in any case; `ValueError` if there is none."""
        if isinstance(day, WeekDay):
            return day
        try:
            return cls[day.strip().upper()]
        except (KeyError, AttributeError):
            raise ValueError(f"{day!r} is no day of the week; they are {', '.join(one.name for one in cls)}") from None


class DayOfWeekSensor(BaseSensorOperator):
    """Waits for one of these days of the week, today's or, if wanted, that of the logical date, in the DAG's zone."""

    def __init__(
        self,
        *,
        week_day: str | WeekDay | Iterable[str | WeekDay],
        use_task_logical_date: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        days = [week_day] if isinstance(week_day, str | WeekDay) else list(week_day)
        if not days:
            raise self._wrong("week_day names no day")
        try:
            self.week_days = frozenset(WeekDay.named(day) for day in days)
        except ValueError as error:
            raise self._wrong(str(error)) from None
        self.week_day, self.use_task_logical_date = week_day, use_task_logical_date

    def poke(self, context: Any) -> bool:
        moment = context["logical_date"] if self.use_task_logical_date else timezone.utcnow()
        if moment is None:
            raise AirflowFailException("use_task_logical_date needs a logical date, and this run has none.")
        return moment.astimezone(self.dag.timezone).isoweekday() in self.week_days
