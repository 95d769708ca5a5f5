"""Which triggers are wanted to watch for assets: the union of what all DAGs say, each watcher owned by its DAG."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, bindparam, case, delete, exists, func, or_, select, text, update

from stannel.model.asset import AssetKey, AssetSpec, WatcherSpec
from stannel.store.assets import SCHEDULE, refers_to
from stannel.store.database import TRIGGERER, Database
from stannel.store.schema import asset, asset_reference, dag, trigger, watcher
from stannel.store.sql import Row, Tx, among, word
from stannel.store.stopping import stop_triggers
from stannel.store.vault import Vault


class WantedWatcher(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that is to run because an asset is waited for. Equal digests mean equal triggers in equal queues."""

    pk: int
    asset_pk: int
    asset: AssetKey
    dag_id: str
    name: str
    classpath: str
    kwargs: dict[str, Any]
    queue: str | None
    digest: str
    stream_key: str | None


_COLUMNS = (
    watcher.c.pk,
    watcher.c.asset_pk,
    asset.c.name,
    asset.c.uri,
    watcher.c.dag_id,
    watcher.c.name,
    watcher.c.classpath,
    watcher.c.kwargs,
    watcher.c.queue,
    watcher.c.digest,
    watcher.c.stream_key,
)
_OF_DAG = select(watcher.c.pk, watcher.c.asset_pk, watcher.c.name, watcher.c.digest, watcher.c.stream_key).where(
    watcher.c.dag_id == bindparam("wanted")
)
_NEW = text(
    "INSERT INTO watcher (asset_pk, dag_id, name, classpath, kwargs, queue, digest, stream_key, created_at) VALUES"
    " (:asset_pk, :dag_id, :name, :classpath, :kwargs, :queue, :digest, :stream_key, :created_at)"
    " ON CONFLICT DO NOTHING"
)
_DELETE = delete(watcher).where(among(watcher.c.pk, "pks"))
_DELETE_OF_DAGS = delete(watcher).where(among(watcher.c.dag_id, "ids"))
_has_dag = and_(
    asset_reference.c.role == word(SCHEDULE),
    refers_to(asset_reference),
    dag.c.dag_id == asset_reference.c.dag_id,
    dag.c.is_active == 1,
)
_is_waited_for = and_(asset.c.is_active == 1, exists().where(_has_dag, dag.c.is_paused == 0))
_is_waited_for_later = and_(asset.c.is_active == 1, exists().where(_has_dag))
_WANTED_NOW, _WANTED_LATER = 1, 2
_JUDGED = (
    select(
        watcher.c.pk,
        watcher.c.is_wanted,
        case((_is_waited_for, _WANTED_NOW), (_is_waited_for_later, _WANTED_LATER), else_=0),
    )
    .join(asset, asset.c.pk == watcher.c.asset_pk)
    .where(among(watcher.c.asset_pk, "pks"))
)
_SET_WANTED = update(watcher).where(watcher.c.pk == bindparam("wanted")).values(is_wanted=bindparam("state"))
_WANTED = (
    select(*_COLUMNS)
    .join(asset, asset.c.pk == watcher.c.asset_pk)
    .where(watcher.c.is_wanted == _WANTED_NOW)
    .order_by(watcher.c.pk)
)
_sibling = watcher.alias("sibling")
# A stream that goes on for others takes its messages away from their broker: whose DAG is only paused keeps its place
# in it, and the events wait for the DAG.
_keeps_its_place = and_(
    watcher.c.is_wanted == _WANTED_LATER,
    exists().where(
        _sibling.c.stream_key == watcher.c.stream_key,
        func.coalesce(_sibling.c.queue, "") == func.coalesce(watcher.c.queue, ""),
        _sibling.c.is_wanted == _WANTED_NOW,
    ),
)
_is_to_run = or_(watcher.c.is_wanted == _WANTED_NOW, _keeps_its_place)
_is_needed = exists().where(
    watcher.c.digest == trigger.c.digest,
    func.coalesce(watcher.c.stream_key, "") == func.coalesce(trigger.c.stream_key, ""),
    _is_to_run,
)
_SPARE = select(trigger.c.pk).where(trigger.c.digest.is_not(None), trigger.c.state == word("waiting"), ~_is_needed)
# One trigger for all watchers with the same digest, whoever wants them; it is known by the names of the first.
_LACKING = (
    select(func.min(watcher.c.pk))
    .where(_is_to_run, ~exists().where(trigger.c.digest == watcher.c.digest, trigger.c.state == word("waiting")))
    .group_by(watcher.c.digest)
    .order_by(func.min(watcher.c.pk))
)
_NEW_TRIGGER = text(
    'INSERT INTO "trigger" (state, classpath, kwargs, queue, created_at, digest, asset, watcher, stream_key)'
    " SELECT 'waiting', watcher.classpath, watcher.kwargs, watcher.queue, watcher.created_at, watcher.digest,"
    " asset.name, watcher.name, watcher.stream_key FROM watcher JOIN asset ON asset.pk = watcher.asset_pk"
    " WHERE watcher.pk = :wanted ON CONFLICT DO NOTHING"
)
_RENAME = update(trigger).where(trigger.c.digest == bindparam("known")).values(digest=bindparam("made"))
_RESEAL = (
    update(watcher)
    .where(watcher.c.pk == bindparam("wanted"))
    .values(kwargs=bindparam("sealed"), digest=bindparam("made"))
)
_ALL_SEALED = select(watcher.c.pk, watcher.c.classpath, watcher.c.kwargs, watcher.c.queue, watcher.c.digest)


