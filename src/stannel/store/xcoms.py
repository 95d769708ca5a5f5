"""XComs: what tasks leave for each other, one JSON text per run, task, map index and key."""

from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, func, select

from stannel.store.database import Database
from stannel.store.schema import dag_run, xcom
from stannel.store.sql import Tx, upsert


class XCom(msgspec.Struct, frozen=True):
    """One value, still as its JSON text."""

    task_id: str
    map_index: int
    key: str
    value: str


_PUT = upsert(xcom, "run_pk", "task_id", "map_index", "key", "value", "length", "created_at")
_OF_TASK = (xcom.c.run_pk == bindparam("run"), xcom.c.task_id == bindparam("task"), xcom.c.key == bindparam("name"))
_GET = select(xcom.c.value).where(*_OF_TASK, xcom.c.map_index == bindparam("index"))
_SERIES = select(xcom.c.value).where(*_OF_TASK, xcom.c.map_index >= 0).order_by(xcom.c.map_index)
_COUNT = select(func.count()).where(*_OF_TASK, xcom.c.map_index >= 0)
_DELETE = delete(xcom).where(*_OF_TASK, xcom.c.map_index == bindparam("index"))
# Only the latest earlier value counts, so the search ends at the first row of the run index, read backwards.
_PRIOR = (
    select(xcom.c.value)
    .join(dag_run, dag_run.c.pk == xcom.c.run_pk)
    .where(
        dag_run.c.dag_id == bindparam("dag"),
        dag_run.c.pk <= bindparam("run"),
        xcom.c.task_id == bindparam("task"),
        xcom.c.key == bindparam("name"),
        xcom.c.map_index == bindparam("index"),
    )
    .order_by(dag_run.c.pk.desc())
    .limit(1)
)
_FORGET = delete(xcom).where(
    xcom.c.run_pk == bindparam("run"), xcom.c.task_id == bindparam("task"), xcom.c.map_index == bindparam("index")
)
_LENGTHS = select(xcom.c.task_id, xcom.c.key, xcom.c.length).where(
    xcom.c.run_pk == bindparam("run"), xcom.c.length.is_not(None), xcom.c.map_index < 0
)
_SERIES_LENGTHS = (
    select(xcom.c.task_id, xcom.c.key, func.count())
    .where(xcom.c.run_pk == bindparam("run"), xcom.c.map_index >= 0)
    .group_by(xcom.c.task_id, xcom.c.key)
)
_RUN_PK = select(dag_run.c.pk).where(dag_run.c.dag_id == bindparam("dag"), dag_run.c.run_id == bindparam("wanted"))
_ALL = (
    select(xcom.c.task_id, xcom.c.map_index, xcom.c.key, xcom.c.value)
    .where(xcom.c.run_pk == bindparam("run"))
    .order_by(xcom.c.task_id, xcom.c.map_index, xcom.c.key)
)


def forget_xcoms(tx: Tx, run_pk: int, task_id: str, map_index: int) -> None:
    """A new try starts with nothing left over from the last one."""
    tx.run(_FORGET, run=run_pk, task=task_id, index=map_index)


def save_xcoms(tx: Tx, rows: list[dict[str, Any]]) -> None:
    """Store values, each over what was there before."""
    tx.each(_PUT, rows)


def mapped_lengths(tx: Tx, run_pk: int) -> dict[tuple[str, str], int]:
    """How many instances each value of this run would give a task mapped over it."""
    found = (*tx.all(_LENGTHS, run=run_pk), *tx.all(_SERIES_LENGTHS, run=run_pk))
    return {(task_id, key): length for task_id, key, length in found}


class XComs:
    """Reading and writing of XComs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run_pk(self, dag_id: str, run_id: str) -> int | None:
        with self._database.read() as tx:
            row = tx.one(_RUN_PK, dag=dag_id, wanted=run_id)
        return None if row is None else int(row[0])

    def put(self, rows: list[dict[str, Any]]) -> None:
        """Store values, each over what was there before."""
        with self._database.transaction() as tx:
            save_xcoms(tx, rows)

    def get(self, run_pk: int, task_id: str, map_index: int, key: str) -> str | None:
        """The JSON text. None: no such value."""
        with self._database.read() as tx:
            row = tx.one(_GET, run=run_pk, task=task_id, name=key, index=map_index)
        return None if row is None else str(row[0])

    def get_prior(self, dag_id: str, run_pk: int, task_id: str, map_index: int, key: str) -> str | None:
        """The value of this run, or else of the latest earlier run of the DAG that has one."""
        with self._database.read() as tx:
            row = tx.one(_PRIOR, dag=dag_id, run=run_pk, task=task_id, name=key, index=map_index)
        return None if row is None else str(row[0])

    def series(self, run_pk: int, task_id: str, key: str) -> list[str]:
        """The values of all instances of a mapped task, in the order of their map index."""
        with self._database.read() as tx:
            return [str(row[0]) for row in tx.all(_SERIES, run=run_pk, task=task_id, name=key)]

    def count(self, run_pk: int, task_id: str, key: str) -> int:
        with self._database.read() as tx:
            row = tx.one(_COUNT, run=run_pk, task=task_id, name=key)
        return int(row[0]) if row else 0

    def delete(self, run_pk: int, task_id: str, map_index: int, key: str) -> None:
        with self._database.transaction() as tx:
            tx.run(_DELETE, run=run_pk, task=task_id, name=key, index=map_index)

    def of_run(self, run_pk: int) -> list[XCom]:
        with self._database.read() as tx:
            return [XCom(*row) for row in tx.all(_ALL, run=run_pk)]
