"""Attempts: claimed by a worker, finished, rescued when their worker died."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, func, or_, select, update

from stannel.errors import MoveRefused
from stannel.model.moments import maybe_micros, maybe_moment, to_micros
from stannel.model.run import Attempt, Outcome, Run, RunType
from stannel.model.states import AttemptState, TaskState, moves_from
from stannel.model.trigger import FAIL_METHOD
from stannel.store.callbacks import request_callback
from stannel.store.dags import Dags
from stannel.store.database import SCHEDULER, Database
from stannel.store.events import events_of_runs
from stannel.store.new_events import TaskSource, emit_outlets
from stannel.store.runs import RUN_COLUMNS, mark_dirty, to_run
from stannel.store.schema import attempt, dag, dag_run, lease
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Row, Tx, among, word, words
from stannel.store.state_stores import forget_successes
from stannel.store.vault import Vault
from stannel.store.waits import begin_waits
from stannel.store.xcoms import forget_xcoms

S = TaskState


class AttemptRecord(msgspec.Struct, frozen=True):
    """An attempt as people look at it."""

    attempt_id: str
    ti_pk: int
    task_id: str
    try_number: int
    state: AttemptState
    hostname: str | None
    pid: int | None
    reason: str | None
    start_date: datetime | None
    end_date: datetime | None


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt whose worker is gone."""

    attempt_id: str
    ti_pk: int
    run_pk: int
    dag_id: str
    task_id: str
    try_number: int
    max_tries: int
    version: str
    owner: str | None