def save_watchers(
    tx: Tx, vault: Vault, dag_id: str, specs: Sequence[AssetSpec], assets: Mapping[AssetKey, int], now: int
) -> None:
    """Take over the watchers that a DAG gives its assets now; those that stay the same are not touched."""
    known = {tuple(row[1:]): row[0] for row in tx.all(_OF_DAG, wanted=dag_id)}
    wanted = {
        (assets[spec.key], one.name, digest_of(vault, one.classpath, one.kwargs, one.queue), one.stream_key): one
        for spec in specs
        for one in spec.watchers
    }
    gone = [pk for place, pk in known.items() if place not in wanted]
    fresh = [place for place in wanted if place not in known]
    if gone:
        tx.run(_DELETE, pks=gone)
    tx.each(_NEW, [_row(vault, dag_id, place, wanted[place], now) for place in fresh])
    if gone or fresh:
        tx.wake(TRIGGERER)


def forget_watchers(tx: Tx, dag_ids: Sequence[str]) -> None:
    """The DAGs are gone, and with them what they wanted to be watched."""
    if tx.run(_DELETE_OF_DAGS, ids=list(dag_ids)):
        tx.wake(TRIGGERER)


def settle_wanted(tx: Tx, asset_pks: Iterable[int]) -> None:
    """Decide again which watchers of these assets are to run: those of assets that a DAG waits for."""
    changed = [(row[0], row[2]) for row in tx.all(_JUDGED, pks=sorted(asset_pks)) if row[1] != row[2]]
    tx.each(_SET_WANTED, [{"wanted": pk, "state": state} for pk, state in changed])
    match_triggers(tx)


def match_triggers(tx: Tx) -> None:
    """Have exactly the triggers that watchers want. Those that are needed no more are stopped where they run."""
    stop_triggers(tx, [row[0] for row in tx.all(_SPARE)])
    missing = [row[0] for row in tx.all(_LACKING)]
    tx.each(_NEW_TRIGGER, [{"wanted": pk} for pk in missing])
    if missing:
        tx.wake(TRIGGERER)


def digest_of(vault: Vault, classpath: str, kwargs: Mapping[str, Any], queue: str | None) -> str:
    """A name for a trigger that tells nothing about its arguments to who has not the key."""
    return vault.digest(_json([classpath, dict(kwargs), queue]))


class Watchers:
    """The triggers that are wanted for assets."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database, self._vault = database, vault

    def wanted(self) -> list[WantedWatcher]:
        """Every watcher that is to run now. `SecretUnreadable` if the arguments of one cannot be decrypted."""
        with self._database.read() as tx:
            return [self._open(row) for row in tx.all(_WANTED)]

    def match(self) -> bool:
        """Repair what two transactions that did not see each other may have left: a trigger too many, or too few."""
        with self._database.read() as tx:
            if not tx.all(_SPARE) and not tx.all(_LACKING):
                return False
        with self._database.transaction() as tx:
            match_triggers(tx)
        return True

    def reseal(self) -> int:
        """Seal all arguments with the newest key, and name the triggers by it; how many there are."""
        with self._database.transaction() as tx:
            rows = tx.all(_ALL_SEALED)
            for pk, classpath, sealed, queue, known in rows:
                plain = self._vault.open(sealed, f"the arguments of a watcher {classpath}") or "{}"
                made = digest_of(self._vault, classpath, msgspec.json.decode(plain), queue)
                tx.run(_RESEAL, wanted=pk, sealed=self._vault.seal(plain), made=made)
                tx.run(_RENAME, known=known, made=made)
        return len(rows)

    def _open(self, row: Row) -> WantedWatcher:
        plain = self._vault.open(row[7], f"the arguments of the watcher {row[5]!r} of the asset {row[2]!r}") or "{}"
        return WantedWatcher(
            pk=row[0],
            asset_pk=row[1],
            asset=AssetKey(row[2], row[3]),
            dag_id=row[4],
            name=row[5],
            classpath=row[6],
            kwargs=msgspec.json.decode(plain),
            queue=row[8],
            digest=row[9],
            stream_key=row[10],
        )


def _row(vault: Vault, dag_id: str, place: tuple[Any, ...], one: WatcherSpec, now: int) -> dict[str, Any]:
    return {
        "asset_pk": place[0],
        "dag_id": dag_id,
        "name": one.name,
        "classpath": one.classpath,
        "kwargs": vault.seal(_json(one.kwargs)),
        "queue": one.queue,
        "digest": place[2],
        "stream_key": one.stream_key,
        "created_at": now,
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
