"""Asset events as people and tasks read them: the past of an asset, and what a run consumed."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select

from stannel.errors import UnknownId, closest
from stannel.model.asset import AssetAt, AssetNamed, ConsumedEvent, EventSource, NewEvent, ThisAsset
from stannel.model.moments import from_micros, to_micros
from stannel.model.run import Run, RunType
from stannel.store.assets import resolve
from stannel.store.database import Database
from stannel.store.new_events import Registered, register_events
from stannel.store.schema import asset, asset_event, dag_run, event_alias, run_event
from stannel.store.sql import Row, Tx, among


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the store knows it, with the asset it is about."""

    pk: int
    name: str
    uri: str
    group: str
    asset_extra: dict[str, Any]
    identity: str
    happened_at: datetime
    stored_at: datetime
    extra: dict[str, Any]
    partition_key: str | None
    source: EventSource
    dag_id: str | None
    task_id: str | None
    run_id: str | None
    map_index: int | None
    repeats: int


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on the events that are asked for; all of them must hold."""

    of: ThisAsset | AssetNamed | AssetAt | None = None
    alias: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    partition_key: str | None = None
    ascending: bool = True
    limit: int | None = None


_EVENT = (
    asset_event.c.pk,
    asset.c.name,
    asset.c.uri,
    asset.c.grouped,
    asset.c.extra,
    asset_event.c.identity,
    asset_event.c.happened_at,
    asset_event.c.stored_at,
    asset_event.c.extra,
    asset_event.c.partition_key,
    asset_event.c.source,
    asset_event.c.source_dag_id,
    asset_event.c.source_task_id,
    asset_event.c.source_run_id,
    asset_event.c.source_map_index,
    asset_event.c.repeats,
)
_EVENTS = select(*_EVENT).join(asset, asset.c.pk == asset_event.c.asset_pk)
_OF_RUNS = (
    select(run_event.c.run_pk, *_EVENT)
    .select_from(run_event)
    .join(asset_event, asset_event.c.pk == run_event.c.event_pk)
    .join(asset, asset.c.pk == asset_event.c.asset_pk)
    .where(among(run_event.c.run_pk, "runs"), run_event.c.is_superseded == 0)
    .order_by(asset_event.c.happened_at, asset_event.c.pk)
)
_ALIASES = select(event_alias.c.event_pk, event_alias.c.alias).where(among(event_alias.c.event_pk, "events"))
_RUNS_OF = (
    select(run_event.c.event_pk, dag_run.c.dag_id, dag_run.c.run_id)
    .join(dag_run, dag_run.c.pk == run_event.c.run_pk)
    .where(among(run_event.c.event_pk, "events"))
    .order_by(run_event.c.event_pk, dag_run.c.pk)
)


def events_of_runs(tx: Tx, run_pks: Sequence[int]) -> dict[int, tuple[ConsumedEvent, ...]]:
    """The events that these runs consumed, in the order they happened."""
    rows = tx.all(_OF_RUNS, runs=sorted(set(run_pks)))
    aliases = aliases_of(tx, [row[1] for row in rows])
    found: dict[int, list[ConsumedEvent]] = {}
    for run_pk, *row in rows:
        found.setdefault(run_pk, []).append(_to_consumed(tuple(row), aliases.get(row[0], ())))
    return {run_pk: tuple(events) for run_pk, events in found.items()}


def events_of_run(tx: Tx, run: Run) -> tuple[ConsumedEvent, ...]:
    """The events that made a run; nothing is asked for when events did not make it."""
    return events_of_runs(tx, [run.pk]).get(run.pk, ()) if run.run_type is RunType.ASSET_TRIGGERED else ()


def aliases_of(tx: Tx, event_pks: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Through which aliases each of these events was emitted."""
    found: dict[int, tuple[str, ...]] = {}
    for pk, alias in tx.all(_ALIASES, events=list(event_pks)) if event_pks else ():
        found[pk] = (*found.get(pk, ()), alias)
    return found


