"""Sensors that wait for a moment, a time of day or a day of the week."""

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from enum import IntEnum
from typing import Any

from stannel.sdk import building, timezone
from stannel.sdk.deferral import built_in
from stannel.sdk.exceptions import AirflowFailException
from stannel.sdk.sensors.base import BaseSensorOperator, DeferrableSensor
from stannel.sdk.template_marks import needs_rendering
from stannel.triggers.base import BaseTrigger, StartTriggerArgs

DATE_TIME_TRIGGER = "stannel.triggers.temporal.DateTimeTrigger"


class MomentSensor(DeferrableSensor):
    """Waits for a moment that its subclass knows.

    With `deferrable` it has no process meanwhile. `end_from_trigger`: it needs none afterwards either; the end of the
    wait is the end of the task. `start_from_trigger`: nor before, if the moment is known when the file is read.
    """

    trigger_module = "temporal"

    def __init__(
        self,
        *,
        start_from_trigger: bool = False,
        end_from_trigger: bool = False,
        trigger_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.end_from_trigger, self.trigger_kwargs = end_from_trigger, trigger_kwargs
        self.start_from_trigger = start_from_trigger

    def begin_with(self, moment: datetime | None) -> None:
        """Have the task start from its trigger, if its author wishes it: with this moment, or with `trigger_kwargs`."""
        arguments = dict(self.trigger_kwargs or ({} if moment is None else {"moment": moment}))
        if not self.start_from_trigger or not arguments:
            return
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=DATE_TIME_TRIGGER,
            trigger_kwargs={"end_from_trigger": self.end_from_trigger, **arguments},
            next_method="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def moment(self, context: Any) -> datetime:
        """What is waited for."""
        raise NotImplementedError(f"{type(self).__name__} has no moment() method")

    def poke(self, context: Any) -> bool:
        moment = self.moment(context)
        self.log.info("Waiting until %s", moment)
        return timezone.utcnow() >= moment

    def trigger_for(self, context: Any) -> BaseTrigger:
        trigger: BaseTrigger = built_in("temporal", "DateTimeTrigger")(
            self.moment(context), end_from_trigger=self.end_from_trigger
        )
        return trigger


class TimeSensor(MomentSensor):
    """Waits for a time of the day on which the try started, in the DAG's time zone."""

    def __init__(self, *, target_time: time, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(target_time, time):
            raise self.invalid(f"target_time must be a datetime.time, not {target_time!r}")
        self.target_time = target_time
        _begin_unless_relative(self, "the day")

    def moment(self, context: Any) -> datetime:
        zone = self.target_time.tzinfo or self.dag.timezone
        # The day of the first start: a wait that crosses midnight is not to begin anew.
        day = context["ti"].first_start_date.astimezone(zone).date()
        return datetime.combine(day, self.target_time.replace(tzinfo=None), zone)


class DateTimeSensor(MomentSensor):
    """Waits for a moment: a `datetime`, or a text in ISO 8601, which may be a template."""

    template_fields: Sequence[str] = ("target_time",)

    def __init__(self, *, target_time: str | datetime, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A reference to another task's output is as good; what it holds is read when the task runs.
        self.target_time: Any = target_time
        if self.start_from_trigger and not self.trigger_kwargs and not self._is_known:
            raise self.invalid(
                "start_from_trigger needs a target_time without templates, because no process renders it; "
                "leave it out, and the task waits without a process as soon as one has"
            )
        self.begin_with(self._zoned() if self._is_known else None)

    @property
    def _is_known(self) -> bool:
        return isinstance(self.target_time, str | datetime) and not needs_rendering(self.target_time, ())

    def _zoned(self) -> datetime:
        return timezone.as_moment(self.target_time, self.dag.timezone if self.has_dag() else None)

    def moment(self, context: Any) -> datetime:
        return self._zoned()


class TimeDeltaSensor(MomentSensor):
    """Waits until some time has passed since the end of the run's data interval, or since the run was due."""

    def __init__(self, *, delta: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(delta, timedelta):
            raise self.invalid(f"delta must be a timedelta, not {delta!r}")
        self.delta = delta
        _begin_unless_relative(self, "the run")

    def moment(self, context: Any) -> datetime:
        run = context["dag_run"]
        moment: datetime = (run.data_interval_end or run.run_after) + self.delta
        return moment


class WaitSensor(MomentSensor):
    """Waits for some time after the first start of the try."""

    def __init__(self, *, time_to_wait: timedelta | int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        minutes = isinstance(time_to_wait, int) and not isinstance(time_to_wait, bool)
        if not minutes and not isinstance(time_to_wait, timedelta):
            raise self.invalid(f"time_to_wait must be a timedelta or a number of minutes, not {time_to_wait!r}")
        self.time_to_wait = timedelta(minutes=time_to_wait) if isinstance(time_to_wait, int) else time_to_wait
        _begin_unless_relative(self, "the start of the task")

    def moment(self, context: Any) -> datetime:
        moment: datetime = context["ti"].first_start_date + self.time_to_wait
        return moment


def _begin_unless_relative(sensor: MomentSensor, to_what: str) -> None:
    sensor.begin_with(None)
    if sensor.start_from_trigger and sensor.start_trigger_args is None:
        sensor.start_from_trigger = False
        building.warn(
            f"task {sensor.task_id!r}: start_from_trigger has no effect, because its moment depends on {to_what}; "
            "the task waits without a process as soon as one has worked it out"
        )


class TimeSensorAsync(TimeSensor):
    """`TimeSensor(deferrable=True)`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "deferrable": True})


class DateTimeSensorAsync(DateTimeSensor):
    """`DateTimeSensor(deferrable=True)`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "deferrable": True})


class TimeDeltaSensorAsync(TimeDeltaSensor):
    """`TimeDeltaSensor(deferrable=True)`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "deferrable": True})


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
