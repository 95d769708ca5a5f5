"""Waiting as data: what a task hands over when it defers, and what a trigger says when its wait is over."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from stannel.model.ids import UNMAPPED
from stannel.model.states import TaskState, TriggerState

# A resumed task is sent here instead of to its own method when its wait ended badly.
FAIL_METHOD = "__fail__"
# Among the queues of a triggerer: it serves them all, and triggers that have none.
EVERY_QUEUE = "*"


class FailureReason(StrEnum):
    """The `error` a task is resumed with at `FAIL_METHOD`."""

    TIMEOUT = "Trigger timeout"
    EXECUTION_TIMEOUT = "execution timeout"
    FAILURE = "Trigger failure"


class CancelReason(StrEnum):
    """Why a trigger that still waits is stopped; only a person's kill runs its `on_kill`."""

    KILLED = "killed"
    TIMEOUT = "timeout"
    FIRED = "fired"
    MOVED = "moved"
    SHUTDOWN = "shutdown"
    # Of watchers: no DAG waits for their asset any more; or they are to begin anew.
    UNWANTED = "unwanted"
    RESTARTED = "restarted"


class Deferral(msgspec.Struct, frozen=True, kw_only=True):
    """What a task hands over: the trigger to wait for, and where to go on. `method` None: the trigger ends the task."""

    classpath: str
    kwargs: dict[str, Any] | str = {}
    method: str | None = None
    next_kwargs: dict[str, Any] = {}
    timeout: float | None = None
    queue: str | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a trigger a watcher: it serves assets, and begins again when it ends.

    `asset` and `name` are those of the first that wanted it; equal triggers in equal queues have equal digests. Those
    with the same `stream_key` read one stream, and stay together. It has failed `attempts` times since its last event.
    """

    digest: str
    asset: str
    name: str
    # The name and URI of every asset that it served when it was claimed.
    assets: tuple[tuple[str, str], ...] = ()
    stream_key: str | None = None
    attempts: int = 0
    next_at: datetime | None = None


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A stored trigger and the task that waits for it. `kwargs` are as the author's `serialize` gave them, encoded.

    One that watches for assets has no task: what belongs to tasks is empty. `epoch` grows with every claim: what an
    earlier owner says later is refused.
    """

    id: int
    epoch: int
    classpath: str
    kwargs: dict[str, Any]
    state: TriggerState
    ti_pk: int = 0
    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    map_index: int = UNMAPPED
    try_number: int = 1
    attempt_id: str = ""
    queue: str | None = None
    priority: int = 1
    created_at: datetime
    deadline_at: datetime | None = None
    # Set when the trigger starts a task that no worker has seen: its fields may be templates.
    renders: bool = False
    # Why its arguments could not be opened: it cannot be run, only fail. None: they could.
    unreadable: str | None = None
    watch: Watch | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a trigger fired, encoded. `ends`: the task ends in this state, without a worker, and leaves these XComs.

    The last five are for events of assets; `state` goes into the asset's state store, in the event's transaction.
    """

    payload: Any = None
    ends: TaskState | None = None
    xcoms: dict[str, Any] | None = None
    identity: str | None = None
    key: str | None = None
    extra: dict[str, Any] | None = None
    timestamp: datetime | None = None
    state: dict[str, Any] | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that ended without an event. `traceback` None: it just returned."""

    error: str = FailureReason.FAILURE
    traceback: list[str] | None = None


class Paced(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher fires without end, so it is held back. `trouble` None: that is over."""

    trouble: str | None = None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one wait, as the owner of its trigger tells the store; of a watcher, anything that happened to it.

    A watcher that failed begins again at `again_at`.
    """

    id: int
    epoch: int
    what: Event | Failure | Paced
    is_watch: bool = False
    again_at: datetime | None = None


_TEMPORAL = ("stannel.triggers.temporal", "airflow.triggers.temporal", "airflow.providers.standard.triggers.temporal")
_MOMENT_TRIGGERS = frozenset(f"{module}.DateTimeTrigger" for module in _TEMPORAL)
_DELAY_TRIGGERS = frozenset(f"{module}.TimeDeltaTrigger" for module in _TEMPORAL)
_MOMENT_TRIGGER = "stannel.triggers.temporal.DateTimeTrigger"
_MOMENT_ARGUMENTS = frozenset({"moment", "end_from_trigger"})


class Moment(msgspec.Struct, frozen=True):
    """A wait for a moment and nothing else: when it is over, and what is fired then."""

    at: datetime
    event: Event


def only_moment(classpath: str, kwargs: dict[str, Any] | str, now: datetime) -> Moment | None:
    """The moment for which such a trigger waits. None: there is more to it, it has to be run."""
    if classpath in _DELAY_TRIGGERS and not isinstance(kwargs, str) and "delta" in kwargs:
        kwargs, classpath = _after_delay(kwargs, now), _MOMENT_TRIGGER
    if classpath not in _MOMENT_TRIGGERS or isinstance(kwargs, str) or not kwargs.keys() <= _MOMENT_ARGUMENTS:
        return None
    moment, ends = kwargs.get("moment"), kwargs.get("end_from_trigger", False)
    try:
        data = moment["__data__"]  # type: ignore[index]
        at = datetime.fromisoformat(data if isinstance(data, str) else data[0])
    except (TypeError, KeyError, ValueError, IndexError):
        return None
    # What is not understood here is run, and fails there with its own words.
    if at.tzinfo is None or not isinstance(ends, bool):
        return None
    return Moment(at, Event(ends=TaskState.SUCCESS) if ends else Event(payload=moment))


def _after_delay(kwargs: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The arguments of the trigger that fires at the end of a delay which begins now."""
    others = {name: value for name, value in kwargs.items() if name != "delta"}
    try:
        days, seconds, micros = kwargs["delta"]["__data__"]
        at = now + timedelta(days=days, seconds=seconds, microseconds=micros)
    except (TypeError, KeyError, ValueError, OverflowError):
        return kwargs
    return {**others, "moment": {"__classname__": "datetime.datetime", "__version__": 1, "__data__": at.isoformat()}}


def deadline_of(
    *, now: datetime, timeout: float | None, first_start: datetime, execution_timeout: float | None
) -> tuple[datetime, str] | None:
    """When a wait must be over, and which promise says so. None: it may last for ever."""
    moments = []
    if timeout is not None:
        moments.append((now + timedelta(seconds=timeout), "trigger"))
    if execution_timeout is not None:
        moments.append((first_start + timedelta(seconds=execution_timeout), "execution"))
    return min(moments, default=None)
