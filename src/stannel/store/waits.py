"""Waits of task instances: begun when a task defers, ended by an event, a deadline or a person.

Everything here runs inside a transaction of its caller. The order of locks is run, instance, attempt, trigger: an
instance is locked before the trigger it waits for is deleted or marked.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import and_, bindparam, delete, func, select, update

from stannel.model.asset import plain_events
from stannel.model.dag import TaskSpec
from stannel.model.moments import maybe_micros, to_micros
from stannel.model.retry import retry_delay
from stannel.model.run import Attempt, Outcome
from stannel.model.states import AttemptState, TaskState, TriggerState, origins
from stannel.model.trigger import FAIL_METHOD, Deferral, Event, Failure, FailureReason, deadline_of, only_moment
from stannel.store.callbacks import request_callback
from stannel.store.dags import Dags
from stannel.store.database import SCHEDULER, TRIGGERER
from stannel.store.new_events import TaskSource, emit_outlets
from stannel.store.runs import mark_dirty
from stannel.store.schema import attempt as attempt_table
from stannel.store.schema import dag, trigger
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Tx, among, insert_into, word, words
from stannel.store.stopping import stop_triggers
from stannel.store.vault import Vault
from stannel.store.xcoms import save_xcoms

S, W = TaskState, TriggerState

NEW_TRIGGER = insert_into(
    trigger,
    "state",
    "classpath",
    "kwargs",
    "ti_pk",
    "run_pk",
    "dag_id",
    "run_id",
    "task_id",
    "map_index",
    "try_number",
    "attempt_id",
    "queue",
    "priority",
    "created_at",
    "deadline_at",
    "deadline_of",
    "due_at",
    "event",
    "ends",
    "renders",
)
_PRIORITIES = select(ti.c.pk, ti.c.priority).where(among(ti.c.pk, "pks"))
_waits_for = and_(ti.c.pk == trigger.c.ti_pk, ti.c.attempt_id == trigger.c.attempt_id, ti.c.state == word(S.DEFERRED))
_WAIT_COLUMNS = (
    trigger.c.pk,
    trigger.c.ti_pk,
    trigger.c.run_pk,
    trigger.c.dag_id,
    trigger.c.run_id,
    trigger.c.task_id,
    trigger.c.map_index,
    trigger.c.attempt_id,
    trigger.c.epoch,
    trigger.c.owner,
    trigger.c.deadline_of,
    trigger.c.created_at,
    trigger.c.classpath,
    ti.c.next_method,
    ti.c.try_number,
    ti.c.max_tries,
    dag.c.version,
)
_WAITS = (
    select(*_WAIT_COLUMNS)
    .select_from(trigger)
    .join(ti, _waits_for)
    .join(dag, dag.c.dag_id == trigger.c.dag_id)
    .where(trigger.c.state == word(W.WAITING))
)
_WAITS_BY_PK = _WAITS.where(among(trigger.c.pk, "pks")).order_by(trigger.c.ti_pk)
_OVERDUE = (
    _WAITS.where(trigger.c.deadline_at.is_not(None), trigger.c.deadline_at <= bindparam("now"))
    .order_by(trigger.c.deadline_at)
    .limit(bindparam("most"))
)
_NEXT_DEADLINE = select(func.min(trigger.c.deadline_at)).where(
    trigger.c.deadline_at.is_not(None), trigger.c.state == word(W.WAITING)
)
_LOCK = select(ti.c.pk, ti.c.attempt_id).where(among(ti.c.pk, "pks"), ti.c.state == word(S.DEFERRED)).order_by(ti.c.pk)
_LOCK = _LOCK.with_for_update(key_share=True)
_RESUME = (
    update(ti)
    .where(
        ti.c.pk == bindparam("instance"),
        ti.c.attempt_id == bindparam("attempt"),
        ti.c.state.in_(words(origins(S.SCHEDULED, S.DEFERRED))),
    )
    .values(
        state=S.SCHEDULED,
        scheduled_at=bindparam("now"),
        event=bindparam("fired"),
        next_method=func.coalesce(bindparam("method"), ti.c.next_method),
        note=None,
    )
)
_END = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.attempt_id == bindparam("attempt"), ti.c.state == word(S.DEFERRED))
    .values(
        state=bindparam("end"),
        ended_at=bindparam("now"),
        retry_at=bindparam("retry"),
        note=bindparam("why"),
        reschedules=0,
        next_method=None,
        next_kwargs=None,
        event=None,
    )
)
_FORGET = delete(trigger).where(among(trigger.c.pk, "pks"))
_DEFER = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.state.in_(words(origins(S.DEFERRED, S.SCHEDULED))))
    .values(
        state=S.DEFERRED,
        attempt_id=bindparam("attempt"),
        try_number=bindparam("number"),
        started_at=bindparam("now"),
        queued_at=bindparam("now"),
        next_method=bindparam("method"),
        next_kwargs=bindparam("arguments"),
        event=None,
    )
)
_DEFERRED_ATTEMPT = insert_into(
    attempt_table, "attempt_id", "ti_pk", "run_pk", "try_number", "state", "queued_at", "started_at", "ended_at"
)


class Wait(msgspec.Struct, frozen=True):
    """A trigger that is waited for, with what is needed to decide how the wait ends."""

    pk: int
    ti_pk: int
    run_pk: int
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    attempt_id: str
    epoch: int
    owner: str | None
    deadline_of: str | None
    created_at: int
    classpath: str
    method: str | None
    try_number: int
    max_tries: int
    version: str


class Ending(msgspec.Struct, frozen=True):
    """A wait and what ends it."""

    wait: Wait
    what: Event | Failure


def begin_waits(tx: Tx, vault: Vault, begun: Sequence[tuple[Attempt, Deferral, datetime]]) -> None:
    """Store the triggers of tasks that deferred; their instances are deferred already, in this transaction."""
    if not begun:
        return
    priorities: dict[int, int] = dict(tx.all(_PRIORITIES, pks=[attempt.ti_pk for attempt, _, _ in begun]))
    rows = [
        trigger_row(vault, attempt, deferral, now=now, priority=priorities.get(attempt.ti_pk, 1))
        for attempt, deferral, now in begun
    ]
    tx.each(NEW_TRIGGER, rows)
    tx.wake(TRIGGERER)


def trigger_row(
    vault: Vault, attempt: Attempt, deferral: Deferral, *, now: datetime, priority: int, renders: bool = False
) -> dict[str, Any]:
    """The row of a trigger nobody has claimed yet."""
    first_start = attempt.first_start_date or attempt.start_date
    limit = deadline_of(
        now=now, timeout=deferral.timeout, first_start=first_start, execution_timeout=attempt.execution_timeout
    )
    moment = only_moment(deferral.classpath, deferral.kwargs, now)
    return {
        "state": W.WAITING.value,
        "classpath": deferral.classpath,
        "kwargs": None if moment else vault.seal(_json(deferral.kwargs)),
        "ti_pk": attempt.ti_pk,
        "run_pk": attempt.run.pk,
        "dag_id": attempt.dag_id,
        "run_id": attempt.run_id,
        "task_id": attempt.task_id,
        "map_index": attempt.map_index,
        "try_number": attempt.try_number,
        "attempt_id": attempt.attempt_id,
        "queue": deferral.queue,
        "priority": priority,
        "created_at": to_micros(now),
        "deadline_at": maybe_micros(limit[0]) if limit else None,
        "deadline_of": limit[1] if limit else None,
        "due_at": to_micros(moment.at) if moment else None,
        "event": _json(moment.event.payload) if moment else None,
        "ends": moment.event.ends.value if moment and moment.event.ends else None,
        "renders": int(renders),
    }


def waits_of(tx: Tx, trigger_pks: Sequence[int]) -> dict[int, Wait]:
    """Those of these triggers that are still waited for."""
    return {row[0]: Wait(*row) for row in tx.all(_WAITS_BY_PK, pks=list(trigger_pks))}


def end_waits(tx: Tx, dags: Dags, endings: Sequence[Ending], now: datetime) -> list[bool]:
    """End waits by what was fired: each task is resumed, or ends here and now. False: it no longer waited."""
    if not endings:
        return []
    decided = [_decide(one, dags.spec(one.wait.version, tx).task(one.wait.task_id), now) for one in endings]
    mark_dirty(tx, [one.wait.run_pk for one, end in zip(endings, decided, strict=True) if isinstance(end, Outcome)])
    locked = set(tx.all(_LOCK, pks=[one.wait.ti_pk for one in endings]))
    still = [(one.wait.ti_pk, one.wait.attempt_id) in locked for one in endings]
    moment = to_micros(now)
    resumed = []
    for one, end, ok in zip(endings, decided, still, strict=True):
        if not ok:
            continue
        if isinstance(end, Outcome):
            _end_task(tx, dags, one, end)
        else:
            resumed.append(_resumption(one, end, moment))
    tx.each(_RESUME, resumed)
    tx.wake(SCHEDULER)
    return still


def expire_waits(tx: Tx, dags: Dags, now: datetime, most: int = 1000) -> list[Ending]:
    """End the waits whose deadline is over; those that were."""
    overdue = [Wait(*row) for row in tx.all(_OVERDUE, now=to_micros(now), most=most)]
    endings = [Ending(wait, Failure(error=_overdue(wait))) for wait in overdue]
    ended = [one for one, ok in zip(endings, end_waits(tx, dags, endings, now), strict=True) if ok]
    pks = [one.wait.pk for one in ended]
    stop_triggers(tx, pks)
    return ended


def next_wait_deadline(tx: Tx) -> int | None:
    """When the next wait will have lasted too long."""
    row = tx.one(_NEXT_DEADLINE)
    return None if row is None else row[0]


def forget_triggers(tx: Tx, pks: Sequence[int]) -> None:
    tx.run(_FORGET, pks=list(pks))


def start_waiting(
    tx: Tx, vault: Vault, firsts: Sequence[Attempt], deferral: Deferral, *, priority: int, now: datetime, renders: bool
) -> None:
    """Have scheduled instances of a task begin with its trigger, before any worker has seen them."""
    moment = to_micros(now)
    tx.each(_DEFERRED_ATTEMPT, [_attempt_row(attempt, moment) for attempt in firsts])
    tx.each(_DEFER, [_defer_row(attempt, deferral, moment) for attempt in firsts])
    rows = [trigger_row(vault, one, deferral, now=now, priority=priority, renders=renders) for one in firsts]
    tx.each(NEW_TRIGGER, rows)
    tx.wake(TRIGGERER)


def _defer_row(attempt: Attempt, deferral: Deferral, now: int) -> dict[str, Any]:
    return {
        "instance": attempt.ti_pk,
        "attempt": attempt.attempt_id,
        "number": attempt.try_number,
        "now": now,
        "method": deferral.method,
        "arguments": _json(deferral.next_kwargs),
    }


def _attempt_row(attempt: Attempt, now: int) -> dict[str, Any]:
    return {
        "attempt_id": attempt.attempt_id,
        "ti_pk": attempt.ti_pk,
        "run_pk": attempt.run.pk,
        "try_number": attempt.try_number,
        "state": AttemptState.DEFERRED.value,
        "queued_at": now,
        "started_at": now,
        "ended_at": now,
    }


# --- how a wait ends --------------------------------------------------------------------------------------------------


class Resumption(msgspec.Struct, frozen=True):
    """The task goes on in a worker. `method` None: where it said it would."""

    event: Any = None
    method: str | None = None
    arguments: dict[str, Any] | None = None


def _decide(one: Ending, task: TaskSpec | None, now: datetime) -> Resumption | Outcome:
    """A worker is needed to go on, and for authors' code that wants to hear of a failure; not to end."""
    what = one.what
    if isinstance(what, Event) and what.ends is None and one.wait.method is not None:
        return Resumption(event=what.payload)
    if isinstance(what, Event) and what.ends is not None and what.ends is not S.FAILED:
        return Outcome(state=what.ends, end_date=now, reason="ended by its trigger", unreported=True)
    failure = _failure(one)
    if isinstance(what, Failure) and (task is None or task.resumes_failures):
        arguments = {"error": failure.error, "traceback": failure.traceback}
        return Resumption(method=FAIL_METHOD, arguments=arguments)
    reason = failure.error if not failure.traceback else f"{failure.error}: {failure.traceback[-1].strip()}"
    if task is None or one.wait.try_number > one.wait.max_tries:
        return Outcome(state=S.FAILED, end_date=now, reason=reason, unreported=True)
    delay = retry_delay(task.retry, one.wait.try_number, random.random())
    retry_at = now + timedelta(seconds=delay)
    return Outcome(state=S.UP_FOR_RETRY, end_date=now, reason=reason, retry_at=retry_at, unreported=True)


