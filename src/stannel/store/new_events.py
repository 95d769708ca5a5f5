"""Asset events come in: stored once, and queued in the same transaction for every DAG that waits for them."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, bindparam, select, text, union_all, update

from stannel.model.asset import AssetAt, AssetNamed, Emitted, EventSource, NewEvent, ThisAsset
from stannel.model.ids import new_id
from stannel.model.moments import maybe_micros
from stannel.store.assets import SCHEDULE, StoredAsset, resolve, settle_activity
from stannel.store.database import SCHEDULER
from stannel.store.schema import asset_event, asset_reference
from stannel.store.sql import Row, Tx, among, word
from stannel.store.watchers import settle_wanted

log = logging.getLogger(__name__)


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event: its number, whether it is new, and the DAGs it waits for now."""

    pk: int
    asset: StoredAsset
    is_new: bool
    dag_ids: tuple[str, ...] = ()


# No row comes back if the asset has an event of that identity already.
_NEW = text(
    "INSERT INTO asset_event (asset_pk, identity, happened_at, stored_at, extra, partition_key, source, source_dag_id,"
    " source_task_id, source_run_id, source_map_index) VALUES (:asset_pk, :identity, :happened_at, :stored_at, :extra,"
    " :partition_key, :source, :source_dag_id, :source_task_id, :source_run_id, :source_map_index)"
    " ON CONFLICT (asset_pk, identity) DO NOTHING RETURNING pk"
)
# One statement for all of them: a session that stands still between the parts of a pipeline cannot be told from one
# that works, and would keep its locks from those who take its work over.
_NEW_ALL = text(
    "INSERT INTO asset_event (asset_pk, identity, happened_at, stored_at, extra, partition_key, source, source_dag_id,"
    " source_task_id, source_run_id, source_map_index) SELECT asset_pk, identity, happened_at, stored_at, extra,"
    " partition_key, source, source_dag_id, source_task_id, source_run_id, source_map_index"
    " FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS given(asset_pk bigint, identity text, happened_at bigint,"
    " stored_at bigint, extra text, partition_key text, source text, source_dag_id text, source_task_id text,"
    " source_run_id text, source_map_index integer)"
    " ON CONFLICT (asset_pk, identity) DO NOTHING RETURNING pk, asset_pk, identity"
)
_QUEUE_ALL = text(
    "INSERT INTO event_queue (dag_id, event_pk) SELECT dag_id, event_pk"
    " FROM jsonb_to_recordset(CAST(:places AS jsonb)) AS given(dag_id text, event_pk bigint) ON CONFLICT DO NOTHING"
)
_TOLD_AGAIN = (
    update(asset_event)
    .where(asset_event.c.asset_pk == bindparam("asset"), asset_event.c.identity == bindparam("known"))
    .values(repeats=asset_event.c.repeats + 1)
    .returning(asset_event.c.pk)
)
_NEW_ASSET = text(
    "INSERT INTO asset (name, uri, extra, created_at) VALUES (:name, :uri, :extra, :now) ON CONFLICT DO NOTHING"
)
_NEW_ALIAS = text("INSERT INTO asset_alias (name) VALUES (:name) ON CONFLICT DO NOTHING")
_NEW_ALIAS_ASSET = text(
    "INSERT INTO alias_asset (alias, asset_pk) VALUES (:alias, :asset_pk) ON CONFLICT DO NOTHING RETURNING asset_pk"
)
_NEW_EVENT_ALIAS = text("INSERT INTO event_alias (alias, event_pk) VALUES (:alias, :event_pk) ON CONFLICT DO NOTHING")
_QUEUE = text("INSERT INTO event_queue (dag_id, event_pk) VALUES (:dag_id, :event_pk) ON CONFLICT DO NOTHING")


def _waiting_dags(*conditions: Any) -> Select[Any]:
    scheduled = asset_reference.c.role == word(SCHEDULE)
    return select(asset_reference.c.dag_id, asset_reference.c.takes_keys).where(scheduled, *conditions)


_ref = asset_reference.c
_TARGETS = union_all(
    _waiting_dags(_ref.kind == word("asset"), _ref.name == bindparam("name"), _ref.uri == bindparam("uri")),
    _waiting_dags(_ref.kind == word("name"), _ref.name == bindparam("name")),
    _waiting_dags(_ref.kind == word("uri"), _ref.uri == bindparam("uri")),
    _waiting_dags(_ref.kind == word("alias"), among(_ref.name, "aliases")),
)


def register_events(tx: Tx, events: Sequence[NewEvent], now: int) -> list[Registered | None]:
    """Store events and queue each for the DAGs scheduled on its asset. None: nobody knows the asset it names.

    An event that is there already is only counted. Queued for paused DAGs, too: it waits for them.
    """
    found: dict[ThisAsset | AssetNamed | AssetAt, StoredAsset | None] = {}
    for one in events:
        if one.of not in found:
            found[one.of] = _asset_of(tx, one, now)
    assets = [found[one.of] for one in events]
    known = [(event, asset) for event, asset in zip(events, assets, strict=True) if asset is not None]
    rows = _insert(tx, [_event_row(event, asset, now) for event, asset in known])
    registered = iter(_settled(tx, [(*pair, row) for pair, row in zip(known, rows, strict=True)]))
    return [None if asset is None else next(registered) for asset in assets]


