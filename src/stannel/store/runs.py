"""DAG runs: made, started, looked at again whenever something in them changed, ended."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, delete, func, or_, select, text, update

from stannel.errors import MoveRefused, RunExists, UnknownId, closest
from stannel.model.dag import DagSpec
from stannel.model.ids import UNMAPPED
from stannel.model.moments import from_micros, maybe_micros, maybe_moment, to_micros
from stannel.model.run import Run, RunType
from stannel.model.schedule import Interval
from stannel.model.states import RUN_ENDS, TASK_ENDS, AttemptState, RunState, TaskState, origins
from stannel.store.dags import release_limit
from stannel.store.database import RUN_ENDED, SCHEDULER, WORKER, Database
from stannel.store.schema import attempt, dag, dag_run
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Duty, Row, Tx, insert_into, word, words
from stannel.store.stopping import stop_waits_of_run


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run somebody or some schedule asks for."""

    run_id: str
    run_type: RunType
    run_after: datetime
    logical_date: datetime | None = None
    interval: Interval | None = None
    conf: dict[str, Any] = {}
    triggered_by: str | None = None
    note: str | None = None
    partition_key: str | None = None


RUN_COLUMNS = (
    dag_run.c.pk,
    dag_run.c.dag_id,
    dag_run.c.run_id,
    dag_run.c.run_type,
    dag_run.c.state,
    dag_run.c.version,
    dag_run.c.run_after,
    dag_run.c.logical_date,
    dag_run.c.interval_start,
    dag_run.c.interval_end,
    dag_run.c.queued_at,
    dag_run.c.started_at,
    dag_run.c.ended_at,
    dag_run.c.conf,
    dag_run.c.clear_number,
    dag_run.c.triggered_by,
    dag_run.c.note,
    dag_run.c.partition_key,
)

