"""A store with a scheduler and workers played by hand, so that a test says what happens and nothing else."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from stannel.model.dag import DagSpec, Retry, TaskSpec
from stannel.model.moments import to_micros
from stannel.model.plan import RunPlan
from stannel.model.run import Attempt, Outcome, Run, RunType, TaskInstance
from stannel.model.schedule import Interval
from stannel.model.states import ATTEMPT_MOVES, RUN_MOVES, TASK_MOVES, TRIGGER_MOVES, TaskState
from stannel.model.trigger import Deferral, Trigger
from stannel.store import Store, connect
from stannel.store.dags import ParsedFile
from stannel.store.opening import prepare
from stannel.store.runs import NewRun, queued_runs, start_run, take_dirty
from stannel.store.sql import Row
from stannel.store.tasks import Without, apply_plan, instances_of, queue_instances, scheduled_instances
from stannel.store.vault import Vault

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = "Wm9vbS16b29tLXpvb20tem9vbS16b29tLXpvb20tem8="

_MOVES = {"dag_run": RUN_MOVES, "task_instance": TASK_MOVES, "attempt": ATTEMPT_MOVES, "trigger": TRIGGER_MOVES}
_MOVE_TABLE = "CREATE TABLE moves (noun TEXT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL)"
_SQLITE_TRIGGER = """CREATE TRIGGER note_{noun} AFTER UPDATE OF state ON "{noun}" WHEN old.state <> new.state
BEGIN INSERT INTO moves VALUES ('{noun}', old.state, new.state); END"""
_POSTGRES_FUNCTION = """CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO moves VALUES (TG_TABLE_NAME, old.state, new.state); RETURN NULL; END $$"""
_POSTGRES_TRIGGER = """CREATE TRIGGER note_{noun} AFTER UPDATE OF state ON "{noun}" FOR EACH ROW
WHEN (old.state IS DISTINCT FROM new.state) EXECUTE FUNCTION note_move()"""


def open_store(address: str, **options: Any) -> Store:
    """The store at an address, its tables made if they are missing."""
    database = connect(address, **options)
    prepare(database)
    return Store(database, Vault(KEY))


def note_moves(store: Store) -> None:
    """Have the database itself write down every change of a state."""
    with store.transaction() as tx:
        tx.change(text(_MOVE_TABLE))
        if not tx.is_sqlite:
            tx.change(text(_POSTGRES_FUNCTION))
        for noun in _MOVES:
            tx.change(text((_SQLITE_TRIGGER if tx.is_sqlite else _POSTGRES_TRIGGER).format(noun=noun)))


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def task(task_id: str, *, retries: int = 0, **fields: Any) -> TaskSpec:
    return TaskSpec(task_id=task_id, retry=Retry(retries=retries), **fields)


class World:
    """Verbs of a scheduler and of workers, in the words of a test."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def save(self, *specs: DagSpec, path: str = "dags.py", error: str | None = None, at: datetime = NOW) -> str | None:
        file = ParsedFile(path=path, fingerprint="1", dags=specs, error=error)
        return self.store.dags.save_file(file, now=at)

    def dag(self, *tasks: TaskSpec | str, dag_id: str = "d", **fields: Any) -> DagSpec:
        """A DAG of its own file, saved."""
        made = tuple(task(one) if isinstance(one, str) else one for one in tasks or ("a",))
        spec = DagSpec(dag_id=dag_id, fileloc=f"{dag_id}.py", tasks=made, **fields)
        self.save(spec, path=spec.fileloc)
        return spec

    def new_run(self, run_id: str = "r", *, dag_id: str = "d", **fields: Any) -> Run:
        """A queued run of the DAG's newest version."""
        version = self.store.dags.get(dag_id).version
        return self.store.runs.create(version, self.store.dags.spec(version), new_run(run_id, **fields), now=NOW)

    def start(self, at: datetime = NOW) -> None:
        """Start every queued run."""
        with self.store.transaction() as tx:
            for run_pk, _, _ in queued_runs(tx, to_micros(at)):
                start_run(tx, run_pk, now=to_micros(at), deadline=None)

    def schedule(self, at: datetime = NOW) -> None:
        """Plan every dirty run: whatever may start is scheduled."""
        with self.store.transaction() as tx:
            for run in take_dirty(tx, 100):
                spec = self.store.dags.spec(run.version)
                apply_plan(tx, run, spec, RunPlan(schedule=_startable(instances_of(tx, run.pk), at)), to_micros(at))

    def queue(self, at: datetime = NOW) -> int:
        """Queue everything that is scheduled."""
        with self.store.transaction() as tx:
            chosen = scheduled_instances(tx, 512, Without())
            queue_instances(tx, chosen, to_micros(at))
        return len(chosen)

    def advance(self, at: datetime = NOW) -> None:
        """Start, schedule and queue all there is."""
        self.start(at)
        self.schedule(at)
        self.queue(at)

    def claim(self, owner: str = "w", most: int = 100, at: datetime = NOW) -> list[Attempt]:
        return self.store.attempts.claim(owner, most=most, hostname="host", now=at)

    def running(self, *tasks: TaskSpec | str, owner: str = "w", **fields: Any) -> list[Attempt]:
        """The attempts of a fresh run, all of them running under a worker with a lease, in the order of the tasks."""
        self.dag(*tasks, **fields)
        self.new_run(dag_id=fields.get("dag_id", "d"))
        self.advance()
        self.lease(owner)
        return sorted(self.claim(owner), key=lambda one: one.ti_pk)

    def lease(self, owner: str = "w", at: datetime = NOW, seconds: float = 10) -> None:
        self.store.leases.take(owner, "worker", hostname="host", pid=1, now=at, seconds=seconds)

    def finish(self, attempt: Attempt, state: TaskState = TaskState.SUCCESS, **fields: Any) -> bool:
        return self.store.attempts.finish([(attempt, outcome(state, **fields))])[0]

    def defer(self, attempt: Attempt, classpath: str = "x.Y", *, at: datetime = NOW, **fields: Any) -> bool:
        """The attempt ends to wait for a trigger; goes on at `resume` unless told otherwise."""
        deferral = Deferral(classpath=classpath, **{"method": "resume", **fields})
        return self.finish(attempt, TaskState.DEFERRED, deferral=deferral, end_date=at)

    def deferred(self, *tasks: TaskSpec | str, **fields: Any) -> list[Attempt]:
        """The attempts of a fresh run, each of which has deferred to a trigger."""
        attempts = self.running(*tasks)
        for attempt in attempts:
            assert self.defer(attempt, **fields)
        return attempts

    def triggers(self, owner: str = "t", most: int = 100, at: datetime = NOW, **fields: Any) -> list[Trigger]:
        """Claimed by a triggerer that has a lease."""
        self.store.leases.take(owner, "triggerer", hostname="host", pid=1, now=at, seconds=10)
        return self.store.triggers.claim(owner, most=most, **{"queues": None, "now": at, **fields})

    def run(self, run_id: str = "r", dag_id: str = "d") -> Run:
        return self.store.runs.get(dag_id, run_id)

    def instances(self, run_id: str = "r", dag_id: str = "d") -> list[TaskInstance]:
        return self.store.tasks.of_run(self.run(run_id, dag_id))

    def instance(self, task_id: str = "a", **which: str) -> TaskInstance:
        return next(one for one in self.instances(**which) if one.task_id == task_id)

    def states(self, **which: str) -> dict[str, str]:
        return {one.task_id: str(one.state) for one in self.instances(**which)}

    def attempts(self, run_id: str = "r") -> list[tuple[str, int, str]]:
        """(task, try, state) of every attempt of a run, oldest first, in the order of the tasks."""
        found = self.store.attempts.of_run(self.run(run_id))
        return [(one.task_id, one.try_number, str(one.state)) for one in sorted(found, key=lambda one: one.ti_pk)]

    def sql(self, statement: str, **params: Any) -> list[Row]:
        """Rows of a plain statement."""
        with self.store.read() as tx:
            return tx.all(text(statement), **params)

    def plant(self, *statements: str) -> None:
        """Change the store behind the back of its verbs; what that breaks is the test's business."""
        with self.store.transaction() as tx:
            for statement in statements:
                tx.change(text(statement))
            tx.change(text("DELETE FROM moves"))

    def forbidden_moves(self) -> list[tuple[str, str, str]]:
        """Changes of state that happened and are not in the table of moves."""
        found = self.sql("SELECT DISTINCT noun, source, target FROM moves")
        return [(noun, source, target) for noun, source, target in found if target not in _allowed(noun)[source]]


def new_run(run_id: str = "r", **fields: Any) -> NewRun:
    given = {"run_type": RunType.MANUAL, "run_after": NOW, **fields}
    return NewRun(run_id=run_id, **given)


def scheduled_run(day: int) -> NewRun:
    """The run of a daily schedule for a day of March 2026."""
    start = datetime(2026, 3, day, tzinfo=UTC)
    interval = Interval(start, start + timedelta(days=1))
    return new_run(
        f"scheduled-{day}", run_type=RunType.SCHEDULED, logical_date=start, interval=interval, run_after=interval.end
    )


def outcome(state: TaskState, **fields: Any) -> Outcome:
    return Outcome(**{"state": state, "end_date": after(1), **fields})


def _startable(instances: Sequence[Any], at: datetime) -> list[int]:
    waiting = (TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE)
    due = [one for one in instances if one.state in waiting and (one.retry_at or 0) <= to_micros(at)]
    return [one.pk for one in instances if one.state is TaskState.NONE] + [one.pk for one in due]


def _allowed(noun: str) -> Mapping[Any, frozenset[Any]]:
    return _MOVES[noun]
