"""What running tasks may ask about other runs and tasks."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, bindparam, func, select

from stannel.model.ids import UNMAPPED
from stannel.model.moments import to_micros
from stannel.model.run import Run, TaskInstance
from stannel.model.states import RunState
from stannel.store.database import Database
from stannel.store.runs import RUN_COLUMNS, to_run
from stannel.store.schema import dag_run, rendered_fields
from stannel.store.schema import task_instance as ti
from stannel.store.sql import upsert
from stannel.store.tasks import INSTANCE_COLUMNS, to_instance


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs and task instances a question is about; None leaves a side open."""

    dag_id: str
    logical_dates: Sequence[datetime] | None = None
    run_ids: Sequence[str] | None = None
    states: Sequence[str] | None = None
    task_ids: Sequence[str] | None = None
    map_index: int | None = None


_ENDED = select(dag_run.c.pk, dag_run.c.dag_id).where(dag_run.c.ended_at >= bindparam("since"))
_SAVE_FIELDS = upsert(rendered_fields, "ti_pk", "fields")


class Questions:
    """Read-only, but for what a task says of itself."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def previous_run(self, dag_id: str, before: datetime, state: RunState | None) -> Run | None:
        """The run with the nearest earlier logical date, in that state if one is given."""
        wanted = (
            select(*RUN_COLUMNS)
            .where(dag_run.c.dag_id == dag_id, dag_run.c.logical_date < to_micros(before))
            .order_by(dag_run.c.logical_date.desc())
            .limit(1)
        )
        if state is not None:
            wanted = wanted.where(dag_run.c.state == str(state))
        with self._database.read() as tx:
            rows = tx.query(wanted)
        return to_run(rows[0]) if rows else None

    def previous_instance(self, which: Which, before: datetime | None) -> TaskInstance | None:
        """The latest earlier instance of a task."""
        wanted = (
            select(*INSTANCE_COLUMNS)
            .join(dag_run, dag_run.c.pk == ti.c.run_pk)
            .where(*_of_instances(which))
            .order_by(dag_run.c.logical_date.desc().nulls_last(), ti.c.pk.desc())
            .limit(1)
        )
        if before is not None:
            wanted = wanted.where(dag_run.c.logical_date < to_micros(before))
        with self._database.read() as tx:
            rows = tx.query(wanted)
        return to_instance(rows[0]) if rows else None

    def count_runs(self, which: Which) -> int:
        wanted = select(func.count()).select_from(dag_run).where(*_of_runs(which))
        if which.states:
            wanted = wanted.where(dag_run.c.state.in_(list(which.states)))
        with self._database.read() as tx:
            return int(tx.query(wanted)[0][0])

    def count_instances(self, which: Which) -> int:
        wanted = select(func.count()).select_from(ti).join(dag_run, dag_run.c.pk == ti.c.run_pk)
        with self._database.read() as tx:
            return int(tx.query(wanted.where(*_of_instances(which)))[0][0])

    def instance_states(self, which: Which) -> dict[str, dict[str, str | None]]:
        """By run id, then by task id (with its map index): the state."""
        wanted = (
            select(dag_run.c.run_id, ti.c.task_id, ti.c.map_index, ti.c.state)
            .join(dag_run, dag_run.c.pk == ti.c.run_pk)
            .where(*_of_instances(which))
        )
        states: dict[str, dict[str, str | None]] = {}
        with self._database.read() as tx:
            for run_id, task_id, index, state in tx.query(wanted):
                name = task_id if index == UNMAPPED else f"{task_id}_{index}"
                states.setdefault(run_id, {})[name] = None if state == "none" else state
        return states

    def ended_runs(self, since: datetime) -> list[tuple[int, str]]:
        """The number and the DAG of every run that ended since."""
        with self._database.read() as tx:
            return [(pk, dag_id) for pk, dag_id in tx.all(_ENDED, since=to_micros(since))]

    def save_rendered(self, ti_pk: int, fields: str) -> None:
        """Keep what the task's templates became, for people to look at."""
        with self._database.transaction() as tx:
            tx.run(_SAVE_FIELDS, ti_pk=ti_pk, fields=fields)

    def rendered(self, ti_pk: int) -> str | None:
        with self._database.read() as tx:
            rows = tx.query(select(rendered_fields.c.fields).where(rendered_fields.c.ti_pk == ti_pk))
        return rows[0][0] if rows else None


def _of_runs(which: Which) -> list[ColumnElement[bool]]:
    wanted = [dag_run.c.dag_id == which.dag_id]
    if which.run_ids:
        wanted.append(dag_run.c.run_id.in_(list(which.run_ids)))
    if which.logical_dates:
        wanted.append(dag_run.c.logical_date.in_([to_micros(date) for date in which.logical_dates]))
    return wanted


def _of_instances(which: Which) -> list[ColumnElement[bool]]:
    wanted = _of_runs(which)
    if which.task_ids is not None:
        wanted.append(ti.c.task_id.in_(list(which.task_ids)))
    if which.map_index is not None:
        wanted.append(ti.c.map_index == which.map_index)
    if which.states:
        wanted.append(ti.c.state.in_(list(which.states)))
    return wanted