# The instance is locked before its attempt, here and everywhere, so that no two transactions wait for each other.
# Picked apart from the update, because PostgreSQL may run a subquery more than once, and then takes more than `most`.
_claimable = (
    select(ti.c.pk)
    .where(ti.c.state == word(S.QUEUED))
    .order_by(ti.c.priority.desc(), ti.c.queued_at, ti.c.pk)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("claimable")
)
_goes_on = or_(ti.c.reschedules > 0, ti.c.next_method.is_not(None))
_CLAIM = (
    update(ti)
    .where(ti.c.pk.in_(select(_claimable.c.pk)))
    .values(
        state=S.RUNNING,
        # A try that was only interrupted keeps its first start: what it waits for is timed from there.
        started_at=case((_goes_on, func.coalesce(ti.c.started_at, bindparam("now"))), else_=bindparam("now")),
        ended_at=None,
    )
    .returning(
        ti.c.pk,
        ti.c.run_pk,
        ti.c.attempt_id,
        ti.c.task_id,
        ti.c.map_index,
        ti.c.try_number,
        ti.c.max_tries,
        ti.c.queue,
        ti.c.next_method,
        ti.c.next_kwargs,
        ti.c.reschedules,
        ti.c.started_at,
        ti.c.event,
    )
)
_START_ATTEMPT = (
    update(attempt)
    .where(attempt.c.attempt_id == bindparam("attempt"), attempt.c.state == word(AttemptState.QUEUED))
    .values(
        state=AttemptState.RUNNING, owner=bindparam("holder"), hostname=bindparam("host"), started_at=bindparam("now")
    )
)
_RUNS = select(*RUN_COLUMNS, dag.c.version, dag.c.fileloc).join(dag, dag.c.dag_id == dag_run.c.dag_id)
_RUNS = _RUNS.where(among(dag_run.c.pk, "runs"))
# No row is touched if the attempt is no longer the instance's, or the instance no longer runs: a late owner is refused.
_FINISH = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.attempt_id == bindparam("attempt"), ti.c.state == word(S.RUNNING))
    .values(
        state=bindparam("end"),
        ended_at=bindparam("ended"),
        retry_at=bindparam("retry"),
        note=bindparam("why"),
        rendered_map_index=func.coalesce(bindparam("label"), ti.c.rendered_map_index),
        reschedules=case((bindparam("end") == word(S.UP_FOR_RESCHEDULE), ti.c.reschedules + 1), else_=0),
        next_method=bindparam("method"),
        next_kwargs=bindparam("arguments"),
        event=None,
    )
    .returning(ti.c.pk)
)
_END_ATTEMPT = (
    update(attempt)
    .where(
        attempt.c.attempt_id == bindparam("attempt"),
        attempt.c.state.in_(words([AttemptState.QUEUED, AttemptState.RUNNING])),
    )
    .values(state=bindparam("end"), ended_at=bindparam("ended"), reason=bindparam("why"))
)
_SKIP_TASK = (
    update(ti)
    .where(
        ti.c.run_pk == bindparam("run"),
        ti.c.task_id == bindparam("task"),
        or_(bindparam("index") < 0, ti.c.map_index == bindparam("index")),
        ti.c.state.in_(words([S.NONE, S.SCHEDULED])),
    )
    .values(state=S.SKIPPED, started_at=bindparam("now"), ended_at=bindparam("now"), note=bindparam("why"))
)
_LOST = (
    select(
        attempt.c.attempt_id,
        attempt.c.ti_pk,
        attempt.c.run_pk,
        ti.c.dag_id,
        ti.c.task_id,
        ti.c.try_number,
        ti.c.max_tries,
        dag.c.version,
        attempt.c.owner,
    )
    .join(ti, ti.c.pk == attempt.c.ti_pk)
    .join(dag, dag.c.dag_id == ti.c.dag_id)
    .outerjoin(lease, lease.c.owner == attempt.c.owner)
    .where(
        attempt.c.state == word(AttemptState.RUNNING),
        or_(lease.c.owner.is_(None), lease.c.expires_at <= bindparam("now")),
    )
    .order_by(attempt.c.run_pk, attempt.c.ti_pk)
    .limit(bindparam("most"))
)
_MINE = select(attempt.c.attempt_id).where(
    attempt.c.owner == bindparam("holder"), attempt.c.state == word(AttemptState.RUNNING)
)
_DISOWN = (
    update(attempt)
    .where(among(attempt.c.attempt_id, "attempts"), attempt.c.state == word(AttemptState.RUNNING))
    .values(owner=None)
)
_NOTE_PID = update(attempt).where(attempt.c.attempt_id == bindparam("attempt")).values(pid=bindparam("process"))
_ATTEMPTS = (
    select(
        attempt.c.attempt_id,
        attempt.c.ti_pk,
        ti.c.task_id,
        attempt.c.try_number,
        attempt.c.state,
        attempt.c.hostname,
        attempt.c.pid,
        attempt.c.reason,
        attempt.c.started_at,
        attempt.c.ended_at,
    )
    .join(ti, ti.c.pk == attempt.c.ti_pk)
    .where(ti.c.run_pk == bindparam("run"))
    .order_by(attempt.c.queued_at, attempt.c.attempt_id)
)
_CALLBACKS = {S.FAILED: "failure", S.UP_FOR_RETRY: "retry"}
_AFTER_RUNNING = moves_from(S.RUNNING)
_ENDS = {
    S.SUCCESS: AttemptState.SUCCESS,
    S.SKIPPED: AttemptState.SKIPPED,
    S.DEFERRED: AttemptState.DEFERRED,
    S.UP_FOR_RESCHEDULE: AttemptState.RESCHEDULED,
}


class End(msgspec.Struct, frozen=True):
    """How an attempt of an instance ended."""

    ti_pk: int
    attempt_id: str
    outcome: Outcome
    state: AttemptState


def finish_instances(tx: Tx, ends: Sequence[End]) -> list[bool]:
    """End attempts and move their instances on; for each whether it was still its instance's attempt."""
    for end in ends:
        if end.outcome.state not in _AFTER_RUNNING:
            raise MoveRefused("task instance", S.RUNNING, end.outcome.state)
    moved = tx.each_row(_FINISH, [_finish_row(end) for end in ends])
    accepted = [row is not None for row in moved]
    tx.each(
        _END_ATTEMPT,
        [
            {
                "attempt": end.attempt_id,
                "end": end.state.value,
                "ended": to_micros(end.outcome.end_date),
                "why": end.outcome.reason,
            }
            for end, ok in zip(ends, accepted, strict=True)
            if ok
        ],
    )
    return accepted