# No row comes back if the DAG has a run of that id or logical date already.
_NEW_RUN = text(
    "INSERT INTO dag_run (dag_id, run_id, run_type, state, version, run_after, logical_date, interval_start,"
    " interval_end, queued_at, conf, triggered_by, note, partition_key) VALUES (:dag_id, :run_id, :run_type, 'queued',"
    " :version, :run_after, :logical_date, :interval_start, :interval_end, :queued_at, :conf, :triggered_by, :note,"
    " :partition_key) ON CONFLICT DO NOTHING RETURNING pk"
)
NEW_INSTANCE = insert_into(
    ti,
    "run_pk",
    "dag_id",
    "task_id",
    "map_index",
    "state",
    "max_tries",
    "pool",
    "pool_slots",
    "priority",
    "queue",
    "executor",
    "operator",
)
_living = dag_run.c.state.in_(words([RunState.QUEUED, RunState.RUNNING]))
_QUEUED = (
    select(dag_run.c.pk, dag_run.c.dag_id, dag.c.version)
    .join(dag, dag.c.dag_id == dag_run.c.dag_id)
    .where(
        _living,
        dag_run.c.state == word(RunState.QUEUED),
        dag_run.c.run_after <= bindparam("now"),
        dag.c.is_paused == 0,
    )
    .order_by(dag_run.c.run_after, dag_run.c.pk)
    .with_for_update(of=dag_run, skip_locked=True, key_share=True)
)
_RUNNING = (
    select(dag_run.c.dag_id, func.count())
    .where(_living, dag_run.c.state == word(RunState.RUNNING))
    .group_by(dag_run.c.dag_id)
)
_LIVING_OF_DAG = select(func.count()).where(dag_run.c.dag_id == bindparam("wanted"), _living)
_START = (
    update(dag_run)
    .where(dag_run.c.pk == bindparam("run"), dag_run.c.state.in_(words(origins(RunState.RUNNING, RunState.QUEUED))))
    .values(
        state=RunState.RUNNING,
        started_at=func.coalesce(dag_run.c.started_at, bindparam("now")),
        deadline_at=bindparam("deadline"),
        dirty=1,
    )
)
# Locks leave the key free: a task that stores an XCom, which refers to its run, neither waits nor hides the run.
# Picked apart from the update, because PostgreSQL may run a subquery more than once, and then takes more than `most`.
_dirty = (
    select(dag_run.c.pk)
    .join(dag, dag.c.dag_id == dag_run.c.dag_id)
    .where(dag_run.c.dirty == 1, _living, dag_run.c.state == word(RunState.RUNNING), dag.c.is_paused == 0)
    .order_by(dag_run.c.pk)
    .limit(bindparam("most"))
    .with_for_update(of=dag_run, skip_locked=True, key_share=True)
    .cte("dirty_runs")
)
_TAKE_DIRTY = update(dag_run).where(dag_run.c.pk.in_(select(_dirty.c.pk))).values(dirty=0).returning(*RUN_COLUMNS)
MARK_DIRTY = update(dag_run).where(dag_run.c.pk == bindparam("run")).values(dirty=1)
# A run that is locked is being looked at, or will be.
_unwatched = (
    select(dag_run.c.pk)
    .where(_living, dag_run.c.dirty == 0)
    .with_for_update(skip_locked=True, key_share=True)
    .cte("unwatched")
)
_SWEEP = update(dag_run).where(dag_run.c.pk.in_(select(_unwatched.c.pk))).values(dirty=1).returning(dag_run.c.pk)
# The last run may have ended at the very moment a scheduler counted it.
_held = (
    select(dag.c.dag_id)
    .where(or_(dag.c.at_limit == 1, dag.c.events_held == 1))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("held")
)
_FORGET_LIMITS = (
    update(dag)
    .where(dag.c.dag_id.in_(select(_held.c.dag_id)))
    .values(at_limit=0, events_at=case((dag.c.events_held == 1, 0), else_=dag.c.events_at), events_held=0)
)
_END = (
    update(dag_run)
    .where(dag_run.c.pk == bindparam("run"), dag_run.c.state.in_(words([RunState.QUEUED, RunState.RUNNING])))
    .values(state=bindparam("end"), ended_at=bindparam("now"), note=func.coalesce(bindparam("why"), dag_run.c.note))
)
_JUDGE = (
    update(dag_run)
    .where(dag_run.c.pk == bindparam("run"))
    .values(state=bindparam("end"), ended_at=bindparam("now"), dirty=0)
)
_LATEST_STATES = (
    select(dag_run.c.state)
    .where(dag_run.c.dag_id == bindparam("wanted"))
    .order_by(dag_run.c.pk.desc())
    .limit(bindparam("most"))
)
_NOTE = update(dag_run).where(dag_run.c.pk == bindparam("run")).values(note=bindparam("text"))
_FOLLOW = update(dag_run).where(dag_run.c.pk == bindparam("run")).values(version=bindparam("newest"))
_CURRENT = select(dag.c.version, dag.c.fileloc).where(dag.c.dag_id == bindparam("wanted"))
_PREVIOUS = (
    select(dag_run.c.pk)
    .where(dag_run.c.dag_id == bindparam("wanted"), dag_run.c.logical_date < bindparam("before"))
    .order_by(dag_run.c.logical_date.desc())
    .limit(1)
)
_LATEST_SCHEDULED = (
    select(dag_run.c.logical_date, dag_run.c.interval_start, dag_run.c.interval_end, dag_run.c.run_after)
    .where(dag_run.c.dag_id == bindparam("wanted"), dag_run.c.run_type == word(RunType.SCHEDULED))
    .order_by(dag_run.c.logical_date.desc())
    .limit(1)
)
_OVERDUE = (
    select(*RUN_COLUMNS)
    .where(_living, dag_run.c.deadline_at.is_not(None), dag_run.c.deadline_at <= bindparam("now"))
    .with_for_update(skip_locked=True, key_share=True)
)
_NEXT_DEADLINE = select(func.min(dag_run.c.deadline_at)).where(_living, dag_run.c.deadline_at.is_not(None))
_NEXT_QUEUED = (
    select(func.min(dag_run.c.run_after))
    .join(dag, dag.c.dag_id == dag_run.c.dag_id)
    .where(
        _living,
        dag_run.c.state == word(RunState.QUEUED),
        dag_run.c.run_after > bindparam("now"),
        dag.c.is_paused == 0,
    )
)
_UNFINISHED = words(sorted(set(TaskState) - TASK_ENDS))
_STOP = (
    update(ti)
    .where(ti.c.run_pk == bindparam("run"), ti.c.state.in_(_UNFINISHED))
    .values(state=TaskState.SKIPPED, ended_at=bindparam("now"), note=bindparam("why"), event=None)
)
_STOP_ATTEMPTS = (
    update(attempt)
    .where(
        attempt.c.ti_pk.in_(select(ti.c.pk).where(ti.c.run_pk == bindparam("run"))),
        attempt.c.state.in_(words([AttemptState.QUEUED, AttemptState.RUNNING])),
    )
    .values(state=AttemptState.CANCELLED, ended_at=bindparam("now"), reason=bindparam("why"))
)
# Not waited for when locked, since its owner may wait for us; whoever ends a task in it has it looked at anyway.
_FOLLOWER = (
    select(dag_run.c.pk)
    .where(dag_run.c.dag_id == bindparam("wanted"), dag_run.c.logical_date > bindparam("after"), _living)
    .order_by(dag_run.c.logical_date)
    .limit(1)
    .with_for_update(skip_locked=True, key_share=True)
)
_ONE = select(*RUN_COLUMNS).where(dag_run.c.dag_id == bindparam("wanted"), dag_run.c.run_id == bindparam("run"))
_BY_PK = select(*RUN_COLUMNS).where(dag_run.c.pk == bindparam("run"))
_SOME_IDS = (
    select(dag_run.c.run_id).where(dag_run.c.dag_id == bindparam("wanted")).order_by(dag_run.c.pk.desc()).limit(200)
)
_DELETE = delete(dag_run).where(dag_run.c.pk == bindparam("run"))
_REOPEN = (
    update(dag_run)
    .where(dag_run.c.pk == bindparam("run"), dag_run.c.state.in_(words(origins(RunState.QUEUED, *RUN_ENDS))))
    .values(
        state=RunState.QUEUED,
        ended_at=None,
        started_at=None,
        deadline_at=None,
        dirty=1,
        queued_at=bindparam("now"),
    )
)
_COUNT_CLEAR = update(dag_run).where(dag_run.c.pk == bindparam("run")).values(clear_number=dag_run.c.clear_number + 1)


