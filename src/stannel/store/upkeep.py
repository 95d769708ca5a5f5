"""Looking after the store: is everything in it consistent, and what may be thrown away."""

from datetime import datetime

import msgspec
from sqlalchemy import and_, bindparam, delete, exists, func, not_, or_, select

from stannel.model.moments import to_micros
from stannel.model.run import RunType
from stannel.model.states import RUN_ENDS, TASK_ENDS, AttemptState, RunState, TaskState, TriggerState
from stannel.store.database import Database
from stannel.store.schema import asset_event, attempt, dag_run, event_queue, run_event, trigger, xcom
from stannel.store.schema import task_instance as ti
from stannel.store.sql import word, words

_LIVING_ATTEMPT = words([AttemptState.QUEUED, AttemptState.RUNNING])

_LIVING_TASK = (TaskState.QUEUED, TaskState.RUNNING, TaskState.SCHEDULED, TaskState.DEFERRED)

_known_runs = [state.value for state in RunState]
_known_tasks = [state.value for state in TaskState]
_has_attempt = exists().where(attempt.c.attempt_id == ti.c.attempt_id, attempt.c.state.in_(_LIVING_ATTEMPT))
_successes = (
    select(attempt.c.ti_pk)
    .join(dag_run, dag_run.c.pk == attempt.c.run_pk)
    .where(attempt.c.state == AttemptState.SUCCESS, dag_run.c.clear_number == 0)
    .group_by(attempt.c.ti_pk)
    .having(func.count() > 1)
)

_has_trigger = exists().where(
    trigger.c.ti_pk == ti.c.pk,
    trigger.c.attempt_id == ti.c.attempt_id,
    trigger.c.state == word(TriggerState.WAITING),
)

# Each row a statement finds is a contradiction; the name says which.
_CONTRADICTIONS = {
    "a run is in a state nobody knows": select(dag_run.c.pk).where(dag_run.c.state.not_in(_known_runs)),
    "a task instance is in a state nobody knows": select(ti.c.pk).where(ti.c.state.not_in(_known_tasks)),
    "a run has ended but a task of it has not": (
        select(ti.c.pk)
        .join(dag_run, dag_run.c.pk == ti.c.run_pk)
        .where(
            dag_run.c.state.in_([str(state) for state in sorted(RUN_ENDS)]),
            ti.c.state.in_([str(one) for one in _LIVING_TASK]),
        )
    ),
    "a run has ended but has no end date": select(dag_run.c.pk).where(
        dag_run.c.state.in_([str(state) for state in sorted(RUN_ENDS)]), dag_run.c.ended_at.is_(None)
    ),
    "a task is queued or running without an attempt": select(ti.c.pk).where(
        ti.c.state.in_([str(TaskState.QUEUED), str(TaskState.RUNNING)]), not_(_has_attempt)
    ),
    "a task has ended but an attempt of it has not": (
        select(attempt.c.attempt_id)
        .join(ti, ti.c.pk == attempt.c.ti_pk)
        .where(attempt.c.state.in_(_LIVING_ATTEMPT), ti.c.state.in_([str(state) for state in sorted(TASK_ENDS)]))
    ),
    "an attempt is under way that its task knows nothing of": (
        select(attempt.c.attempt_id)
        .join(ti, ti.c.pk == attempt.c.ti_pk)
        .where(
            attempt.c.state.in_(_LIVING_ATTEMPT),
            ti.c.state.not_in([str(state) for state in sorted(TASK_ENDS)]),
            or_(ti.c.attempt_id.is_(None), ti.c.attempt_id != attempt.c.attempt_id, ti.c.state != attempt.c.state),
        )
    ),
    "a task succeeded more than once": _successes,
    "an attempt belongs to no task instance": select(attempt.c.attempt_id).where(
        not_(exists().where(ti.c.pk == attempt.c.ti_pk))
    ),
    "a task is deferred but waits for no trigger": select(ti.c.pk).where(
        ti.c.state == word(TaskState.DEFERRED), not_(_has_trigger)
    ),
    "a trigger waits, but its task does not": select(trigger.c.pk).where(
        trigger.c.state == word(TriggerState.WAITING),
        trigger.c.digest.is_(None),
        not_(
            exists().where(
                ti.c.pk == trigger.c.ti_pk,
                ti.c.attempt_id == trigger.c.attempt_id,
                ti.c.state == word(TaskState.DEFERRED),
            )
        ),
    ),
    "two triggers wait for the same task": (
        select(trigger.c.ti_pk)
        .where(trigger.c.state == word(TriggerState.WAITING), trigger.c.digest.is_(None))
        .group_by(trigger.c.ti_pk)
        .having(func.count() > 1)
    ),
    "watchers of one stream have different owners": (
        select(trigger.c.stream_key)
        .where(trigger.c.stream_key.is_not(None), trigger.c.owner.is_not(None))
        .group_by(trigger.c.stream_key, trigger.c.queue)
        .having(func.count(trigger.c.owner.distinct()) > 1)
    ),
    "an XCom belongs to no run": select(xcom.c.run_pk).where(not_(exists().where(dag_run.c.pk == xcom.c.run_pk))),
}

