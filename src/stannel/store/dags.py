"""DAGs, their versions and the files they come from."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime

import msgspec
from sqlalchemy import bindparam, case, delete, func, or_, select, update

from stannel.errors import UnknownId, closest
from stannel.model.asset import without_secrets
from stannel.model.dag import DagSpec, decode_dag, encode_dag
from stannel.model.ids import new_id
from stannel.model.moments import from_micros, maybe_micros, maybe_moment, to_micros
from stannel.model.schedule import DueRun, Interval
from stannel.store.assets import has_assets, meant_by, save_references, settle_activity
from stannel.store.database import SCHEDULER, Database
from stannel.store.schema import dag, dag_file, dag_run, dag_version
from stannel.store.sql import Duty, Row, Tx, among, insert_into, upsert, words
from stannel.store.vault import Vault
from stannel.store.watchers import forget_watchers, save_watchers, settle_wanted

# A DAG whose next run nobody computed yet; schedulers look at it first.
UNPLANNED = 0

_SPECS_KEPT = 512


class ParsedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What importing one DAG file gave: DAGs, or an error."""

    path: str
    fingerprint: str
    dags: tuple[DagSpec, ...] = ()
    dependencies: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0


class FileStatus(msgspec.Struct, frozen=True):
    """A DAG file as the store knows it."""

    path: str
    fingerprint: str
    dependencies: list[str]
    error: str | None
    parsed_at: datetime | None
    seconds: float
    dag_count: int


class DagStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG and where it stands in its schedule."""

    dag_id: str
    fileloc: str
    version: str
    is_active: bool
    is_paused: bool
    is_broken: bool
    at_limit: bool
    first_seen: datetime
    next_run: DueRun | None


_FILE = (
    dag_file.c.path,
    dag_file.c.fingerprint,
    dag_file.c.dependencies,
    dag_file.c.error,
    dag_file.c.parsed_at,
    dag_file.c.seconds,
    dag_file.c.dag_count,
)
_DAG = (
    dag.c.dag_id,
    dag.c.fileloc,
    dag.c.version,
    dag.c.is_active,
    dag.c.is_paused,
    dag.c.is_broken,
    dag.c.at_limit,
    dag.c.first_seen,
    dag.c.next_logical,
    dag.c.next_start,
    dag.c.next_end,
    dag.c.next_run_after,
)

_SAVE_FILE = upsert(dag_file, "path", "fingerprint", "dependencies", "error", "parsed_at", "seconds", "dag_count")
_FILES = select(*_FILE).order_by(dag_file.c.path)
_DELETE_FILE = delete(dag_file).where(dag_file.c.path == bindparam("file"))
_OF_FILE = select(dag.c.dag_id).where(dag.c.fileloc == bindparam("file"), dag.c.is_active == 1)
_BREAK = update(dag).where(dag.c.dag_id == bindparam("wanted")).values(is_broken=1)
_RETIRE = update(dag).where(dag.c.dag_id == bindparam("wanted")).values(is_active=0, is_broken=0)

_CURRENT = (
    select(dag.c.fileloc, dag.c.is_active, dag.c.is_broken, dag_version.c.spec, dag_version.c.number)
    .join(dag_version, dag_version.c.version == dag.c.version)
    .where(dag.c.dag_id == bindparam("wanted"))
)
_LAST_NUMBER = select(func.max(dag_version.c.number)).where(dag_version.c.dag_id == bindparam("wanted"))
_NEW_VERSION = insert_into(dag_version, "version", "dag_id", "number", "spec", "created_at")
_NEW_DAG = insert_into(dag, "dag_id", "fileloc", "version", "is_paused", "first_seen", "parsed_at", "next_run_after")
_NEXT_VERSION = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(
        version=bindparam("newest"),
        fileloc=bindparam("file"),
        parsed_at=bindparam("now"),
        is_active=1,
        is_broken=0,
        at_limit=0,
        next_run_after=UNPLANNED,
        events_at=UNPLANNED,
    )
)
_SEEN_AGAIN = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(fileloc=bindparam("file"), parsed_at=bindparam("now"), is_active=1, is_broken=0)
)
_REPLAN = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(next_run_after=UNPLANNED, at_limit=0, events_at=UNPLANNED)
)
# Runs under way follow the newest version of their DAG. They are locked in the order in which everybody locks runs,
# and before their DAGs, so that no two transactions wait for each other.
_under_way = (
    select(dag_run.c.pk)
    .where(among(dag_run.c.dag_id, "ids"), dag_run.c.state.in_(words(["queued", "running"])))
    .order_by(dag_run.c.pk)
    .with_for_update(key_share=True)
    .cte("under_way")
)
_LOOK_AGAIN = update(dag_run).where(dag_run.c.pk.in_(select(_under_way.c.pk))).values(dirty=1)

_SPEC = select(dag_version.c.spec).where(dag_version.c.version == bindparam("wanted"))
_ONE = select(*_DAG).where(dag.c.dag_id == bindparam("wanted"))
_EVERY = select(*_DAG).order_by(dag.c.dag_id)
_IDS = select(dag.c.dag_id)
_PAUSE = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(is_paused=bindparam("paused"), next_run_after=UNPLANNED, at_limit=0, events_at=UNPLANNED)
)
_DUE = (
    select(*_DAG)
    .where(
        dag.c.is_active == 1,
        dag.c.is_paused == 0,
        dag.c.is_broken == 0,
        dag.c.at_limit == 0,
        dag.c.next_run_after <= bindparam("now"),
    )
    .order_by(dag.c.next_run_after)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_NEXT_DUE = select(func.min(dag.c.next_run_after)).where(
    dag.c.is_active == 1, dag.c.is_paused == 0, dag.c.is_broken == 0, dag.c.at_limit == 0
)
_SET_NEXT = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"))
    .values(
        next_logical=bindparam("logical"),
        next_start=bindparam("start"),
        next_end=bindparam("end"),
        next_run_after=bindparam("after"),
        at_limit=0,
    )
)
_AT_LIMIT = update(dag).where(dag.c.dag_id == bindparam("wanted")).values(at_limit=1)
_BELOW_LIMIT = (
    update(dag)
    .where(dag.c.dag_id == bindparam("wanted"), or_(dag.c.at_limit == 1, dag.c.events_held == 1))
    .values(
        at_limit=0,
        events_held=0,
        events_at=case((dag.c.events_held == 1, UNPLANNED), else_=dag.c.events_at),
    )
)
_LOCKED = select(*_DAG).where(among(dag.c.dag_id, "ids")).order_by(dag.c.dag_id).with_for_update(skip_locked=True)
_OTHERS = select(dag.c.dag_id, dag.c.fileloc).where(among(dag.c.dag_id, "ids"), dag.c.is_active == 1)


def due_dags(tx: Tx, now: int, most: int) -> list[DagStatus]:
    """DAGs whose next run is due (or was never computed), locked against other schedulers."""
    return [_to_dag(row) for row in tx.all(_DUE, now=now, most=most)]


def set_next_run(tx: Tx, dag_id: str, due: DueRun | None) -> None:
    """Remember when the DAG runs next. None: never by itself."""
    interval = due.interval if due else None
    tx.run(
        _SET_NEXT,
        wanted=dag_id,
        logical=maybe_micros(due.logical_date) if due else None,
        start=to_micros(interval.start) if interval else None,
        end=to_micros(interval.end) if interval else None,
        after=to_micros(due.run_after) if due else None,
    )


def hold_at_limit(tx: Tx, dag_id: str) -> None:
    """Keep the next run back until a run of this DAG ends."""
    tx.run(_AT_LIMIT, wanted=dag_id)


def locked_dags(tx: Tx, dag_ids: Sequence[str]) -> list[DagStatus]:
    """Those of these DAGs that nobody else has locked; they are locked now."""
    return [_to_dag(row) for row in tx.all(_LOCKED, ids=list(dag_ids))]


def pause_dag(tx: Tx, dag_id: str) -> None:
    """Stop creating and advancing runs of a DAG."""
    tx.run(_PAUSE, wanted=dag_id, paused=1)
    settle_wanted(tx, meant_by(tx, [dag_id]))


def release_limit(tx: Tx, dag_id: str) -> None:
    """A run of the DAG has ended: what waited for that may be made now."""
    tx.run(_BELOW_LIMIT, wanted=dag_id)


def next_due(tx: Tx) -> int | None:
    """When the earliest DAG is due. None: no DAG runs by itself."""
    row = tx.one(_NEXT_DUE)
    return None if row is None else row[0]


class Dags:
    """The DAGs of all files, each at its newest version."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database, self._vault = database, vault
        self._specs: OrderedDict[str, DagSpec] = OrderedDict()

    def save_file(self, file: ParsedFile, *, now: datetime, paused: bool = False) -> str | None:
        """Take over what a file holds now; its DAGs that are gone leave the schedule, their history stays.

        A file may have an error and DAGs that are good all the same. Those it had before and has not now are then not
        gone but broken. Returns the errors that are shown: the file's own, and DAG ids that another file has already.
        """
        moment = to_micros(now)
        with self._database.transaction() as tx:
            tx.alone(Duty.SAVE_FILE)
            taken = self._taken_elsewhere(tx, file)
            error = "\n\n".join(filter(None, [file.error, _taken_error(taken)])) or None
            specs = sorted((spec for spec in file.dags if spec.dag_id not in taken), key=lambda spec: spec.dag_id)
            current = {spec.dag_id: tx.one(_CURRENT, wanted=spec.dag_id) for spec in specs}
            tx.run(_LOOK_AGAIN, ids=[spec.dag_id for spec in specs if _has_changed(spec, current[spec.dag_id])])
            for spec in specs:
                _save_dag(tx, spec, current[spec.dag_id], file.path, moment, paused)
                self._save_assets(tx, spec, current[spec.dag_id], moment)
            kept = {spec.dag_id for spec in specs}
            missing = [dag_id for (dag_id,) in tx.all(_OF_FILE, file=file.path) if dag_id not in kept]
            if file.error is None:
                _retire(tx, missing)
            else:
                tx.each(_BREAK, [{"wanted": dag_id} for dag_id in missing])
            tx.run(
                _SAVE_FILE,
                path=file.path,
                fingerprint=file.fingerprint,
                dependencies=msgspec.json.encode(file.dependencies).decode(),
                error=error,
                parsed_at=moment,
                seconds=file.seconds,
                dag_count=len(specs),
            )
            tx.wake(SCHEDULER)
        return error

    def remove_file(self, path: str) -> list[str]:
        """Forget a deleted file; the ids of its DAGs, which are no longer scheduled."""
        with self._database.transaction() as tx:
            gone = [dag_id for (dag_id,) in tx.all(_OF_FILE, file=path)]
            _retire(tx, gone)
            tx.run(_DELETE_FILE, file=path)
        return gone

    def files(self) -> list[FileStatus]:
        with self._database.read() as tx:
            return [_to_file(row) for row in tx.all(_FILES)]

    def get(self, dag_id: str) -> DagStatus:
        """The DAG of that id; an unknown one is refused with the nearest ids."""
        with self._database.read() as tx:
            row = tx.one(_ONE, wanted=dag_id)
            if row is None:
                raise UnknownId("DAG", dag_id, closest(dag_id, [known for (known,) in tx.all(_IDS)]))
        return _to_dag(row)

    def all(self, *, inactive: bool = False) -> list[DagStatus]:
        """Every DAG by id; those whose file is gone only on request."""
        with self._database.read() as tx:
            return [status for status in map(_to_dag, tx.all(_EVERY)) if inactive or status.is_active]

    def spec(self, version: str, tx: Tx | None = None) -> DagSpec:
        """The DAG as it was written in that version; kept in memory, for a version never changes.

        Inside a transaction it must be read there: what others commit together with it can be seen nowhere else yet.
        """
        if (spec := self._specs.get(version)) is None:
            with nullcontext(tx) if tx else self._database.read() as reading:
                row = reading.one(_SPEC, wanted=version)
            if row is None:
                raise UnknownId("DAG version", version)
            spec = self._specs[version] = decode_dag(row[0])
            if len(self._specs) > _SPECS_KEPT:
                self._specs.popitem(last=False)
        return spec

    def pause(self, dag_id: str, *, paused: bool) -> None:
        """Stop or go on creating and advancing runs of a DAG; tasks that run already go on."""
        self.get(dag_id)
        with self._database.transaction() as tx:
            tx.run(_LOOK_AGAIN, ids=[dag_id])
            tx.run(_PAUSE, wanted=dag_id, paused=int(paused))
            settle_wanted(tx, meant_by(tx, [dag_id]))
            tx.wake(SCHEDULER)

    def _save_assets(self, tx: Tx, spec: DagSpec, known: Row | None, moment: int) -> None:
        """Watchers are kept apart from the DAG, so they are compared even if the DAG has not changed."""
        if not has_assets(spec) and not _has_changed(spec, known):
            return
        before = set() if known is None else meant_by(tx, [spec.dag_id])
        assets = save_references(tx, spec, moment)
        save_watchers(tx, self._vault, spec.dag_id, spec.assets, assets, moment)
        touched = before | meant_by(tx, [spec.dag_id]) | set(assets.values())
        settle_activity(tx, touched)
        settle_wanted(tx, touched)

    def _taken_elsewhere(self, tx: Tx, file: ParsedFile) -> dict[str, str]:
        ids = [spec.dag_id for spec in file.dags]
        return {dag_id: path for dag_id, path in tx.all(_OTHERS, ids=ids) if path != file.path}