def create_run(tx: Tx, version: str, spec: DagSpec, new: NewRun, now: int) -> int:
    """Make a run with all its task instances; `RunExists` if the DAG has one like it."""
    row = tx.one(
        _NEW_RUN,
        dag_id=spec.dag_id,
        run_id=new.run_id,
        run_type=new.run_type.value,
        version=version,
        run_after=to_micros(new.run_after),
        logical_date=maybe_micros(new.logical_date),
        interval_start=to_micros(new.interval.start) if new.interval else None,
        interval_end=to_micros(new.interval.end) if new.interval else None,
        queued_at=now,
        conf=msgspec.json.encode(new.conf).decode(),
        triggered_by=new.triggered_by,
        note=new.note,
        partition_key=new.partition_key,
    )
    if row is None:
        raise RunExists(spec.dag_id, new.run_id)
    add_instances(tx, row[0], spec, [task.task_id for task in spec.tasks])
    tx.wake(SCHEDULER)
    return int(row[0])


def add_instances(tx: Tx, run_pk: int, spec: DagSpec, task_ids: Sequence[str]) -> None:
    """Give a run the instances of these tasks, undecided yet; a mapped task starts as one."""
    wanted = set(task_ids)
    rows = [instance_row(run_pk, spec, task_id=task.task_id) for task in spec.tasks if task.task_id in wanted]
    tx.each(NEW_INSTANCE, rows)


def instance_row(run_pk: int, spec: DagSpec, *, task_id: str, map_index: int = UNMAPPED) -> dict[str, Any]:
    """The row of a task instance about which nothing was decided yet."""
    task = spec.task(task_id)
    if task is None:
        raise UnknownId("task", task_id)
    return {
        "run_pk": run_pk,
        "dag_id": spec.dag_id,
        "task_id": task_id,
        "map_index": map_index,
        "state": TaskState.NONE.value,
        "max_tries": task.retry.retries,
        "pool": task.pool,
        "pool_slots": task.pool_slots,
        "priority": task.priority,
        "queue": task.queue,
        "executor": task.executor,
        "operator": task.operator,
    }


