"""Pure: what a trigger did, in the words the triggerer and the task's log are given."""

import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

import msgspec

from stannel.errors import StannelError
from stannel.model.asset import LONGEST_PARTITION_KEY, is_partition_key
from stannel.model.state_store import check_key
from stannel.model.trigger import CancelReason, Event
from stannel.protocol.triggering import Waiter
from stannel.sdk import serde
from stannel.sdk.state_store import checked_value
from stannel.triggerer.host.loglines import clean
from stannel.triggerer.host.places import is_foreign, is_hosts
from stannel.triggers.base import BaseTaskEndEvent, TriggerEvent

_MOST_TRACEBACK_LINES = 200
_LONGEST_SHOWN = 500
_LONGEST_CHAIN = 20
_MORE = ("identity", "key", "extra", "timestamp", "state")

CANCEL_TEXTS: Mapping[CancelReason, str] = {
    CancelReason.KILLED: "Trigger cancelled: its task was ended by a person",
    CancelReason.TIMEOUT: "Trigger cancelled due to timeout",
    CancelReason.FIRED: "Trigger cancelled: its event was taken",
    CancelReason.MOVED: "Trigger cancelled: it goes on in another process",
    CancelReason.SHUTDOWN: "Trigger cancelled: the triggerer is shutting down; it will be run again",
    CancelReason.UNWANTED: "Trigger cancelled: no DAG waits for its asset any more, or it was replaced",
    CancelReason.RESTARTED: "Trigger cancelled: it begins anew",
}
RETURNED_NOTHING = "Trigger exited without sending an event. Dependent tasks will be failed."
RETURNED_EVENT = "Trigger returned a TriggerEvent rather than yielding it"


class NotAnEvent(StannelError):
    """A trigger did something else than yielding events; whoever waits for it is told."""


class WaitingTask(msgspec.Struct, frozen=True, gc=False):
    """The task instance a trigger is told about."""

    id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int


def task_of(waiter: Waiter) -> WaitingTask:
    """The task, its names shared with the other triggers of the same run."""
    return WaitingTask(
        waiter.ti_id,
        sys.intern(waiter.dag_id),
        sys.intern(waiter.run_id),
        sys.intern(waiter.task_id),
        waiter.map_index,
        waiter.try_number,
    )


def name_of(trigger_id: int, task: WaitingTask | None) -> str:
    """What a trigger is called in logs."""
    if task is None:
        return f"ID {trigger_id}"
    return f"{task.dag_id}/{task.run_id}/{task.task_id}/{task.map_index}/{task.try_number} (ID {trigger_id})"


def event_of(given: Any) -> Event:
    """The event as it is sent. `NotAnEvent`: it is none; any other error: it cannot be stored."""
    if not isinstance(given, TriggerEvent):
        raise NotAnEvent(f"A trigger yields TriggerEvents; this one yielded a {type(given).__name__}.")
    if not isinstance(given, BaseTaskEndEvent):
        return Event(payload=serde.encode(given.payload, "the event payload"), **_more(given))
    xcoms: Any = given.xcoms
    if xcoms is not None and not (isinstance(xcoms, dict) and all(isinstance(key, str) for key in xcoms)):
        raise TypeError("the xcoms of an event are a dict whose keys are texts")
    encoded = None if xcoms is None else {key: serde.encode(item, f"XCom {key}") for key, item in xcoms.items()}
    return Event(payload=given.payload, ends=given.task_instance_state, xcoms=encoded)


def _more(given: TriggerEvent) -> dict[str, Any]:
    """What the event says beside its payload; classes that forgot super().__init__() say nothing."""
    more = {name: value for name in _MORE if (value := getattr(given, name, None)) is not None}
    if not isinstance(more.get("identity", ""), str):
        raise NotAnEvent(f"The identity of an event is a text, not a {type(more['identity']).__name__}.")
    if "key" in more and not is_partition_key(more["key"]):
        raise NotAnEvent(f"The key of an event is a text of at most {LONGEST_PARTITION_KEY} characters, and not blank.")
    moment = more.get("timestamp")
    if moment is not None and not (isinstance(moment, datetime) and moment.tzinfo is not None):
        raise NotAnEvent("The timestamp of an event is a datetime with a timezone.")
    if "extra" in more:
        if not isinstance(more["extra"], Mapping):
            raise NotAnEvent("The extra of an event is a mapping.")
        more["extra"] = {str(name): serde.encode(one, "the event's extra") for name, one in more["extra"].items()}
    if "state" in more:
        more["state"] = _state(more["state"])
    return more


def _state(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise NotAnEvent("The state of an event is a mapping.")
    try:
        for name, value in given.items():
            if value is not None:
                checked_value(check_key(name), value)
    except (TypeError, ValueError) as error:
        raise NotAnEvent(f"The state of the event cannot be kept: {error}") from error
    return dict(given)


def shown(event: Any) -> str:
    """The event for the log, not longer than a line should be."""
    try:
        text = repr(event)
    except Exception:  # noqa: BLE001 - a payload whose repr raises is no reason to lose its event
        text = f"{type(event).__name__} (it cannot be shown)"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def unstorable(error: BaseException) -> str:
    """What the waiting task is told when an event cannot be sent."""
    return clean(f"Could not resume the task: the event payload could not be serialized ({described(error)})")


def described(error: BaseException) -> str:
    """The error in one line, even if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - see above
        return type(error).__name__


def traceback_lines(error: BaseException) -> list[str]:
    """The error for people, beginning where code that is not the engine's does; never too long to be stored."""
    _trim(error)
    lines = [clean(line) for part in _formatted(error) for line in part.rstrip("\n").split("\n")]
    if len(lines) > _MOST_TRACEBACK_LINES:
        half = _MOST_TRACEBACK_LINES // 2
        lines = [*lines[:half], "...", *lines[-half:]]
    return lines


def _trim(error: BaseException) -> None:
    """Take the engine's frames off the error and those it came from."""
    one: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if one is None:
            return
        one.__traceback__ = _own_frames(one)
        one = one.__cause__ or one.__context__


def _own_frames(error: BaseException) -> TracebackType | None:
    """Without the engine's frames; if there are no others, a sentence of the engine's own needs none at all."""
    found = _from_first(error.__traceback__, is_foreign)
    if found is not None or isinstance(error, StannelError):
        return found
    return _from_first(error.__traceback__, lambda file: not is_hosts(file)) or error.__traceback__


def _from_first(trace: TracebackType | None, condition: Callable[[str], bool]) -> TracebackType | None:
    while trace is not None and not condition(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _formatted(error: BaseException) -> list[str]:
    try:
        return traceback.format_exception(error)
    except Exception as problem:  # noqa: BLE001 - an error whose own text cannot be made is still told
        return [f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"]
