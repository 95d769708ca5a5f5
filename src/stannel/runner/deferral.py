"""How an attempt hands its wait over, and how a later one takes up again what came of it."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stannel.model.trigger import FAIL_METHOD
from stannel.protocol.data import TIRunContext
from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import DeferTask
from stannel.sdk import serde
from stannel.sdk.deferral import (
    EXECUTION_TIMEOUT,
    are_queues_enabled,
    check_deferral,
    encoded,
    in_words,
    serialized,
    shown,
)
from stannel.sdk.exceptions import AirflowException, TaskDeferralError, TaskDeferred
from stannel.sdk.log import TASK_LOGGER
from stannel.sdk.replay import REPLAY_METHOD

_log = logging.getLogger(TASK_LOGGER)

_LONGEST_EVENT = 500
# What a task hands over is kept in the database, and read and written as a whole.
LARGEST_DEFERRAL = 8 * 1024 * 1024


def defer_task(wish: TaskDeferred, task: Any, label: str | None) -> DeferTask:
    """The message that ends an attempt which is to wait; raises what is wrong with the wish, in words for authors."""
    check_deferral(task, wish.trigger, wish.method_name)
    classpath, arguments = serialized(wish.trigger)
    message = DeferTask(
        classpath=classpath,
        trigger_kwargs=encoded(arguments, f"the trigger {type(wish.trigger).__name__}"),
        trigger_timeout=wish.timeout,
        queue=_queue(wish.trigger, task),
        # No method: the trigger ends the task.
        next_method=wish.method_name or "",
        next_kwargs=encoded(wish.kwargs or {}, f"defer() for the method {wish.method_name}()"),
        rendered_map_index=label,
    )
    _check_size(message, task)
    until = "" if wish.timeout is None else f", until {_in(wish.timeout)} at the latest"
    _log.info("Deferred to %s, %s%s", shown(classpath, arguments), _then(wish.method_name), until)
    return message


def _then(method_name: str | None) -> str:
    if method_name is None:
        return "its trigger ends the task"
    return "then its function runs again" if method_name == REPLAY_METHOD else f"resumes at {method_name}()"


def _queue(trigger: Any, task: Any) -> str | None:
    if trigger.queue is not None:
        return str(trigger.queue)
    return task.queue if are_queues_enabled() and trigger.trigger_queue_inherited_from_task else None


def _check_size(message: DeferTask, task: Any) -> None:
    size = len(msgspec.msgpack.encode((message.trigger_kwargs, message.next_kwargs)))
    if size > LARGEST_DEFERRAL:
        raise AirflowException(
            f"{task.task_id!r} cannot defer: the arguments of its trigger and of the method it goes on at take "
            f"{size:,} bytes, more than {LARGEST_DEFERRAL:,}. Leave large values in a file and hand over its name."
        )


def _in(timeout: timedelta) -> str:
    return (datetime.now(UTC) + timeout).isoformat(timespec="seconds")


def used_before(startup: StartupDetails) -> timedelta:
    """What a try has used up of its execution_timeout before this process; for a resumed task, all since its start."""
    first = startup.ti_context.start_date
    if startup.ti_context.next_method is None or first is None:
        return timedelta()
    return max(timedelta(), startup.start_date - first)


def resumption(context: TIRunContext, *, is_used_up: bool) -> tuple[str, dict[str, Any]]:
    """The method to go on at and its arguments; a try that has no time left is told that its wait failed."""
    kwargs = _decoded(context.next_kwargs)
    if is_used_up:
        return FAIL_METHOD, {**kwargs, "error": EXECUTION_TIMEOUT}
    method = context.next_method or ""
    if method == FAIL_METHOD:
        _log.info("Resumed, because the wait failed: %s", kwargs.get("error"))
    else:
        _log.info("Resumed by %s", _cut(in_words(kwargs.get("event"))))
    return method, kwargs


def _decoded(stored: Any) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(stored) if isinstance(stored, str) else stored
        return {name: serde.decode(value) for name, value in (arguments or {}).items()}
    # Whatever is wrong with what was stored, the task's log has to say it.
    except Exception as error:
        reason = f"its stored next_kwargs could not be decoded ({type(error).__name__}: {error})"
        raise TaskDeferralError(f"Could not resume the task: {reason}") from error


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_EVENT else f"{text[:_LONGEST_EVENT]}... ({len(text)} characters)"