def living_runs(tx: Tx, dag_id: str) -> int:
    """How many runs of the DAG are queued or running."""
    row = tx.one(_LIVING_OF_DAG, wanted=dag_id)
    return int(row[0]) if row else 0


def latest_scheduled(tx: Tx, dag_id: str) -> Row | None:
    """Logical date, interval and run-after of the newest run the schedule made. None: it made none yet."""
    return tx.one(_LATEST_SCHEDULED, wanted=dag_id)


def queued_runs(tx: Tx, now: int) -> list[tuple[int, str, str]]:
    """(run, DAG id, current version) of runs that wait to be started, in order; nobody else starts any meanwhile."""
    rows = tx.all(_QUEUED, now=now)
    if rows:
        # Two schedulers that count the running runs at once would both start one too many.
        tx.alone(Duty.START_RUNS)
    return [(row[0], row[1], row[2]) for row in rows]


def running_counts(tx: Tx) -> dict[str, int]:
    return dict(tx.all(_RUNNING))


def start_run(tx: Tx, run_pk: int, *, now: int, deadline: int | None) -> bool:
    """Mark a queued run running. False: it was no longer queued."""
    return tx.run(_START, run=run_pk, now=now, deadline=deadline) > 0


def take_dirty(tx: Tx, most: int) -> list[Run]:
    """Running runs in which something changed, locked and taken off the list. Empty: nothing changed."""
    runs = [to_run(row) for row in tx.all(_TAKE_DIRTY, most=most)]
    # The end of a run may lock its DAG: all transactions meet the DAGs in the same order.
    return sorted(runs, key=lambda run: (run.dag_id, run.pk))


def mark_dirty(tx: Tx, run_pks: Sequence[int]) -> None:
    """Have a scheduler look at these runs. Sorted, so that two transactions lock them in the same order."""
    tx.each(MARK_DIRTY, [{"run": pk} for pk in sorted(set(run_pks))])


def end_run(tx: Tx, run: Run, state: RunState, *, now: int, why: str | None) -> bool:
    """End a living run. False: it had ended already."""
    if not tx.run(_END, run=run.pk, end=state.value, now=now, why=why):
        return False
    release_limit(tx, run.dag_id)
    tx.wake(SCHEDULER, RUN_ENDED)
    return True


def stop_instances(tx: Tx, run_pk: int, *, now: int, why: str, by_person: bool = False) -> None:
    """Skip every task of the run that has not ended; workers are told to end the processes of those that run."""
    tx.run(_STOP, run=run_pk, now=now, why=why)
    tx.run(_STOP_ATTEMPTS, run=run_pk, now=now, why=why)
    stop_waits_of_run(tx, run_pk, by_person=by_person)
    tx.wake(WORKER)


def mark_follower_dirty(tx: Tx, run: Run) -> None:
    """Have a scheduler look at the next living run of the DAG, which may wait for this one."""
    if run.logical_date is not None:
        row = tx.one(_FOLLOWER, wanted=run.dag_id, after=to_micros(run.logical_date))
        mark_dirty(tx, [row[0]] if row else [])


def latest_states(tx: Tx, dag_id: str, most: int) -> list[RunState]:
    """How the newest runs of a DAG stand, the newest first."""
    return [RunState(row[0]) for row in tx.all(_LATEST_STATES, wanted=dag_id, most=most)]


def note_run(tx: Tx, run_pk: int, note: str) -> None:
    """Write down, for people, what is the matter with a run."""
    tx.run(_NOTE, run=run_pk, text=note)


def follow_version(tx: Tx, run_pk: int, version: str) -> None:
    tx.run(_FOLLOW, run=run_pk, newest=version)


def current_version(tx: Tx, dag_id: str) -> str:
    """The newest version of a DAG; runs under way follow it."""
    row = tx.one(_CURRENT, wanted=dag_id)
    if row is None:
        raise UnknownId("DAG", dag_id)
    return str(row[0])


def previous_run(tx: Tx, run: Run) -> int | None:
    """The run of the DAG with the nearest earlier logical date. None: this is the first."""
    if run.logical_date is None:
        return None
    row = tx.one(_PREVIOUS, wanted=run.dag_id, before=to_micros(run.logical_date))
    return None if row is None else int(row[0])


