"""Task instances: planned, queued, looked at, cleared and judged by people."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import bindparam, func, or_, select, update

from stannel.errors import MoveRefused
from stannel.model.dag import DagSpec
from stannel.model.ids import new_id
from stannel.model.moments import maybe_moment, to_micros
from stannel.model.plan import Candidate, Instance, RunPlan
from stannel.model.run import Run, TaskInstance
from stannel.model.states import HOLDS_SLOT, TASK_ENDS, AttemptState, RunState, TaskState, origins
from stannel.store.dags import Dags
from stannel.store.database import SCHEDULER, WORKER, Database
from stannel.store.runs import NEW_INSTANCE, instance_row, mark_dirty, reopen_run
from stannel.store.schema import attempt, dag, dag_run, pool
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Row, Tx, among, insert_into, word, words
from stannel.store.state_stores import forget_successes
from stannel.store.stopping import kill_waits

S = TaskState


class Usage(msgspec.Struct, frozen=True):
    """Slots that queued and running instances of one task in one run hold."""

    dag_id: str
    run_pk: int
    task_id: str
    pool: str
    instances: int
    slots: int


_STATES = {state.value: state for state in TaskState}
_INSTANCE = (ti.c.pk, ti.c.task_id, ti.c.map_index, ti.c.state, ti.c.try_number, ti.c.retry_at)
_OF_RUN = select(*_INSTANCE).where(ti.c.run_pk == bindparam("run"))
_SCHEDULE = (
    update(ti)
    .where(
        among(ti.c.pk, "pks"),
        ti.c.state.in_(words(origins(S.SCHEDULED, S.NONE, S.UP_FOR_RETRY, S.UP_FOR_RESCHEDULE))),
    )
    .values(state=S.SCHEDULED, scheduled_at=bindparam("now"), retry_at=None, note=None)
)
_UNSTARTED = words([S.NONE, S.SCHEDULED, S.UP_FOR_RETRY, S.UP_FOR_RESCHEDULE])
_MOVE = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.state.in_(_UNSTARTED))
    .values(
        state=bindparam("end"),
        note=bindparam("why"),
        started_at=func.coalesce(ti.c.started_at, bindparam("now")),
        ended_at=bindparam("now"),
    )
)
_FIRST_OF_MANY = update(ti).where(ti.c.pk == bindparam("instance")).values(map_index=0)
_CANDIDATES = (
    select(
        ti.c.pk,
        ti.c.run_pk,
        ti.c.dag_id,
        ti.c.task_id,
        ti.c.pool,
        ti.c.pool_slots,
        ti.c.priority,
        dag.c.version,
        ti.c.try_number,
        or_(ti.c.next_method.is_not(None), ti.c.reschedules > 0),
    )
    .join(dag, dag.c.dag_id == ti.c.dag_id)
    .where(
        ti.c.state == word(S.SCHEDULED),
        dag.c.is_paused == 0,
        ~among(ti.c.pool, "pools"),
        ~among(ti.c.run_pk, "runs"),
    )
    .order_by(ti.c.priority.desc(), ti.c.scheduled_at, ti.c.pk)
    .limit(bindparam("most"))
    .offset(bindparam("skip"))
)
_USAGE = (
    select(ti.c.dag_id, ti.c.run_pk, ti.c.task_id, ti.c.pool, func.count(), func.sum(ti.c.pool_slots))
    .where(ti.c.state.in_(words(sorted(HOLDS_SLOT))))
    .group_by(ti.c.dag_id, ti.c.run_pk, ti.c.task_id, ti.c.pool)
)
# Deferred instances hold a slot only where a pool says so; they always count as instances of their task.
_DEFERRED_IN_POOLS = (
    select(ti.c.pool, func.sum(ti.c.pool_slots))
    .where(ti.c.state == word(S.DEFERRED), ti.c.pool.in_(select(pool.c.name).where(pool.c.include_deferred == 1)))
    .group_by(ti.c.pool)
)
_ANY_SUCH_POOL = select(pool.c.name).where(pool.c.include_deferred == 1).limit(1)
_DEFERRED_OF_DAGS = (
    select(ti.c.dag_id, ti.c.run_pk, ti.c.task_id, func.count())
    .where(ti.c.state == word(S.DEFERRED), among(ti.c.dag_id, "dags"))
    .group_by(ti.c.dag_id, ti.c.run_pk, ti.c.task_id)
)
_POOL_SLOTS = select(pool.c.name, pool.c.slots)
_QUEUE = (
    update(ti)
    .where(ti.c.pk == bindparam("instance"), ti.c.state.in_(words(origins(S.QUEUED, S.SCHEDULED))))
    .values(
        state=S.QUEUED,
        queued_at=bindparam("now"),
        attempt_id=bindparam("attempt"),
        try_number=bindparam("number"),
        note=None,
    )
)
_NEW_ATTEMPT = insert_into(attempt, "attempt_id", "ti_pk", "run_pk", "try_number", "state", "queued_at")
# Between the choice and this statement a user may have cleared or judged some; those get no attempt.
_STILL_SCHEDULED = (
    select(ti.c.pk)
    .where(among(ti.c.pk, "pks"), ti.c.state == word(S.SCHEDULED))
    .with_for_update(skip_locked=True, key_share=True)
)
_CLEAR = (
    update(ti)
    .where(among(ti.c.pk, "pks"), ti.c.run_pk == bindparam("run"))
    .values(
        state=S.NONE,
        started_at=None,
        ended_at=None,
        retry_at=None,
        reschedules=0,
        next_method=None,
        next_kwargs=None,
        event=None,
        note=None,
    )
    .returning(ti.c.pk, ti.c.task_id, ti.c.try_number)
)
_MORE_TRIES = update(ti).where(ti.c.pk == bindparam("instance")).values(max_tries=bindparam("tries"))
_JUDGE = (
    update(ti)
    .where(among(ti.c.pk, "pks"), ti.c.run_pk == bindparam("run"), among(ti.c.state, "before"))
    .values(state=bindparam("end"), ended_at=bindparam("now"), note="set by a user")
    .returning(ti.c.pk)
)
_CANCEL = (
    update(attempt)
    .where(
        among(attempt.c.ti_pk, "pks"),
        attempt.c.run_pk == bindparam("run"),
        attempt.c.state.in_(words([AttemptState.QUEUED, AttemptState.RUNNING])),
    )
    .values(state=AttemptState.CANCELLED, ended_at=bindparam("now"), reason=bindparam("why"))
)
# Said only when it changes, so that a long wait is not written down at every look.
_NOTE_WAITING = (
    update(ti)
    .where(
        ti.c.pk == bindparam("instance"),
        ti.c.state == word(S.SCHEDULED),
        func.coalesce(ti.c.note, "") != bindparam("why"),
    )
    .values(note=bindparam("why"))
)
# Only in runs that may be planned now: a paused DAG's retry is overdue for days, and nobody should count the seconds.
_waits_to_retry = (
    ti.c.state.in_(words([S.UP_FOR_RETRY, S.UP_FOR_RESCHEDULE])),
    dag_run.c.state == word(RunState.RUNNING),
    dag.c.is_paused == 0,
)
_NEXT_RETRY = (
    select(func.min(ti.c.retry_at))
    .join(dag_run, dag_run.c.pk == ti.c.run_pk)
    .join(dag, dag.c.dag_id == ti.c.dag_id)
    .where(*_waits_to_retry, ti.c.retry_at.is_not(None))
)
# A run that is locked is not waited for, since its owner may wait for us; the retry is still due at the next look.
_DUE_RETRIES = (
    select(dag_run.c.pk)
    .join(ti, ti.c.run_pk == dag_run.c.pk)
    .join(dag, dag.c.dag_id == dag_run.c.dag_id)
    .where(*_waits_to_retry, ti.c.retry_at <= bindparam("now"))
    .with_for_update(of=dag_run, skip_locked=True, key_share=True)
)
INSTANCE_COLUMNS = (
    ti.c.pk,
    ti.c.run_pk,
    ti.c.dag_id,
    dag_run.c.run_id,
    ti.c.task_id,
    ti.c.map_index,
    ti.c.state,
    ti.c.try_number,
    ti.c.max_tries,
    ti.c.attempt_id,
    ti.c.pool,
    ti.c.pool_slots,
    ti.c.priority,
    ti.c.queue,
    ti.c.operator,
    ti.c.note,
    ti.c.rendered_map_index,
    ti.c.scheduled_at,
    ti.c.queued_at,
    ti.c.started_at,
    ti.c.ended_at,
    ti.c.retry_at,
)
_DETAILS = (
    select(*INSTANCE_COLUMNS)
    .join(dag_run, dag_run.c.pk == ti.c.run_pk)
    .where(ti.c.run_pk == bindparam("run"))
    .order_by(ti.c.pk)
)


def instances_of(tx: Tx, run_pk: int) -> list[Instance]:
    """Every instance of a run, as the planner wants it."""
    rows = tx.all(_OF_RUN, run=run_pk)
    return [Instance(pk, task, index, _STATES[state], tries, retry) for pk, task, index, state, tries, retry in rows]


def apply_plan(tx: Tx, run: Run, spec: DagSpec, plan: RunPlan, now: int) -> None:
    """Write down what was decided about the instances of a run."""
    if plan.schedule:
        tx.run(_SCHEDULE, pks=plan.schedule, now=now)
    tx.each(
        _MOVE, [{"instance": move.pk, "end": move.state.value, "why": move.note, "now": now} for move in plan.moves]
    )
    for expansion in plan.expand:
        tx.run(_FIRST_OF_MANY, instance=expansion.pk)
        row = instance_row(run.pk, spec, task_id=expansion.task_id)
        tx.each(NEW_INSTANCE, [{**row, "map_index": index} for index in range(expansion.first_new, expansion.length)])


class Without(msgspec.Struct):
    """Candidates that need not be looked at again: of full pools, of full runs, and the first so many of the others."""

    pools: set[str] = set()
    runs: set[int] = set()
    first: int = 0


def scheduled_instances(tx: Tx, most: int, without: Without) -> list[Candidate]:
    """Instances that wait for a slot, the most urgent first."""
    pools, runs = sorted(without.pools), sorted(without.runs)
    rows = tx.all(_CANDIDATES, most=most, skip=without.first, pools=pools, runs=runs)
    return [Candidate(*row) for row in rows]


def slots_in_use(tx: Tx) -> list[Usage]:
    return [Usage(*row) for row in tx.all(_USAGE)]


def slots_held_deferred(tx: Tx) -> dict[str, int]:
    """Slots that deferred instances hold in the pools that count them."""
    if tx.one(_ANY_SUCH_POOL) is None:
        return {}
    return {name: int(slots) for name, slots in tx.all(_DEFERRED_IN_POOLS)}


def deferred_instances(tx: Tx, dag_ids: Sequence[str]) -> list[tuple[str, int, str, int]]:
    """DAG, run, task and how many of its instances are deferred, in these DAGs."""
    return [(row[0], row[1], row[2], row[3]) for row in tx.all(_DEFERRED_OF_DAGS, dags=list(dag_ids))]


def pool_slots(tx: Tx) -> dict[str, int]:
    """The size of every pool; fewer than zero means no limit."""
    return dict(tx.all(_POOL_SLOTS))


def queue_instances(tx: Tx, chosen: Sequence[Candidate], now: int) -> None:
    """Give each chosen instance an attempt that any worker may claim."""
    if not chosen:
        return
    free = {row[0] for row in tx.all(_STILL_SCHEDULED, pks=[one.pk for one in chosen])}
    moves, attempts = [], []
    for one in (one for one in chosen if one.pk in free):
        attempt_id = new_id()
        number = one.try_number if one.same_try else one.try_number + 1
        moves.append({"instance": one.pk, "now": now, "attempt": attempt_id, "number": number})
        attempts.append(
            {
                "attempt_id": attempt_id,
                "ti_pk": one.pk,
                "run_pk": one.run_pk,
                "try_number": number,
                "state": AttemptState.QUEUED.value,
                "queued_at": now,
            }
        )
    tx.each(_QUEUE, moves)
    tx.each(_NEW_ATTEMPT, attempts)
    tx.wake(WORKER)


def note_waiting(tx: Tx, reasons: Mapping[int, str]) -> None:
    """Write down, for people, what scheduled instances wait for."""
    tx.each(_NOTE_WAITING, [{"instance": pk, "why": reason} for pk, reason in reasons.items()])


def runs_with_due_retries(tx: Tx, now: int) -> list[int]:
    return [row[0] for row in tx.all(_DUE_RETRIES, now=now)]


def next_retry(tx: Tx) -> int | None:
    """When the earliest task that waits for another try is due."""
    row = tx.one(_NEXT_RETRY)
    return None if row is None else row[0]


class Tasks:
    """Task instances, as people and schedulers see them."""

    def __init__(self, database: Database, dags: Dags, *, clears_state: bool = False) -> None:
        self._database, self._dags, self._clears_state = database, dags, clears_state

    def of_run(self, run: Run) -> list[TaskInstance]:
        """The instances of a run with all details, in the order they were made."""
        with self._database.read() as tx:
            return [to_instance(row) for row in tx.all(_DETAILS, run=run.pk)]

    def clear(self, run: Run, pks: Sequence[int], *, now: datetime) -> int:
        """Forget how these instances ended and run them again; running ones are stopped. How many were cleared."""
        moment = to_micros(now)
        retries = {task.task_id: task.retry.retries for task in self._dags.spec(run.version).tasks}
        with self._database.transaction() as tx:
            mark_dirty(tx, [run.pk])
            cleared = tx.all(_CLEAR, run=run.pk, pks=list(pks))
            # A cleared task gets its full number of tries again, counted on from where it is.
            tries = [{"instance": pk, "tries": tried + retries.get(task_id, 0)} for pk, task_id, tried in cleared]
            tx.each(_MORE_TRIES, tries)
            tx.run(_CANCEL, run=run.pk, pks=list(pks), now=moment, why="the task was cleared")
            kill_waits(tx, [row[0] for row in cleared])
            reopen_run(tx, run.pk, moment)
            tx.wake(SCHEDULER, WORKER)
        return len(cleared)

    def set_state(self, run: Run, pks: Sequence[int], state: TaskState, *, now: datetime) -> int:
        """A user's verdict over instances; running ones are stopped. How many took it."""
        if state not in TASK_ENDS:
            raise MoveRefused("task instance", "any state", state)
        moment, before = to_micros(now), [one.value for one in origins(state)]
        with self._database.transaction() as tx:
            mark_dirty(tx, [run.pk])
            changed = tx.all(_JUDGE, run=run.pk, pks=list(pks), before=before, end=state.value, now=moment)
            why = f"a user set the task to {state}"
            tx.run(_CANCEL, run=run.pk, pks=list(pks), now=moment, why=why)
            kill_waits(tx, [row[0] for row in changed])
            if self._clears_state:
                forget_successes(tx, [row[0] for row in changed])
            tx.wake(SCHEDULER, WORKER)
        return len(changed)


def to_instance(row: Row) -> TaskInstance:
    """A task instance from a row of INSTANCE_COLUMNS."""
    return TaskInstance(
        pk=row[0],
        run_pk=row[1],
        dag_id=row[2],
        run_id=row[3],
        task_id=row[4],
        map_index=row[5],
        state=TaskState(row[6]),
        try_number=row[7],
        max_tries=row[8],
        attempt_id=row[9],
        pool=row[10],
        pool_slots=row[11],
        priority=row[12],
        queue=row[13],
        operator=row[14],
        note=row[15],
        rendered_map_index=row[16],
        scheduled_at=maybe_moment(row[17]),
        queued_at=maybe_moment(row[18]),
        start_date=maybe_moment(row[19]),
        end_date=maybe_moment(row[20]),
        retry_at=maybe_moment(row[21]),
    )