def _taken_error(taken: dict[str, str]) -> str | None:
    if not taken:
        return None
    clashes = ", ".join(f"{dag_id!r} is defined in {path} already" for dag_id, path in sorted(taken.items()))
    return f"The DAG id {clashes}; this file's DAG of that id is ignored. Give it another id."


def _retire(tx: Tx, dag_ids: Sequence[str]) -> None:
    """These DAGs are in no file any more. What they name is kept: if they come back, events have waited for them."""
    if not dag_ids:
        return
    tx.each(_RETIRE, [{"wanted": dag_id} for dag_id in dag_ids])
    forget_watchers(tx, dag_ids)
    touched = meant_by(tx, dag_ids)
    settle_activity(tx, touched)
    settle_wanted(tx, touched)


def _stored_text(spec: DagSpec) -> str:
    """The DAG as it is kept: the arguments of its watchers are secret, and have a sealed place of their own."""
    if any(one.watchers for one in spec.assets):
        spec = msgspec.structs.replace(spec, assets=without_secrets(spec.assets))
    return encode_dag(spec).decode()


def _has_changed(spec: DagSpec, known: Row | None) -> bool:
    return known is None or known[3] != _stored_text(spec)


def _save_dag(tx: Tx, spec: DagSpec, known: Row | None, path: str, moment: int, paused: bool) -> None:
    text = _stored_text(spec)
    if known is not None and known[3] == text:
        tx.run(_SEEN_AGAIN, wanted=spec.dag_id, file=path, now=moment)
        if not known[1] or known[2]:
            tx.run(_REPLAN, wanted=spec.dag_id)
        return
    last = tx.one(_LAST_NUMBER, wanted=spec.dag_id)
    version = new_id()
    number = (last[0] or 0) + 1 if last else 1
    tx.run(_NEW_VERSION, version=version, dag_id=spec.dag_id, number=number, spec=text, created_at=moment)
    if known is None:
        starts_paused = paused if spec.is_paused_upon_creation is None else spec.is_paused_upon_creation
        tx.run(
            _NEW_DAG,
            dag_id=spec.dag_id,
            fileloc=path,
            version=version,
            is_paused=int(starts_paused),
            first_seen=moment,
            parsed_at=moment,
            next_run_after=UNPLANNED,
        )
        return
    tx.run(_NEXT_VERSION, wanted=spec.dag_id, newest=version, file=path, now=moment)


def _to_dag(row: Row) -> DagStatus:
    logical, start, end, after = (maybe_moment(value) for value in row[8:12])
    planned = row[11] not in (None, UNPLANNED)
    interval = Interval(start, end) if start and end else None
    return DagStatus(
        dag_id=row[0],
        fileloc=row[1],
        version=row[2],
        is_active=bool(row[3]),
        is_paused=bool(row[4]),
        is_broken=bool(row[5]),
        at_limit=bool(row[6]),
        first_seen=from_micros(row[7]),
        next_run=DueRun(logical, interval, after) if planned and after else None,
    )


def _to_file(row: Row) -> FileStatus:
    return FileStatus(row[0], row[1], msgspec.json.decode(row[2]), row[3], maybe_moment(row[4]), row[5], row[6])