class Events:
    """The events of all assets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, events: Sequence[NewEvent], *, now: datetime) -> list[Registered]:
        """Store events that somebody tells of; an asset nobody knows is refused, and then none of them is stored."""
        with self._database.transaction() as tx:
            for one in events:
                if resolve(tx, one.of) is None:
                    raise self._unknown(tx, one)
            return [one for one in register_events(tx, events, to_micros(now)) if one is not None]

    def of_run(self, run_pk: int) -> tuple[ConsumedEvent, ...]:
        """The events that a run consumed, in the order they happened."""
        with self._database.read() as tx:
            return events_of_runs(tx, [run_pk]).get(run_pk, ())

    def find(self, which: Which) -> list[StoredEvent]:
        """Past events of an asset or alias, by when they happened."""
        wanted = _EVENTS.where(*_conditions(which))
        order = (asset_event.c.happened_at, asset_event.c.pk)
        wanted = wanted.order_by(*(order if which.ascending else (one.desc() for one in order)))
        with self._database.read() as tx:
            return [_to_event(row) for row in tx.query(wanted.limit(which.limit))]

    def runs_of(self, event_pks: Iterable[int]) -> dict[int, list[tuple[str, str]]]:
        """DAG and id of the runs that consumed each of these events."""
        found: dict[int, list[tuple[str, str]]] = {}
        with self._database.read() as tx:
            for pk, dag_id, run_id in tx.all(_RUNS_OF, events=sorted(event_pks)):
                found.setdefault(pk, []).append((dag_id, run_id))
        return found

    def _unknown(self, tx: Tx, event: NewEvent) -> UnknownId:
        given = event.of.uri if isinstance(event.of, AssetAt) else event.of.name
        known = [row[0] for row in tx.query(select(asset.c.name))]
        return UnknownId("asset", given, closest(given, known))


def _conditions(which: Which) -> list[Any]:
    wanted: list[Any] = []
    match which.of:
        case ThisAsset(name, uri):
            wanted += [asset.c.name == name, asset.c.uri == uri]
        case AssetNamed(name):
            wanted.append(asset.c.name == name)
        case AssetAt(uri):
            wanted.append(asset.c.uri == uri)
        case None:
            pass
    if which.alias is not None:
        emitted = select(event_alias.c.event_pk).where(event_alias.c.alias == which.alias)
        wanted.append(asset_event.c.pk.in_(emitted))
    if which.after is not None:
        wanted.append(asset_event.c.happened_at >= to_micros(which.after))
    if which.before is not None:
        wanted.append(asset_event.c.happened_at <= to_micros(which.before))
    if which.partition_key is not None:
        wanted.append(asset_event.c.partition_key == which.partition_key)
    return wanted


def _to_event(row: Row) -> StoredEvent:
    return StoredEvent(
        pk=row[0],
        name=row[1],
        uri=row[2],
        group=row[3],
        asset_extra=msgspec.json.decode(row[4]),
        identity=row[5],
        happened_at=from_micros(row[6]),
        stored_at=from_micros(row[7]),
        extra=msgspec.json.decode(row[8]),
        partition_key=row[9],
        source=EventSource(row[10]),
        dag_id=row[11],
        task_id=row[12],
        run_id=row[13],
        map_index=row[14],
        repeats=row[15],
    )


def _to_consumed(row: Row, aliases: tuple[str, ...]) -> ConsumedEvent:
    event = _to_event(row)
    return ConsumedEvent(
        name=event.name,
        uri=event.uri,
        asset_extra=event.asset_extra,
        extra=event.extra,
        timestamp=event.happened_at,
        aliases=aliases,
        partition_key=event.partition_key,
        dag_id=event.dag_id,
        task_id=event.task_id,
        run_id=event.run_id,
        map_index=event.map_index,
    )
