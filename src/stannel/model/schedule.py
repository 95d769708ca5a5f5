"""When a DAG wants to run, as data; `scheduler.timetables` computes moments from it."""

from datetime import datetime

import msgspec

from stannel.model.asset import Condition, Consumption

# Names for cron expressions that authors use most.
PRESETS: dict[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Schedule(msgspec.Struct, frozen=True, tag_field="kind"):
    """Base of every kind of schedule."""


class Never(Schedule, frozen=True, tag="never"):
    """Only by hand or by another program."""


class Once(Schedule, frozen=True, tag="once"):
    """A single run at the DAG's start date."""


class Continuous(Schedule, frozen=True, tag="continuous"):
    """A new run as soon as the last one ended."""


class Cron(Schedule, frozen=True, tag="cron"):
    """A cron expression (five fields, or six with seconds last) read on the wall clock of `timezone`.

    With `interval`, a run covers the time between two ticks and starts at its end; otherwise it is a point in time.
    """

    expression: str
    timezone: str = "UTC"
    interval: bool = True


class Every(Schedule, frozen=True, tag="every"):
    """A fixed distance between runs, counted from the start date."""

    seconds: float
    interval: bool = True


TimeSchedule = Never | Once | Continuous | Cron | Every


class OnAssets(Schedule, frozen=True, tag="assets", omit_defaults=True):
    """When events of assets meet a condition, and besides at the moments of `time`.

    Without `consumption`, all events that wait make up one run, as they do in Airflow.
    """

    condition: Condition
    consumption: Consumption | None = None
    time: TimeSchedule = Never()


AnySchedule = Never | Once | Continuous | Cron | Every | OnAssets


class Interval(msgspec.Struct, frozen=True):
    """The stretch of time a run is about; start equals end for a point in time."""

    start: datetime
    end: datetime


class DueRun(msgspec.Struct, frozen=True):
    """The next run a schedule asks for."""

    logical_date: datetime | None
    interval: Interval | None
    run_after: datetime
