"""How an attempt ended: one function over what is known of it. The order of its lines is the rule."""

from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from stannel.model.run import Attempt, Outcome
from stannel.model.states import TaskState as State
from stannel.model.trigger import Deferral
from stannel.protocol.requests import (
    AwaitInputTask,
    DeferTask,
    RescheduleTask,
    RetryTask,
    SucceedTask,
    TaskState,
    Terminal,
)
from stannel.supervisor.exits import Exit
from stannel.supervisor.outlets import emitted_by

_LONGEST_REASON = 2000
_ENDS = {"failed": State.FAILED, "skipped": State.SKIPPED, "removed": State.REMOVED}


class Halt(msgspec.Struct, frozen=True):
    """Somebody ended the attempt from outside. `state` None: it fails, or is tried again if it may be."""

    reason: str
    state: State | None = None


def by_halt(attempt: Attempt, halt: Halt, now: datetime, *, was_told: bool) -> Outcome:
    """The outcome of an attempt that was ended from outside. `was_told`: its process reported all the same."""
    state = halt.state or _failure(attempt)
    return Outcome(state=state, end_date=now, reason=halt.reason, unreported=not was_told)


def by_exit(attempt: Attempt, end: Exit | None, now: datetime) -> Outcome:
    """The outcome of an attempt whose process did not say how it ended."""
    if end is None:
        reason = "its process could not be ended"
    elif end.is_clean:
        reason = "its process exited without reporting a result"
    else:
        reason = f"its process {end.words}" if end.refused is None else end.words
    return Outcome(state=_failure(attempt), end_date=now, reason=reason, unreported=True)


def by_message(attempt: Attempt, message: Terminal, now: datetime) -> Outcome:
    """The outcome the process reported; whatever its exit code is later, this stands."""
    match message:
        case SucceedTask():
            return Outcome(
                state=State.SUCCESS,
                end_date=_ended(attempt, message.end_date, now),
                rendered_map_index=message.rendered_map_index,
                outlets=emitted_by(message),
            )
        case TaskState(state=state):
            return Outcome(
                state=_ENDS[state],
                end_date=_ended(attempt, message.end_date, now),
                rendered_map_index=message.rendered_map_index,
            )
        case RetryTask(retry_delay_seconds=delay, retry_reason=reason):
            return Outcome(
                state=State.UP_FOR_RETRY,
                end_date=_ended(attempt, message.end_date, now),
                reason=reason and reason[:_LONGEST_REASON],
                retry_delay=delay,
                retry_at=None if delay is None else now + timedelta(seconds=max(delay, 0.0)),
                rendered_map_index=message.rendered_map_index,
            )
        case RescheduleTask(reschedule_date=moment):
            return Outcome(
                state=State.UP_FOR_RESCHEDULE, end_date=_ended(attempt, message.end_date, now), retry_at=moment
            )
        case DeferTask():
            return Outcome(
                state=State.DEFERRED,
                end_date=now,
                rendered_map_index=message.rendered_map_index,
                deferral=_deferral(message),
            )
        case AwaitInputTask():
            reason = "it asks for a person's input, which is not offered yet"
            return Outcome(
                state=State.FAILED, end_date=now, reason=reason, rendered_map_index=message.rendered_map_index
            )
        case _:
            assert_never(message)


def _deferral(message: DeferTask) -> Deferral:
    timeout = message.trigger_timeout
    return Deferral(
        classpath=message.classpath,
        kwargs=message.trigger_kwargs or {},
        # The wire has no word for "nowhere": an empty name says that the trigger ends the task.
        method=message.next_method or None,
        next_kwargs=message.next_kwargs or {},
        timeout=None if timeout is None else timeout.total_seconds(),
        queue=message.queue,
    )


def _failure(attempt: Attempt) -> State:
    return State.UP_FOR_RETRY if attempt.should_retry else State.FAILED


def _ended(attempt: Attempt, told: datetime | None, now: datetime) -> datetime:
    """The moment the process told, if it lies between the start and now; runtimes round, and clocks differ."""
    return told if told is not None and attempt.start_date <= told <= now else now