def finish_instance(tx: Tx, ti_pk: int, attempt_id: str, outcome: Outcome, end: AttemptState) -> bool:
    """End an attempt and move its instance on. False: the attempt is not the instance's any more."""
    return finish_instances(tx, [End(ti_pk, attempt_id, outcome, end)])[0]


def _finish_row(end: End) -> dict[str, Any]:
    outcome, deferral = end.outcome, end.outcome.deferral
    return {
        "instance": end.ti_pk,
        "attempt": end.attempt_id,
        "end": outcome.state.value,
        "ended": to_micros(outcome.end_date),
        "retry": maybe_micros(outcome.retry_at),
        "why": outcome.reason,
        "label": outcome.rendered_map_index,
        "method": deferral.method if deferral else None,
        "arguments": msgspec.json.encode(deferral.next_kwargs).decode() if deferral else None,
    }


def lost_attempts(tx: Tx, now: int, most: int = 500) -> list[LostAttempt]:
    """Running attempts whose worker's lease ran out or is gone."""
    return [LostAttempt(*row) for row in tx.all(_LOST, now=now, most=most)]


class Attempts:
    """Attempts: claimed by workers, finished by them, taken up again when their worker died."""

    def __init__(self, database: Database, dags: Dags, vault: Vault, *, clears_state: bool = False) -> None:
        self._database, self._dags, self._vault, self._clears_state = database, dags, vault, clears_state

    def claim(self, owner: str, *, most: int, hostname: str, now: datetime) -> list[Attempt]:
        """Take up to `most` queued attempts and mark them running under this owner. Empty: none is queued."""
        moment = to_micros(now)
        with self._database.transaction() as tx:
            rows = tx.all(_CLAIM, most=most, now=moment)
            if not rows:
                return []
            tx.each(
                _START_ATTEMPT,
                [{"attempt": row[2], "holder": owner, "host": hostname, "now": moment} for row in rows],
            )
            for row in rows:
                if row[5] > 1 and row[8] is None and not row[10]:
                    forget_xcoms(tx, row[1], row[3], row[4])
            runs = {run[0]: run for run in tx.all(_RUNS, runs=sorted({row[1] for row in rows}))}
            known = {pk: to_run(run) for pk, run in runs.items()}
            # Made before the commit: an attempt that cannot be described must not count as claimed.
            claimed = [self._to_attempt(tx, row, known[row[1]], runs[row[1]], now) for row in rows]
            return _with_events(tx, claimed)

    def finish(self, outcomes: Sequence[tuple[Attempt, Outcome]]) -> list[bool]:
        """End attempts, all in one transaction; for each whether it was still its instance's attempt."""
        with self._database.transaction() as tx:
            # A task that only begins to wait changes nothing for the others of its run.
            mark_dirty(tx, [one.run.pk for one, outcome in outcomes if outcome.deferral is None])
            ends = [
                End(one.ti_pk, one.attempt_id, outcome, _ENDS.get(outcome.state, AttemptState.FAILED))
                for one, outcome in outcomes
            ]
            accepted = finish_instances(tx, ends)
            for (one, outcome), ok in zip(outcomes, accepted, strict=True):
                if ok:
                    _skip_tasks(tx, one, outcome)
                    _emit(tx, one, outcome)
                    self._request_callbacks(tx, one, outcome)
            if self._clears_state:
                forget_successes(tx, [one.ti_pk for (one, _), ok in zip(outcomes, accepted, strict=True) if ok])
            begun = [
                (one, outcome.deferral, outcome.end_date)
                for (one, outcome), ok in zip(outcomes, accepted, strict=True)
                if ok and outcome.deferral is not None
            ]
            begin_waits(tx, self._vault, begun)
            tx.wake(SCHEDULER)
        return accepted

    def still_mine(self, owner: str) -> set[str]:
        """The attempts that run under this owner as far as the store knows; any other was taken away."""
        with self._database.read() as tx:
            return {row[0] for row in tx.all(_MINE, holder=owner)}

    def disown(self, attempt_ids: Sequence[str]) -> None:
        """Admit that nobody runs these attempts any more; a scheduler takes them up like those of a dead worker."""
        with self._database.transaction() as tx:
            tx.run(_DISOWN, attempts=list(attempt_ids))
            tx.wake(SCHEDULER)

    def note_pids(self, pids: Mapping[str, int]) -> None:
        """Remember which process runs which attempt, so that people can find it."""
        with self._database.transaction() as tx:
            tx.each(_NOTE_PID, [{"attempt": attempt_id, "process": pid} for attempt_id, pid in pids.items()])

    def of_run(self, run: Run) -> list[AttemptRecord]:
        """Every attempt at the tasks of a run, in the order they were queued."""
        with self._database.read() as tx:
            rows = tx.all(_ATTEMPTS, run=run.pk)
        return [_to_record(row) for row in rows]

    def _request_callbacks(self, tx: Tx, one: Attempt, outcome: Outcome) -> None:
        kind = _CALLBACKS.get(outcome.state)
        if not outcome.unreported or kind is None:
            return
        task = self._dags.spec(one.run.version, tx).task(one.task_id)
        if task is not None and kind in task.callbacks:
            now = to_micros(outcome.end_date)
            request_callback(tx, one.run.pk, kind, now=now, reason=outcome.reason, ti_pk=one.ti_pk)

    def _to_attempt(self, tx: Tx, row: Row, run: Run, current: Row, now: datetime) -> Attempt:
        version, fileloc = current[-2:]
        task = self._dags.spec(version, tx).task(row[3])
        return Attempt(
            attempt_id=row[2],
            ti_pk=row[0],
            run=run,
            task_id=row[3],
            map_index=row[4],
            try_number=row[5],
            max_tries=row[6],
            queue=row[7],
            fileloc=fileloc,
            start_date=now,
            execution_timeout=task.execution_timeout if task else None,
            should_retry=row[5] <= row[6],
            next_method=row[8],
            next_kwargs=_resume_kwargs(row[8], row[9], row[12]),
            reschedule_count=row[10],
            first_start_date=maybe_moment(row[11]) if row[10] or row[8] is not None else None,
        )


