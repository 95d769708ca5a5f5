"""State stores: keys and JSON texts that task instances and assets keep; what has expired is not there any more.

A late attempt's writes are refused: once a task instance has another attempt, only that one may write.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from sqlalchemy import ColumnElement, Table, bindparam, delete, func, or_, select, text, tuple_

from stannel.model.moments import from_micros, maybe_micros, maybe_moment, to_micros
from stannel.model.state_store import AssetScope, Change, Put, StateRefused, TaskScope, same_value
from stannel.model.states import TaskState
from stannel.store.database import Database
from stannel.store.schema import asset, asset_state, dag_run, task_state
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Row, Tx, among, upsert, word


class TaskKeeper(msgspec.Struct, frozen=True):
    """A task instance as the owner of keys. With an attempt: who writes for it, which must be its latest."""

    run_pk: int
    scope: TaskScope
    ti_pk: int | None = None
    attempt_id: str | None = None

    @property
    def place(self) -> dict[str, Any]:
        return {"run_pk": self.run_pk, "task_id": self.scope.task_id, "map_index": self.scope.map_index}


class AssetKeeper(msgspec.Struct, frozen=True):
    """An asset as the owner of keys. `writer` says who writes: its `kind`, and for a task which."""

    scope: AssetScope
    writer: Mapping[str, Any] = {}

    @property
    def place(self) -> dict[str, Any]:
        return {"asset_pk": self.scope.asset_id}


Keeper = TaskKeeper | AssetKeeper


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """A key with its value, as people look at it."""

    scope: TaskScope | AssetScope
    key: str
    value: Any
    updated_at: datetime
    expires_at: datetime | None = None
    writer: dict[str, Any] | None = None


class StateKeeping(Protocol):
    """What answers for the keys of tasks and assets: the database, or a backend that somebody configured."""

    def get(self, keeper: Keeper, key: str, *, now: datetime) -> str | None:
        """The JSON text. None: there is no such key, or it has expired."""

    def change(self, keeper: Keeper, change: Change, *, now: datetime) -> bool:
        """Make all changes, or none and say False: something is not as expected. Late attempts are refused."""

    def clear(self, keeper: Keeper) -> None:
        """Forget every key of this owner."""

    def succeeded(self, keeper: TaskKeeper) -> None:
        """Its task has succeeded, and the store knows it."""


class _Statements:
    """What is said to the table of one kind of owner."""

    def __init__(self, table: Table, place: Sequence[str], more: str, alive: ColumnElement[bool] | None) -> None:
        here = [table.c[name] == bindparam(name) for name in place]
        living = [] if alive is None else [alive]
        this = table.c.key == bindparam("key")
        columns = (*place, "key", "value", "updated_at", more)
        names, values = ", ".join(columns), ", ".join(f":{name}" for name in columns)
        self.get = select(table.c.value).where(*here, this, *living)
        self.lock = select(table.c.key, table.c.value).where(*here, among(table.c.key, "keys"), *living)
        self.lock = self.lock.order_by(table.c.key).with_for_update()
        self.put = upsert(table, *columns)
        # Until the transaction ends nobody else can put this key. No row comes back if somebody has.
        self.hold = text(
            f"INSERT INTO {table.name} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING RETURNING updated_at"
        )
        self.bury = None
        if alive is not None:
            expired = table.c.expires_at <= bindparam("now")
            self.bury = delete(table).where(*here, among(table.c.key, "keys"), expired)
        self.remove = delete(table).where(*here, this)
        self.clear = delete(table).where(*here)


_is_alive = or_(task_state.c.expires_at.is_(None), task_state.c.expires_at > bindparam("now"))
_TASK = _Statements(task_state, ("run_pk", "task_id", "map_index"), "expires_at", _is_alive)
_ASSET = _Statements(asset_state, ("asset_pk",), "writer", None)
_ATTEMPT = select(ti.c.attempt_id).where(ti.c.pk == bindparam("instance"))
_FORGET_SUCCESSES = delete(task_state).where(
    tuple_(task_state.c.run_pk, task_state.c.task_id, task_state.c.map_index).in_(
        select(ti.c.run_pk, ti.c.task_id, ti.c.map_index).where(
            among(ti.c.pk, "pks"), ti.c.state == word(TaskState.SUCCESS)
        )
    )
)
_EXPIRED = task_state.c.expires_at.is_not(None) & (task_state.c.expires_at <= bindparam("now"))
_COUNT_EXPIRED = select(func.count()).select_from(task_state).where(_EXPIRED)
_key = tuple_(task_state.c.run_pk, task_state.c.task_id, task_state.c.map_index, task_state.c.key)
_DELETE_EXPIRED = delete(task_state).where(
    _key.in_(
        select(task_state.c.run_pk, task_state.c.task_id, task_state.c.map_index, task_state.c.key)
        .where(_EXPIRED)
        .order_by(task_state.c.expires_at)
        .limit(bindparam("most"))
    ),
    _EXPIRED,
)
_OF_TASKS = select(
    dag_run.c.dag_id,
    dag_run.c.run_id,
    task_state.c.task_id,
    task_state.c.map_index,
    task_state.c.key,
    task_state.c.value,
    task_state.c.updated_at,
    task_state.c.expires_at,
).join(dag_run, dag_run.c.pk == task_state.c.run_pk)
_OF_ASSETS = select(
    asset.c.pk,
    asset.c.name,
    asset.c.uri,
    asset_state.c.key,
    asset_state.c.value,
    asset_state.c.updated_at,
    asset_state.c.writer,
).join(asset, asset.c.pk == asset_state.c.asset_pk)


class _NotAsExpected(Exception):
    """Undoes the transaction of a change that is not to be made."""


def _of(keeper: Keeper) -> _Statements:
    return _TASK if isinstance(keeper, TaskKeeper) else _ASSET


def forget_successes(tx: Tx, ti_pks: Iterable[int]) -> None:
    """Forget the keys of those among these instances that have succeeded, in the transaction that says so."""
    tx.run(_FORGET_SUCCESSES, pks=list(ti_pks))


def save_asset_state(tx: Tx, keeper: AssetKeeper, values: Mapping[str, Any], now: int) -> None:
    """Store values with an asset, in the transaction of whatever they belong to; a value of None forgets its key."""
    change = Change(
        put={key: Put(msgspec.json.encode(value).decode()) for key, value in values.items() if value is not None},
        remove=tuple(key for key, value in values.items() if value is None),
    )
    _apply(tx, keeper, change, now)


def _apply(tx: Tx, keeper: Keeper, change: Change, now: int) -> None:
    statements, place = _of(keeper), keeper.place
    if change.expect or len(change.put) + len(change.remove) > 1:
        _expect(tx, keeper, change, now)
    rows = [_row(keeper, key, now, one.value, maybe_micros(one.expires_at)) for key, one in sorted(change.put.items())]
    tx.each(statements.put, rows)
    held = {key for key, value in change.expect.items() if value is None} - change.put.keys()
    for key in sorted({*change.remove, *held}):
        tx.run(statements.remove, **place, key=key)


def _expect(tx: Tx, keeper: Keeper, change: Change, now: int) -> None:
    """Lock what is to change, in one order for everybody, and compare it with what is expected."""
    statements, place = _of(keeper), keeper.place
    moment = {} if statements.bury is None else {"now": now}
    if statements.bury is not None:
        tx.run(statements.bury, **place, keys=change.keys, **moment)
    found: dict[str, str] = dict(tx.all(statements.lock, **place, keys=change.keys, **moment))
    for key in sorted(change.expect):
        wanted = change.expect[key]
        if wanted is None:
            # Expired from the first, so that it never shows.
            if key in found or tx.one(statements.hold, **_row(keeper, key, now, "null", now)) is None:
                raise _NotAsExpected
        elif key not in found or not same_value(found[key], wanted):
            raise _NotAsExpected


def _row(keeper: Keeper, key: str, now: int, value: str, expires_at: int | None) -> dict[str, Any]:
    common = {**keeper.place, "key": key, "value": value, "updated_at": now}
    if isinstance(keeper, TaskKeeper):
        return {**common, "expires_at": expires_at}
    return {**common, "writer": msgspec.json.encode(dict(keeper.writer)).decode()}


def _check_attempt(tx: Tx, keeper: Keeper) -> None:
    if not isinstance(keeper, TaskKeeper) or keeper.ti_pk is None:
        return
    row = tx.one(_ATTEMPT, instance=keeper.ti_pk)
    if row is None:
        raise StateRefused("The task instance or its run is gone; nothing was stored.", status=404)
    if row[0] != keeper.attempt_id:
        raise StateRefused("Another attempt at this task has begun; nothing of this one is stored.", status=409)


class StateStores:
    """The keys of tasks and assets in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, keeper: Keeper, key: str, *, now: datetime) -> str | None:
        """The JSON text. None: there is no such key, or it has expired."""
        moment = {"now": to_micros(now)} if isinstance(keeper, TaskKeeper) else {}
        with self._database.read() as tx:
            row = tx.one(_of(keeper).get, **keeper.place, key=key, **moment)
        return None if row is None else str(row[0])

    def change(self, keeper: Keeper, change: Change, *, now: datetime) -> bool:
        """Make all changes in one transaction. False: something is not as expected, nothing was changed."""
        try:
            with self._database.transaction() as tx:
                _check_attempt(tx, keeper)
                _apply(tx, keeper, change, to_micros(now))
        except _NotAsExpected:
            return False
        return True

    def clear(self, keeper: Keeper) -> None:
        """Forget every key of this owner."""
        with self._database.transaction() as tx:
            _check_attempt(tx, keeper)
            tx.run(_of(keeper).clear, **keeper.place)

    def succeeded(self, keeper: TaskKeeper) -> None:
        """Nothing is left to do: what a success clears was cleared in its own transaction."""

    # --- for people --------------------------------------------------------------------------------------------------

    def of_tasks(
        self, *, now: datetime, dag_id: str | None = None, run_id: str | None = None, task_id: str | None = None,
        limit: int | None = None,
    ) -> list[StoredState]:  # fmt: skip
        """The keys of task instances that have not expired."""
        moment = to_micros(now)
        query = _OF_TASKS.where(or_(task_state.c.expires_at.is_(None), task_state.c.expires_at > moment))
        for column, wanted in ((dag_run.c.dag_id, dag_id), (dag_run.c.run_id, run_id), (task_state.c.task_id, task_id)):
            if wanted is not None:
                query = query.where(column == wanted)
        order = (task_state.c.run_pk, task_state.c.task_id, task_state.c.map_index, task_state.c.key)
        with self._database.read() as tx:
            return [_task_state(row) for row in tx.query(query.order_by(*order).limit(limit))]

    def of_assets(self, *, name: str | None = None, limit: int | None = None) -> list[StoredState]:
        """The keys of assets."""
        query = _OF_ASSETS if name is None else _OF_ASSETS.where(asset.c.name == name)
        with self._database.read() as tx:
            return [_asset_state(row) for row in tx.query(query.order_by(asset.c.name, asset_state.c.key).limit(limit))]

    def expired(self, now: datetime) -> int:
        """How many keys have expired and are still there."""
        with self._database.read() as tx:
            row = tx.one(_COUNT_EXPIRED, now=to_micros(now))
        return int(row[0]) if row else 0

    def delete_expired(self, now: datetime, most: int) -> int:
        """Delete some keys that have expired. Fewer than `most`: none is left."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE_EXPIRED, now=to_micros(now), most=most)


def _task_state(row: Row) -> StoredState:
    dag_id, run_id, task_id, map_index, key, value, updated, expires = row
    return StoredState(
        scope=TaskScope(dag_id, run_id, task_id, map_index),
        key=key,
        value=msgspec.json.decode(value),
        updated_at=from_micros(updated),
        expires_at=maybe_moment(expires),
    )


def _asset_state(row: Row) -> StoredState:
    pk, name, uri, key, value, updated, writer = row
    return StoredState(
        scope=AssetScope(pk, name, uri),
        key=key,
        value=msgspec.json.decode(value),
        updated_at=from_micros(updated),
        writer=msgspec.json.decode(writer),
    )
