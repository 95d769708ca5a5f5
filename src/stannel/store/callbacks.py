"""Callbacks that must run in a process of their own: those of DAGs, and those of tasks whose process died."""

from datetime import datetime

import msgspec
from sqlalchemy import and_, bindparam, case, delete, select, update

from stannel.model.ids import new_id
from stannel.model.run import Attempt
from stannel.model.states import FAILURES
from stannel.store.database import WORKER, Database
from stannel.store.events import events_of_run
from stannel.store.runs import RUN_COLUMNS, to_run
from stannel.store.schema import callback, dag, dag_run, lease
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Row, Tx, insert_into, word, words

_QUEUED, _RUNNING = word("queued"), word("running")
_TIMEOUT_SECONDS = 300.0


class CallbackWork(msgspec.Struct, frozen=True):
    """A callback to be run, with the attempt it is about. `scope` is `dag` or `task`."""

    pk: int
    attempt: Attempt
    kind: str
    scope: str
    reason: str | None


_NEW = insert_into(callback, "run_pk", "ti_pk", "kind", "reason", "state", "created_at")
_claimable = (
    select(callback.c.pk)
    .where(callback.c.state == _QUEUED)
    .order_by(callback.c.pk)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
    .cte("claimable")
)
_CLAIM = (
    update(callback)
    .where(callback.c.pk.in_(select(_claimable.c.pk)))
    .values(state="running", owner=bindparam("holder"))
    .returning(callback.c.pk, callback.c.run_pk, callback.c.ti_pk, callback.c.kind, callback.c.reason)
)
_ANY = select(callback.c.pk).where(callback.c.state == _QUEUED).limit(1)
_DONE = delete(callback).where(callback.c.pk == bindparam("wanted"))
_is_lost = and_(
    callback.c.state == _RUNNING,
    callback.c.owner.not_in(select(lease.c.owner).where(lease.c.expires_at > bindparam("now"))),
)
_ANY_LOST = select(callback.c.pk).where(_is_lost).limit(1)
# A callback whose worker died may have run already; it runs again, for none at all would be worse.
_LOST = update(callback).where(_is_lost).values(state="queued", owner=None)
_RUN = select(*RUN_COLUMNS, dag.c.fileloc).join(dag, dag.c.dag_id == dag_run.c.dag_id)
_RUN = _RUN.where(dag_run.c.pk == bindparam("run"))
_INSTANCE = select(ti.c.pk, ti.c.task_id, ti.c.map_index, ti.c.try_number, ti.c.max_tries, ti.c.queue)
_ONE = _INSTANCE.where(ti.c.pk == bindparam("instance"))
# What a DAG's callback is told about: the task that failed first, or else the one that ended last.
_TELLING = (
    _INSTANCE.where(ti.c.run_pk == bindparam("run"))
    .order_by(
        case((ti.c.state.in_(words(sorted(FAILURES))), 0), else_=1),
        case((ti.c.state.in_(words(sorted(FAILURES))), ti.c.ended_at), else_=-ti.c.ended_at).nulls_last(),
    )
    .limit(1)
)


def request_callback(tx: Tx, run_pk: int, kind: str, *, now: int, reason: str | None, ti_pk: int | None = None) -> None:
    """Have a worker call what the author gave for this ending."""
    tx.run(_NEW, run_pk=run_pk, ti_pk=ti_pk, kind=kind, reason=reason, state="queued", created_at=now)
    tx.wake(WORKER)


def has_lost_callbacks(tx: Tx, now: int) -> bool:
    """Whether a worker died while it ran callbacks."""
    return tx.one(_ANY_LOST, now=now) is not None


def requeue_lost_callbacks(tx: Tx, now: int) -> int:
    """Queue the callbacks again whose worker died; how many there were."""
    return tx.run(_LOST, now=now)


class Callbacks:
    """Callbacks that wait for a worker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, owner: str, *, most: int, now: datetime) -> list[CallbackWork]:
        """Take up to `most` queued callbacks. Empty: none is queued."""
        with self._database.read() as tx:
            if tx.one(_ANY) is None:
                return []
        with self._database.transaction() as tx:
            rows = tx.all(_CLAIM, holder=owner, most=most)
            return [work for row in rows if (work := _to_work(tx, row, now)) is not None]

    def done(self, pk: int) -> None:
        """The callback ran, well or badly; it does not run again."""
        with self._database.transaction() as tx:
            tx.run(_DONE, wanted=pk)


def _to_work(tx: Tx, row: Row, now: datetime) -> CallbackWork | None:
    pk, run_pk, ti_pk, kind, reason = row
    run_row = tx.one(_RUN, run=run_pk)
    instance = tx.one(_TELLING, run=run_pk) if ti_pk is None else tx.one(_ONE, instance=ti_pk)
    if run_row is None or instance is None:
        tx.run(_DONE, wanted=pk)
        return None
    run = to_run(run_row)
    attempt = Attempt(
        attempt_id=new_id(),
        ti_pk=instance[0],
        run=run,
        task_id=instance[1],
        map_index=instance[2],
        try_number=max(instance[3], 1),
        max_tries=instance[4],
        queue=instance[5],
        fileloc=run_row[-1],
        start_date=now,
        execution_timeout=_TIMEOUT_SECONDS,
        events=events_of_run(tx, run),
    )
    return CallbackWork(pk, attempt, kind, "dag" if ti_pk is None else "task", reason)
