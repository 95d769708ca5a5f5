"""Assets and who refers to them: kept in step with DAG files, so that each is active while somebody needs it.

The functions run inside a transaction of their caller, which has changed the DAG before.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, bindparam, case, delete, exists, or_, select, text, update

from stannel.errors import UnknownId, closest
from stannel.model.asset import AnyOfAlias, AssetAt, AssetKey, AssetNamed, Reference, ThisAsset, references
from stannel.model.dag import DagSpec
from stannel.model.schedule import OnAssets
from stannel.store.database import Database
from stannel.store.schema import alias_asset, asset, asset_reference, dag, dag_warning
from stannel.store.sql import Row, Tx, among, insert_into, word

log = logging.getLogger(__name__)

SCHEDULE, INLET, OUTLET = "schedule", "inlet", "outlet"
ASSET_CONFLICT = "asset_conflict"


class StoredAsset(msgspec.Struct, frozen=True, kw_only=True):
    """An asset as the store knows it."""

    pk: int
    name: str
    uri: str
    group: str
    extra: dict[str, Any]
    is_active: bool

    @property
    def key(self) -> AssetKey:
        return AssetKey(self.name, self.uri)


class StoredReference(msgspec.Struct, frozen=True):
    """Where a DAG names an asset, and how: by its identity, its name, its URI or an alias."""

    dag_id: str
    role: str
    task_id: str
    kind: str


class DagWarning(msgspec.Struct, frozen=True):
    """Something about a DAG that does not keep it from running, but will surprise its author."""

    dag_id: str
    kind: str
    message: str


_COLUMNS = (asset.c.pk, asset.c.name, asset.c.uri, asset.c.grouped, asset.c.extra, asset.c.is_active)
_SAVE_ASSET = text(
    "INSERT INTO asset (name, uri, grouped, extra, created_at) VALUES (:name, :uri, :grouped, :extra, :now)"
    " ON CONFLICT (name, uri) DO UPDATE SET grouped = excluded.grouped, extra = excluded.extra RETURNING pk"
)
_SAVE_ALIAS = text(
    "INSERT INTO asset_alias (name, grouped) VALUES (:name, :grouped)"
    " ON CONFLICT (name) DO UPDATE SET grouped = excluded.grouped"
)
_REFERENCE_COLUMNS = ("role", "task_id", "kind", "name", "uri", "takes_keys")
_REFERENCES = select(*(asset_reference.c[name] for name in _REFERENCE_COLUMNS)).where(
    asset_reference.c.dag_id == bindparam("wanted")
)
_NEW_REFERENCE = insert_into(asset_reference, "dag_id", *_REFERENCE_COLUMNS)
_DELETE_REFERENCES = delete(asset_reference).where(asset_reference.c.dag_id == bindparam("wanted"))
_BY_PK = select(*_COLUMNS).where(among(asset.c.pk, "pks"))
_SAME_PLACE = select(*_COLUMNS).where(or_(among(asset.c.name, "names"), among(asset.c.uri, "uris")))

_names_it = and_(
    asset_reference.c.kind == word("asset"),
    asset_reference.c.name == asset.c.name,
    asset_reference.c.uri == asset.c.uri,
)
_is_referenced = or_(
    exists().where(_names_it, dag.c.dag_id == asset_reference.c.dag_id, dag.c.is_active == 1),
    exists().where(alias_asset.c.asset_pk == asset.c.pk),
)
# Who is active stays so as long as somebody needs it; among the others, the one that was there first.
_CLAIMANTS = (
    select(*_COLUMNS, case((_is_referenced, 1), else_=0))
    .where(among(asset.c.pk, "pks"))
    .order_by(asset.c.is_active.desc(), asset.c.pk)
)
_SET_ACTIVE = update(asset).where(asset.c.pk == bindparam("wanted")).values(is_active=bindparam("active"))
_DAGS_NAMING = (
    select(asset_reference.c.dag_id)
    .join(asset, _names_it)
    .where(among(asset.c.pk, "pks"))
    .group_by(asset_reference.c.dag_id)
)
_FORGET_WARNINGS = delete(dag_warning).where(
    among(dag_warning.c.dag_id, "ids"), dag_warning.c.kind == word(ASSET_CONFLICT)
)
_NEW_WARNING = insert_into(dag_warning, "dag_id", "kind", "message")
_WARNINGS = select(dag_warning.c.dag_id, dag_warning.c.kind, dag_warning.c.message).order_by(
    dag_warning.c.dag_id, dag_warning.c.message
)
_ONE = select(*_COLUMNS).where(asset.c.name == bindparam("name"), asset.c.uri == bindparam("uri"))
_BY_NAME = select(*_COLUMNS).where(asset.c.name == bindparam("name")).order_by(asset.c.is_active.desc(), asset.c.pk)
_BY_URI = select(*_COLUMNS).where(asset.c.uri == bindparam("uri")).order_by(asset.c.is_active.desc(), asset.c.pk)
_ALL = select(*_COLUMNS).order_by(asset.c.name, asset.c.uri)
_OF_ALIAS = (
    select(*_COLUMNS)
    .join(alias_asset, alias_asset.c.asset_pk == asset.c.pk)
    .where(alias_asset.c.alias == bindparam("alias"))
    .order_by(asset.c.name)
)


def refers_to(ref: Any) -> ColumnElement[bool]:
    """A reference means the asset: by its identity, its name, its URI, or an alias it was emitted through."""
    return or_(
        and_(ref.c.kind == word("asset"), ref.c.name == asset.c.name, ref.c.uri == asset.c.uri),
        and_(ref.c.kind == word("name"), ref.c.name == asset.c.name),
        and_(ref.c.kind == word("uri"), ref.c.uri == asset.c.uri),
        and_(
            ref.c.kind == word("alias"),
            exists().where(alias_asset.c.alias == ref.c.name, alias_asset.c.asset_pk == asset.c.pk),
        ),
    )


_WHO = (
    select(asset_reference.c.dag_id, asset_reference.c.role, asset_reference.c.task_id, asset_reference.c.kind)
    .select_from(asset_reference)
    .join(asset, refers_to(asset_reference))
    .where(asset.c.pk == bindparam("wanted"))
    .order_by(asset_reference.c.dag_id, asset_reference.c.role, asset_reference.c.task_id)
)
_MEANT_BY = (
    select(asset.c.pk)
    .select_from(asset_reference)
    .join(asset, refers_to(asset_reference))
    .where(among(asset_reference.c.dag_id, "ids"))
    .group_by(asset.c.pk)
)


def reference_row(wanted: Reference, role: str, task_id: str = "", *, takes_keys: bool = False) -> Row:
    """A reference as the values of its columns."""
    kind, name, uri = _spelled(wanted)
    return role, task_id, kind, name, uri, int(takes_keys)


def _spelled(wanted: Reference) -> tuple[str, str, str]:
    match wanted:
        case ThisAsset(name, uri):
            return "asset", name, uri
        case AssetNamed(name):
            return "name", name, ""
        case AssetAt(uri):
            return "uri", "", uri
        case AnyOfAlias(name):
            return "alias", name, ""


def has_assets(spec: DagSpec) -> bool:
    return bool(spec.assets or spec.aliases or isinstance(spec.schedule, OnAssets)) or any(
        task.inlets or task.outlets for task in spec.tasks
    )


def save_references(tx: Tx, spec: DagSpec, now: int) -> dict[AssetKey, int]:
    """Take over what a DAG names now. The numbers of the assets that it defines."""
    known = {(name, uri): pk for name, uri, pk in (_save_asset(tx, one, now) for one in spec.assets)}
    for alias in spec.aliases:
        tx.run(_SAVE_ALIAS, name=alias.name, grouped=alias.group)
    wanted = set(_reference_rows(spec))
    if wanted != set(tx.all(_REFERENCES, wanted=spec.dag_id)):
        tx.run(_DELETE_REFERENCES, wanted=spec.dag_id)
        rows = [dict(zip(_REFERENCE_COLUMNS, row, strict=True)) for row in sorted(wanted)]
        tx.each(_NEW_REFERENCE, [{"dag_id": spec.dag_id, **row} for row in rows])
    return {AssetKey(*key): pk for key, pk in known.items()}


def _save_asset(tx: Tx, one: Any, now: int) -> tuple[str, str, int]:
    extra = msgspec.json.encode(one.extra, order="sorted").decode()
    row = tx.one(_SAVE_ASSET, name=one.name, uri=one.uri, grouped=one.group, extra=extra, now=now)
    assert row is not None
    return one.name, one.uri, int(row[0])


def _reference_rows(spec: DagSpec) -> Iterable[Row]:
    if isinstance(spec.schedule, OnAssets):
        takes_keys = spec.schedule.consumption is not None
        for wanted in references(spec.schedule.condition):
            yield reference_row(wanted, SCHEDULE, takes_keys=takes_keys)
    for task in spec.tasks:
        for wanted in task.inlets:
            yield reference_row(wanted, INLET, task.task_id)
        for wanted in task.outlets:
            yield reference_row(wanted, OUTLET, task.task_id)


def meant_by(tx: Tx, dag_ids: Sequence[str]) -> set[int]:
    """The numbers of the assets that these DAGs name in any way."""
    return {row[0] for row in tx.all(_MEANT_BY, ids=list(dag_ids))} if dag_ids else set()


def settle_activity(tx: Tx, asset_pks: Iterable[int]) -> None:
    """Decide again which of these assets, and of those they compete with, are active; DAGs that lose are warned."""
    pks = _competitors(tx, set(asset_pks))
    if not pks:
        return
    names: dict[str, Row] = {}
    uris: dict[str, Row] = {}
    lost: list[tuple[Row, Row]] = []
    for row in tx.all(_CLAIMANTS, pks=sorted(pks)):
        rival = names.get(row[1]) or uris.get(row[2])
        is_active = bool(row[6]) and rival is None
        if is_active:
            names[row[1]] = uris[row[2]] = row
        elif row[6] and rival is not None:
            lost.append((row, rival))
        if is_active != bool(row[5]):
            tx.run(_SET_ACTIVE, wanted=row[0], active=int(is_active))
    _warn(tx, pks, lost)


def _competitors(tx: Tx, pks: set[int]) -> set[int]:
    """These assets, and all that share a name or a URI with one of them, directly or through others."""
    found: dict[int, Row] = {row[0]: row for row in tx.all(_BY_PK, pks=sorted(pks))} if pks else {}
    size = 0
    while len(found) > size:
        size = len(found)
        names, uris = sorted({row[1] for row in found.values()}), sorted({row[2] for row in found.values()})
        found.update((row[0], row) for row in tx.all(_SAME_PLACE, names=names, uris=uris))
    return set(found)


def _warn(tx: Tx, pks: set[int], lost: Sequence[tuple[Row, Row]]) -> None:
    concerned = [row[0] for row in tx.all(_DAGS_NAMING, pks=sorted(pks))]
    tx.run(_FORGET_WARNINGS, ids=concerned)
    for loser, winner in lost:
        message = (
            f"The asset {loser[1]!r} at {loser[2]!r} is not active, because {winner[1]!r} at {winner[2]!r} is: "
            "active assets have different names and different URIs. Give one of them another."
        )
        for (dag_id,) in tx.all(_DAGS_NAMING, pks=[loser[0]]):
            log.warning("The DAG %s: %s", dag_id, message)
            tx.run(_NEW_WARNING, dag_id=dag_id, kind=ASSET_CONFLICT, message=message)


def resolve(tx: Tx, wanted: ThisAsset | AssetNamed | AssetAt) -> StoredAsset | None:
    """The asset that is meant; by name or URI alone, the active one if there is one. None: there is no such asset."""
    match wanted:
        case ThisAsset(name, uri):
            row = tx.one(_ONE, name=name, uri=uri)
        case AssetNamed(name):
            row = tx.one(_BY_NAME, name=name)
        case AssetAt(uri):
            row = tx.one(_BY_URI, uri=uri)
    return None if row is None else _to_asset(row)


class Assets:
    """The assets of all DAGs, as people and tasks ask for them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, wanted: ThisAsset | AssetNamed | AssetAt) -> StoredAsset | None:
        """The asset that is meant. None: there is no such asset."""
        with self._database.read() as tx:
            return resolve(tx, wanted)

    def get(self, name: str) -> StoredAsset:
        """The asset of that name, or URI; an unknown one is refused with the nearest names."""
        found = self.find(AssetNamed(name)) or self.find(AssetAt(name))
        if found is None:
            raise UnknownId("asset", name, closest(name, [one.name for one in self.all(inactive=True)]))
        return found

    def all(self, *, inactive: bool = False) -> list[StoredAsset]:
        """Every asset by name; those that no DAG needs now only on request."""
        with self._database.read() as tx:
            return [one for one in map(_to_asset, tx.all(_ALL)) if inactive or one.is_active]

    def of_alias(self, alias: str) -> list[StoredAsset]:
        """The assets that were emitted through an alias."""
        with self._database.read() as tx:
            return [_to_asset(row) for row in tx.all(_OF_ALIAS, alias=alias)]

    def references(self, one: StoredAsset) -> list[StoredReference]:
        """Which DAGs and tasks name an asset, those whose file is gone included."""
        with self._database.read() as tx:
            return [StoredReference(*row) for row in tx.all(_WHO, wanted=one.pk)]

    def inactive_among(self, wanted: Iterable[Reference]) -> list[Reference]:
        """Those of these that mean no active asset; an alias always may be used."""
        with self._database.read() as tx:
            return [
                one
                for one in wanted
                if not isinstance(one, AnyOfAlias) and ((found := resolve(tx, one)) is None or not found.is_active)
            ]

    def warnings(self, dag_id: str | None = None) -> list[DagWarning]:
        """What DAGs are warned of."""
        with self._database.read() as tx:
            found = [DagWarning(*row) for row in tx.all(_WARNINGS)]
        return [one for one in found if dag_id in (None, one.dag_id)]


def _to_asset(row: Row) -> StoredAsset:
    return StoredAsset(
        pk=row[0],
        name=row[1],
        uri=row[2],
        group=row[3],
        extra=msgspec.json.decode(row[4]),
        is_active=bool(row[5]),
    )