def _insert(tx: Tx, rows: Sequence[dict[str, Any]]) -> list[Row | None]:
    """The number of each event. None: it is there already."""
    if tx.is_sqlite or not rows:
        return tx.each_row(_NEW, rows)
    stored = {(asset_pk, identity): (pk,) for pk, asset_pk, identity in tx.all(_NEW_ALL, events=_json(rows))}
    return [stored.pop((row["asset_pk"], row["identity"]), None) for row in rows]


class TaskSource(msgspec.Struct, frozen=True):
    """The attempt at a task that emitted events; an attempt succeeds only once, so its id names them."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    attempt_id: str


def emit_outlets(tx: Tx, emitted: Sequence[Emitted], source: TaskSource, now: int) -> None:
    """Register what a task that succeeded says about its outlets."""
    events = [_by_task(source, one, number) for number, one in enumerate(emitted)]
    for event, found in zip(events, register_events(tx, events, now), strict=True):
        if found is None:
            log.warning("%s / %s updates %s, which no DAG defines: no event", source.dag_id, source.task_id, event.of)


def _by_task(source: TaskSource, one: Emitted, number: int) -> NewEvent:
    return NewEvent(
        of=one.of,
        source=EventSource.TASK,
        extra=one.extra,
        asset_extra=one.asset_extra,
        identity=f"{source.attempt_id}/{number}",
        partition_key=one.partition_key,
        aliases=one.aliases,
        dag_id=source.dag_id,
        task_id=source.task_id,
        run_id=source.run_id,
        map_index=source.map_index,
    )


def _settled(tx: Tx, stored: Sequence[tuple[NewEvent, StoredAsset, Row | None]]) -> list[Registered]:
    registered = []
    targets = _Targets(tx)
    queued: list[dict[str, Any]] = []
    for event, found, row in stored:
        if row is None:
            again = tx.one(_TOLD_AGAIN, asset=found.pk, known=event.identity)
            registered.append(Registered(pk=again[0] if again else 0, asset=found, is_new=False))
            continue
        _note_aliases(tx, event, found, row[0])
        dag_ids = targets.of(event, found)
        queued += [{"dag_id": dag_id, "event_pk": row[0]} for dag_id in dag_ids]
        registered.append(Registered(pk=row[0], asset=found, is_new=True, dag_ids=dag_ids))
    if queued:
        _queue(tx, queued)
        tx.wake(SCHEDULER)
    return registered


def _queue(tx: Tx, places: Sequence[dict[str, Any]]) -> None:
    if tx.is_sqlite:
        tx.each(_QUEUE, places)
    else:
        tx.run(_QUEUE_ALL, places=_json(places))


class _Targets:
    """The DAGs that wait for an asset; asked for once for all events of a transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._known: dict[tuple[int, tuple[str, ...]], list[tuple[str, bool]]] = {}

    def of(self, event: NewEvent, found: StoredAsset) -> tuple[str, ...]:
        key = (found.pk, event.aliases)
        if (dags := self._known.get(key)) is None:
            rows = self._tx.all(_TARGETS, name=found.name, uri=found.uri, aliases=list(event.aliases))
            dags = self._known[key] = sorted({(dag_id, bool(takes_keys)) for dag_id, takes_keys in rows})
        # A task that updates single partitions means DAGs that deal with partitions; the key of a message from
        # outside is nothing but its key.
        is_partition = event.partition_key is not None and event.source is not EventSource.WATCHER
        return tuple(dag_id for dag_id, takes_keys in dags if takes_keys or not is_partition)


def _asset_of(tx: Tx, event: NewEvent, now: int) -> StoredAsset | None:
    found = resolve(tx, event.of)
    if found is not None or not isinstance(event.of, ThisAsset):
        return found
    # A task may emit through an alias what no DAG file has ever named.
    tx.run(_NEW_ASSET, name=event.of.name, uri=event.of.uri, extra=_json(event.asset_extra), now=now)
    return resolve(tx, event.of)


def _note_aliases(tx: Tx, event: NewEvent, found: StoredAsset, event_pk: int) -> None:
    for alias in event.aliases:
        tx.run(_NEW_ALIAS, name=alias)
        tx.run(_NEW_EVENT_ALIAS, alias=alias, event_pk=event_pk)
        if tx.one(_NEW_ALIAS_ASSET, alias=alias, asset_pk=found.pk) is not None:
            settle_activity(tx, [found.pk])
            settle_wanted(tx, [found.pk])


def _event_row(event: NewEvent, found: StoredAsset, now: int) -> dict[str, Any]:
    return {
        "asset_pk": found.pk,
        "identity": event.identity if event.identity is not None else new_id(),
        "happened_at": maybe_micros(event.timestamp) or now,
        "stored_at": now,
        "extra": _json(event.extra),
        "partition_key": event.partition_key,
        "source": event.source.value,
        "source_dag_id": event.dag_id,
        "source_task_id": event.task_id,
        "source_run_id": event.run_id,
        "source_map_index": event.map_index,
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
