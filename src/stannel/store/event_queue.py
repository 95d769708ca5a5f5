"""Events that wait for DAGs, as schedulers see them: looked at when one is new, taken by the run that consumes them."""

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import bindparam, delete, exists, func, or_, select, update

from stannel.model.run import RunType
from stannel.store.assets import SCHEDULE, refers_to
from stannel.store.dags import DagStatus, locked_dags
from stannel.store.database import Database
from stannel.store.schema import (
    alias_asset,
    asset,
    asset_event,
    asset_reference,
    dag,
    dag_run,
    event_queue,
    run_event,
)
from stannel.store.sql import Tx, among, insert_into, word, words


class QueuedEvent(msgspec.Struct, frozen=True):
    """An event that waits for a DAG. Moments are microseconds."""

    event_pk: int
    arrived: int
    asset_pk: int
    name: str
    uri: str
    partition_key: str | None


_is_new = event_queue.c.is_new == 1
_may_run = (dag.c.is_active == 1, dag.c.is_paused == 0, dag.c.is_broken == 0)
_DAGS_WITH_NEWS = select(event_queue.c.dag_id).where(_is_new).group_by(event_queue.c.dag_id).limit(bindparam("most"))
_DAGS_DUE = select(dag.c.dag_id).where(
    dag.c.events_at.is_not(None), dag.c.events_at <= bindparam("now"), *_may_run
).limit(bindparam("most"))  # fmt: skip
_NEXT = select(
    select(event_queue.c.event_pk).where(_is_new).limit(1).scalar_subquery(),
    select(func.min(dag.c.events_at)).where(dag.c.events_at.is_not(None), *_may_run).scalar_subquery(),
)
_KNOWN = select(dag.c.dag_id).where(among(dag.c.dag_id, "ids"))
_SEEN = update(event_queue).where(event_queue.c.dag_id == bindparam("wanted"), _is_new).values(is_new=0)
_LOOK_AGAIN = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(events_at=bindparam("moment"), events_held=bindparam("held"))
)
_WAITING = (
    select(
        event_queue.c.event_pk,
        asset_event.c.stored_at,
        asset.c.pk,
        asset.c.name,
        asset.c.uri,
        asset_event.c.partition_key,
    )
    .join(asset_event, asset_event.c.pk == event_queue.c.event_pk)
    .join(asset, asset.c.pk == asset_event.c.asset_pk)
    .where(
        event_queue.c.dag_id == bindparam("wanted"),
        or_(asset_event.c.partition_key.is_(None), ~among(asset_event.c.partition_key, "without")),
    )
    .order_by(event_queue.c.event_pk)
    .limit(bindparam("most"))
)
_was_consumed = exists().where(
    run_event.c.event_pk == event_queue.c.event_pk, run_event.c.dag_id == event_queue.c.dag_id
)
_DROP_CONSUMED = delete(event_queue).where(
    event_queue.c.dag_id == bindparam("wanted"), event_queue.c.is_replay == 0, _was_consumed
)
_DROP_ALL = delete(event_queue).where(event_queue.c.dag_id == bindparam("wanted"))
_TAKE = delete(event_queue).where(event_queue.c.dag_id == bindparam("wanted"), among(event_queue.c.event_pk, "events"))
_CONSUME = insert_into(run_event, "dag_id", "run_pk", "event_pk", "is_superseded")
_BACKLOG = (
    select(asset_event.c.pk)
    .join(asset, asset.c.pk == asset_event.c.asset_pk)
    .where(
        exists().where(
            asset_reference.c.dag_id == bindparam("wanted"),
            asset_reference.c.role == word(SCHEDULE),
            refers_to(asset_reference),
        ),
        ~exists().where(run_event.c.event_pk == asset_event.c.pk, run_event.c.dag_id == bindparam("wanted")),
    )
    .order_by(asset_event.c.pk)
)
_ALIASES = select(alias_asset.c.asset_pk, alias_asset.c.alias).where(among(alias_asset.c.asset_pk, "pks"))
_RECENT = (
    select(dag_run.c.queued_at)
    .where(dag_run.c.dag_id == bindparam("wanted"), dag_run.c.run_type == word(RunType.ASSET_TRIGGERED))
    .order_by(dag_run.c.pk.desc())
    .limit(bindparam("most"))
)
_BUSY_KEYS = (
    select(dag_run.c.partition_key)
    .where(
        dag_run.c.dag_id == bindparam("wanted"),
        dag_run.c.state.in_(words(["queued", "running"])),
        dag_run.c.run_type == word(RunType.ASSET_TRIGGERED),
    )
    .group_by(dag_run.c.partition_key)
)
_COUNTS = (
    select(event_queue.c.dag_id, asset.c.name, func.count(), func.min(asset_event.c.stored_at))
    .join(asset_event, asset_event.c.pk == event_queue.c.event_pk)
    .join(asset, asset.c.pk == asset_event.c.asset_pk)
    .group_by(event_queue.c.dag_id, asset.c.name)
    .order_by(event_queue.c.dag_id, asset.c.name)
)

