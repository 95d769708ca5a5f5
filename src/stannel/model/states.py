"""Every state of a run, a task instance, an attempt and a trigger, and the one table of moves between them.

A verb that wants to change a state names its move here; what is not in the table cannot be written.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from stannel.errors import MoveRefused


class RunState(StrEnum):
    """Where a DAG run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"


class TaskState(StrEnum):
    """Where a task instance is in its life; `NONE` means nothing was decided yet."""

    NONE = "none"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    UP_FOR_RETRY = "up_for_retry"
    UP_FOR_RESCHEDULE = "up_for_reschedule"
    DEFERRED = "deferred"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    REMOVED = "removed"


class AttemptState(StrEnum):
    """How one try at a task instance stands; everything after `RUNNING` is final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    DEFERRED = "deferred"
    RESCHEDULED = "rescheduled"
    LOST = "lost"
    CANCELLED = "cancelled"


class TriggerState(StrEnum):
    """How a wait stands. No row is `GONE`: a trigger that fired, failed or was stopped is deleted."""

    WAITING = "waiting"
    # The wait is over without the trigger's doing (a timeout): whoever runs it is to stop it.
    ENDED = "ended"
    # A person ended the wait: the trigger's `on_kill` is owed; once `KILLING`, its owner has been told, once.
    KILLED = "killed"
    KILLING = "killing"
    GONE = "gone"


R, T, A, W = RunState, TaskState, AttemptState, TriggerState

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    R.QUEUED: frozenset({R.RUNNING, R.SUCCESS, R.FAILED}),
    R.RUNNING: frozenset({R.SUCCESS, R.FAILED, R.QUEUED}),
    # Clearing tasks of a finished run takes it up again; a user may also correct its verdict.
    R.SUCCESS: frozenset({R.QUEUED, R.FAILED}),
    R.FAILED: frozenset({R.QUEUED, R.SUCCESS}),
}

_BY_USER = frozenset({T.SUCCESS, T.FAILED, T.SKIPPED})

TASK_MOVES: Mapping[TaskState, frozenset[TaskState]] = {
    T.NONE: frozenset({T.SCHEDULED, T.UPSTREAM_FAILED, T.REMOVED}) | _BY_USER,
    # A task that starts from its trigger waits before any worker has seen it.
    T.SCHEDULED: frozenset({T.QUEUED, T.DEFERRED, T.NONE, T.REMOVED}) | _BY_USER,
    T.QUEUED: frozenset({T.RUNNING, T.SCHEDULED, T.NONE, T.UP_FOR_RETRY, T.REMOVED}) | _BY_USER,
    T.RUNNING: frozenset({T.UP_FOR_RETRY, T.UP_FOR_RESCHEDULE, T.DEFERRED, T.NONE, T.REMOVED}) | _BY_USER,
    T.DEFERRED: frozenset({T.SCHEDULED, T.UP_FOR_RETRY, T.NONE, T.REMOVED}) | _BY_USER,
    T.UP_FOR_RETRY: frozenset({T.SCHEDULED, T.NONE, T.UPSTREAM_FAILED, T.REMOVED}) | _BY_USER,
    T.UP_FOR_RESCHEDULE: frozenset({T.SCHEDULED, T.NONE, T.UPSTREAM_FAILED, T.REMOVED}) | _BY_USER,
    T.SUCCESS: frozenset({T.NONE, T.FAILED, T.SKIPPED}),
    T.FAILED: frozenset({T.NONE, T.SUCCESS, T.SKIPPED}),
    T.SKIPPED: frozenset({T.NONE, T.SUCCESS, T.FAILED}),
    T.UPSTREAM_FAILED: frozenset({T.NONE}) | _BY_USER,
    T.REMOVED: frozenset({T.NONE}) | _BY_USER,
}

_ATTEMPT_ENDS = frozenset({A.SUCCESS, A.FAILED, A.SKIPPED, A.DEFERRED, A.RESCHEDULED, A.LOST, A.CANCELLED})

ATTEMPT_MOVES: Mapping[AttemptState, frozenset[AttemptState]] = {
    A.QUEUED: frozenset({A.RUNNING, A.CANCELLED, A.LOST}),
    A.RUNNING: _ATTEMPT_ENDS,
    **{end: frozenset() for end in sorted(_ATTEMPT_ENDS)},
}

TRIGGER_MOVES: Mapping[TriggerState, frozenset[TriggerState]] = {
    W.WAITING: frozenset({W.ENDED, W.KILLED, W.GONE}),
    W.ENDED: frozenset({W.GONE}),
    W.KILLED: frozenset({W.KILLING, W.GONE}),
    W.KILLING: frozenset({W.GONE}),
    W.GONE: frozenset(),
}

RUN_ENDS = frozenset({R.SUCCESS, R.FAILED})
TASK_ENDS = frozenset({T.SUCCESS, T.FAILED, T.SKIPPED, T.UPSTREAM_FAILED, T.REMOVED})
HOLDS_SLOT = frozenset({T.QUEUED, T.RUNNING})
FAILURES = frozenset({T.FAILED, T.UPSTREAM_FAILED})

State = TypeVar("State", RunState, TaskState, AttemptState, TriggerState)


def moves_from(state: State) -> frozenset[State]:
    """Where a thing in this state may go next. Empty: this state is final."""
    table: Mapping[State, frozenset[State]] = _TABLES[type(state)]
    return table[state]


def origins(target: State, *among: State) -> tuple[State, ...]:
    """The states that may move to `target`, sorted: what a verb puts in its WHERE clause.

    With `among`, only those are asked for, and one that may not make the move is refused at import time.
    """
    table: Mapping[State, frozenset[State]] = _TABLES[type(target)]
    allowed = tuple(sorted(state for state, ends in table.items() if target in ends))
    for state in among:
        if state not in allowed:
            raise MoveRefused(type(target).__name__, state, target)
    return tuple(sorted(among)) or allowed


_TABLES: dict[type[StrEnum], Mapping[Any, frozenset[Any]]] = {
    RunState: RUN_MOVES,
    TaskState: TASK_MOVES,
    AttemptState: ATTEMPT_MOVES,
    TriggerState: TRIGGER_MOVES,
}