# The newest run of a schedule stays: without it the schedule would begin again.
_newest = select(func.max(dag_run.c.pk)).where(dag_run.c.run_type == word(RunType.SCHEDULED)).group_by(dag_run.c.dag_id)
_ENDED = and_(
    dag_run.c.state.in_(words(sorted(RUN_ENDS))),
    dag_run.c.ended_at < bindparam("before"),
    dag_run.c.pk.not_in(_newest),
)
_OLD_RUNS = select(func.count()).select_from(dag_run).where(_ENDED)
_DELETE_OLD = delete(dag_run).where(
    dag_run.c.pk.in_(select(dag_run.c.pk).where(_ENDED).order_by(dag_run.c.pk).limit(bindparam("most")))
)


# Past, waiting for nobody, and consumed by no run that is still there.
_FORGOTTEN = and_(
    asset_event.c.stored_at < bindparam("before"),
    ~exists().where(event_queue.c.event_pk == asset_event.c.pk),
    ~exists().where(run_event.c.event_pk == asset_event.c.pk, run_event.c.run_pk.is_not(None)),
)
_OLD_EVENTS = select(func.count()).select_from(asset_event).where(_FORGOTTEN)
_DELETE_EVENTS = delete(asset_event).where(
    asset_event.c.pk.in_(select(asset_event.c.pk).where(_FORGOTTEN).order_by(asset_event.c.pk).limit(bindparam("most")))
)


class Contradiction(msgspec.Struct, frozen=True):
    """Something that must not be in a store, and how often it is."""

    what: str
    count: int


class Upkeep:
    """Checking and cleaning."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self) -> list[Contradiction]:
        """Everything in the store that contradicts itself. Empty: all is well."""
        with self._database.read() as tx:
            found = [Contradiction(what, len(tx.all(query))) for what, query in _CONTRADICTIONS.items()]
        return [one for one in found if one.count]

    def old_runs(self, before: datetime) -> int:
        """How many runs ended before that moment."""
        with self._database.read() as tx:
            row = tx.one(_OLD_RUNS, before=to_micros(before))
        return int(row[0]) if row else 0

    def delete_old_runs(self, before: datetime, most: int = 500) -> int:
        """Delete some runs that ended before that moment, with all that belongs to them. 0: none is left."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE_OLD, before=to_micros(before), most=most)

    def old_events(self, before: datetime) -> int:
        """How many asset events were stored before that moment, wait for nobody, and belong to no run."""
        with self._database.read() as tx:
            row = tx.one(_OLD_EVENTS, before=to_micros(before))
        return int(row[0]) if row else 0

    def delete_old_events(self, before: datetime, most: int = 500) -> int:
        """Delete some of these events. 0: none is left."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE_EVENTS, before=to_micros(before), most=most)