# More than can ever wait.
_NO_LIMIT = 2**62


def dags_to_look_at(tx: Tx, now: int, most: int) -> list[DagStatus]:
    """DAGs for which events may have become runs, locked; what is new for them is not new afterwards.

    A DAG that cannot run now is among them, too: its events wait until it can.
    """
    wanted = {row[0] for row in (*tx.all(_DAGS_WITH_NEWS, most=most), *tx.all(_DAGS_DUE, now=now, most=most))}
    if not wanted:
        return []
    found = locked_dags(tx, sorted(wanted))
    if len(found) < len(wanted):
        known = {row[0] for row in tx.all(_KNOWN, ids=sorted(wanted))}
        tx.each(_DROP_ALL, [{"wanted": dag_id} for dag_id in sorted(wanted - known)])
    # Marked before the queue is read: an event that is committed in between stays new, and is looked at again.
    tx.each(_SEEN, [{"wanted": status.dag_id} for status in found])
    return found


def next_look(tx: Tx) -> int | None:
    """When a scheduler should look at waiting events: 0 when one is new. None: not before something happens."""
    row = tx.one(_NEXT)
    assert row is not None
    return 0 if row[0] is not None else row[1]


def look_again(tx: Tx, dag_id: str, *, at: int | None, when_a_run_ends: bool = False) -> None:
    """Remember when to look at the DAG's events next, besides when one arrives."""
    tx.run(_LOOK_AGAIN, wanted=dag_id, moment=at, held=int(when_a_run_ends))


def waiting_events(
    tx: Tx, dag_id: str, *, without_keys: Iterable[str] = (), most: int | None = None
) -> list[QueuedEvent]:
    """The events that wait for a DAG, the oldest first."""
    rows = tx.all(_WAITING, wanted=dag_id, without=sorted(without_keys), most=_NO_LIMIT if most is None else most)
    return [QueuedEvent(*row) for row in rows]


def drop_consumed(tx: Tx, dag_id: str) -> None:
    """Take events off the queue that a run of the DAG consumed before they arrived there."""
    tx.run(_DROP_CONSUMED, wanted=dag_id)


def drop_queue(tx: Tx, dag_id: str) -> int:
    """No event waits for this DAG any more; how many did."""
    return tx.run(_DROP_ALL, wanted=dag_id)


def consume_events(tx: Tx, dag_id: str, run_pk: int, event_pks: Sequence[int], superseded: Sequence[int] = ()) -> None:
    """These events made this run, and wait no longer."""
    taken = [(pk, 0) for pk in event_pks] + [(pk, 1) for pk in superseded]
    rows = [{"dag_id": dag_id, "run_pk": run_pk, "event_pk": pk, "is_superseded": is_old} for pk, is_old in taken]
    tx.each(_CONSUME, rows)
    tx.run(_TAKE, wanted=dag_id, events=[*event_pks, *superseded])


def backlog(tx: Tx, dag_id: str) -> list[int]:
    """Every event of the DAG's assets that no run of it ever consumed."""
    return [row[0] for row in tx.all(_BACKLOG, wanted=dag_id)]


def aliases_of_assets(tx: Tx, asset_pks: Iterable[int]) -> dict[int, frozenset[str]]:
    """The aliases through which each asset is known."""
    found: dict[int, frozenset[str]] = {}
    for pk, alias in tx.all(_ALIASES, pks=sorted(set(asset_pks))):
        found[pk] = found.get(pk, frozenset()) | {alias}
    return found


def recent_runs(tx: Tx, dag_id: str, most: int) -> list[int]:
    """When the newest runs that assets made of a DAG were made."""
    return [row[0] for row in tx.all(_RECENT, wanted=dag_id, most=most)]


def busy_keys(tx: Tx, dag_id: str) -> frozenset[str | None]:
    """The partition keys of the DAG's living runs."""
    return frozenset(row[0] for row in tx.all(_BUSY_KEYS, wanted=dag_id))


class EventQueue:
    """What waits, for people to look at and change."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self) -> list[tuple[str, str, int, int]]:
        """DAG, asset, how many of its events wait, and since when the oldest does."""
        with self._database.read() as tx:
            return [(row[0], row[1], row[2], row[3]) for row in tx.all(_COUNTS)]

    def waiting(self, dag_id: str) -> list[QueuedEvent]:
        with self._database.read() as tx:
            return waiting_events(tx, dag_id)