def _failure(one: Ending) -> Failure:
    if isinstance(one.what, Failure):
        return one.what
    if one.what.ends is S.FAILED:
        return Failure(error="failed by its trigger")
    return Failure(error="its trigger fired an event, but the task named no method to go on with")


def _overdue(wait: Wait) -> str:
    # A task's own deadline for the wait is known to authors by this text; the other is the engine's.
    return FailureReason.TIMEOUT if wait.deadline_of == "trigger" else FailureReason.EXECUTION_TIMEOUT


def _resumption(one: Ending, end: Resumption, now: int) -> dict[str, Any]:
    is_failure = end.method is not None
    return {
        "instance": one.wait.ti_pk,
        "attempt": one.wait.attempt_id,
        "now": now,
        # What the task kept stays as it is: a function that waited needs its history to raise the failure at the wait.
        "fired": _json(end.arguments if is_failure else end.event),
        "method": end.method,
    }


_CALLBACKS = {S.SUCCESS: "success", S.FAILED: "failure", S.UP_FOR_RETRY: "retry", S.SKIPPED: "skipped"}


def _end_task(tx: Tx, dags: Dags, one: Ending, outcome: Outcome) -> None:
    """What the end of an attempt does for its task, the end of a wait does too."""
    wait, now = one.wait, to_micros(outcome.end_date)
    tx.run(
        _END,
        instance=wait.ti_pk,
        attempt=wait.attempt_id,
        end=outcome.state.value,
        now=now,
        retry=maybe_micros(outcome.retry_at),
        why=outcome.reason,
    )
    if isinstance(one.what, Event) and outcome.state is not S.UP_FOR_RETRY:
        save_xcoms(tx, [_xcom_row(wait, key, value, now) for key, value in (one.what.xcoms or {}).items()])
    task = dags.spec(wait.version, tx).task(wait.task_id)
    if outcome.state is S.SUCCESS and task is not None and task.outlets:
        source = TaskSource(wait.dag_id, wait.run_id, wait.task_id, wait.map_index, wait.attempt_id)
        emit_outlets(tx, plain_events(task.outlets), source, now)
    kind = _CALLBACKS[outcome.state]
    if task is not None and kind in task.callbacks:
        request_callback(tx, wait.run_pk, kind, now=now, reason=outcome.reason, ti_pk=wait.ti_pk)


def _xcom_row(wait: Wait, key: str, value: Any, now: int) -> dict[str, Any]:
    return {
        "run_pk": wait.run_pk,
        "task_id": wait.task_id,
        "map_index": wait.map_index,
        "key": key,
        "value": _json(value),
        "length": len(value) if isinstance(value, list) and wait.map_index < 0 else None,
        "created_at": now,
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