def _resume_kwargs(method: str | None, stored: str | None, event: str | None) -> dict[str, Any] | None:
    """The arguments of the method a task goes on with: those it kept, and the event or failure that ended its wait."""
    kwargs = msgspec.json.decode(stored) if stored else None
    if event is None:
        return kwargs
    ended = msgspec.json.decode(event)
    return {**(kwargs or {}), **(ended if method == FAIL_METHOD else {"event": ended})}


def _with_events(tx: Tx, claimed: list[Attempt]) -> list[Attempt]:
    by_events = [one.run.pk for one in claimed if one.run.run_type is RunType.ASSET_TRIGGERED]
    if not by_events:
        return claimed
    events = events_of_runs(tx, by_events)
    return [msgspec.structs.replace(one, events=events.get(one.run.pk, ())) for one in claimed]


def _emit(tx: Tx, one: Attempt, outcome: Outcome) -> None:
    if outcome.outlets and outcome.state is S.SUCCESS:
        source = TaskSource(one.dag_id, one.run_id, one.task_id, one.map_index, one.attempt_id)
        emit_outlets(tx, outcome.outlets, source, to_micros(outcome.end_date))


def _skip_tasks(tx: Tx, one: Attempt, outcome: Outcome) -> None:
    for task_id, index in outcome.skip:
        tx.run(
            _SKIP_TASK,
            run=one.run.pk,
            task=task_id,
            index=index,
            now=to_micros(outcome.end_date),
            why=f"{one.task_id} chose not to follow it",
        )


def _to_record(row: Row) -> AttemptRecord:
    attempt_id, ti_pk, task_id, number, state, host, pid, reason, began, ended = row
    return AttemptRecord(
        attempt_id,
        ti_pk,
        task_id,
        number,
        AttemptState(state),
        host,
        pid,
        reason,
        maybe_moment(began),
        maybe_moment(ended),
    )