def overdue_runs(tx: Tx, now: int) -> list[Run]:
    """Living runs whose `dagrun_timeout` is over."""
    return [to_run(row) for row in tx.all(_OVERDUE, now=now)]


def reopen_run(tx: Tx, run_pk: int, now: int) -> None:
    """Take up a run again after some of its tasks were cleared."""
    tx.run(_COUNT_CLEAR, run=run_pk)
    tx.run(_REOPEN, run=run_pk, now=now)


def next_deadlines(tx: Tx, now: int) -> list[int]:
    """The next moments at which a run times out or may start."""
    rows = [tx.one(_NEXT_DEADLINE), tx.one(_NEXT_QUEUED, now=now)]
    return [row[0] for row in rows if row and row[0] is not None]


class Runs:
    """The runs of all DAGs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, version: str, spec: DagSpec, new: NewRun, *, now: datetime) -> Run:
        """Make a run with all its task instances; `RunExists` if the DAG has one like it."""
        with self._database.transaction() as tx:
            pk = create_run(tx, version, spec, new, to_micros(now))
            row = tx.one(_BY_PK, run=pk)
        assert row is not None
        return to_run(row)

    def get(self, dag_id: str, run_id: str) -> Run:
        """The run of that id; an unknown one is refused with the nearest ids."""
        with self._database.read() as tx:
            row = tx.one(_ONE, wanted=dag_id, run=run_id)
            if row is None:
                known = [known for (known,) in tx.all(_SOME_IDS, wanted=dag_id)]
                raise UnknownId(f"run of {dag_id!r}", run_id, closest(run_id, known))
        return to_run(row)

    def latest(
        self, *, dag_id: str | None = None, state: RunState | None = None, limit: int = 25, run_type: str | None = None
    ) -> list[Run]:
        """The newest runs first."""
        wanted = select(*RUN_COLUMNS).order_by(dag_run.c.pk.desc()).limit(limit)
        for column, value in ((dag_run.c.dag_id, dag_id), (dag_run.c.state, state), (dag_run.c.run_type, run_type)):
            wanted = wanted if value is None else wanted.where(column == str(value))
        with self._database.read() as tx:
            return [to_run(row) for row in tx.query(wanted)]

    def delete(self, run: Run) -> bool:
        """Delete a run with everything that belongs to it. False: it was gone already."""
        with self._database.transaction() as tx:
            stop_waits_of_run(tx, run.pk, by_person=True)
            deleted = tx.run(_DELETE, run=run.pk) > 0
            release_limit(tx, run.dag_id)
            tx.wake(SCHEDULER, RUN_ENDED)
        return deleted

    def set_state(self, run: Run, state: RunState, *, now: datetime) -> None:
        """A user's verdict over a run, success or failed; what had not ended in it is skipped."""
        if state not in RUN_ENDS:
            raise MoveRefused("run", run.state, state)
        moment = to_micros(now)
        with self._database.transaction() as tx:
            tx.run(_JUDGE, run=run.pk, end=state.value, now=moment)
            why = f"the run was marked {state} by a user"
            stop_instances(tx, run.pk, now=moment, why=why, by_person=True)
            release_limit(tx, run.dag_id)
            tx.wake(SCHEDULER, RUN_ENDED)

    def sweep(self) -> int:
        """Have schedulers look at every living run again: the net under lost wake-ups. How many were not looked at."""
        with self._database.transaction() as tx:
            tx.run(_FORGET_LIMITS)
            return len(tx.all(_SWEEP))


def to_run(row: Row) -> Run:
    """A run from a row of RUN_COLUMNS."""
    return Run(
        pk=row[0],
        dag_id=row[1],
        run_id=row[2],
        run_type=RunType(row[3]),
        state=RunState(row[4]),
        version=row[5],
        run_after=from_micros(row[6]),
        logical_date=maybe_moment(row[7]),
        data_interval_start=maybe_moment(row[8]),
        data_interval_end=maybe_moment(row[9]),
        queued_at=maybe_moment(row[10]),
        start_date=maybe_moment(row[11]),
        end_date=maybe_moment(row[12]),
        conf=msgspec.json.decode(row[13]),
        clear_number=row[14],
        triggered_by=row[15],
        note=row[16],
        partition_key=row[17],
    )
