"""Leases: whatever runs somewhere is held by one, and a holder that stops renewing it is taken for dead."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import bindparam, delete, func, select, update

from stannel.model.moments import from_micros, to_micros
from stannel.store.database import SCHEDULER, Database
from stannel.store.schema import lease
from stannel.store.sql import Row, Tx, upsert, word


class Lease(msgspec.Struct, frozen=True):
    """A program that is, or was, at work."""

    owner: str
    kind: str
    hostname: str
    pid: int
    started_at: datetime
    renewed_at: datetime
    expires_at: datetime
    detail: dict[str, Any]

    def is_live(self, now: datetime) -> bool:
        return self.expires_at > now


_FORGET_AFTER = timedelta(hours=1)

_TAKE = upsert(lease, "owner", "kind", "hostname", "pid", "epoch", "started_at", "renewed_at", "expires_at", "detail")
# No row is touched if the lease was ended by someone else: the holder must stop.
_RENEW = (
    update(lease)
    .where(lease.c.owner == bindparam("holder"), lease.c.expires_at > 0)
    .values(renewed_at=bindparam("now"), expires_at=bindparam("until"), detail=bindparam("about"))
)
_END = update(lease).where(lease.c.owner == bindparam("holder")).values(expires_at=0)
_RELEASE = delete(lease).where(lease.c.owner == bindparam("holder"))
_FORGET = delete(lease).where(lease.c.expires_at < bindparam("before"), lease.c.renewed_at < bindparam("before"))
_WORKERS = select(func.count()).where(lease.c.kind == word("worker"), lease.c.expires_at > bindparam("now"))
_ALL = select(
    lease.c.owner,
    lease.c.kind,
    lease.c.hostname,
    lease.c.pid,
    lease.c.started_at,
    lease.c.renewed_at,
    lease.c.expires_at,
    lease.c.detail,
).order_by(lease.c.kind, lease.c.started_at)


def live_workers(tx: Tx, now: int) -> int:
    """How many workers are at work."""
    row = tx.one(_WORKERS, now=now)
    return int(row[0]) if row else 0


class Leases:
    """Who is at work."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, owner: str, kind: str, *, hostname: str, pid: int, now: datetime, seconds: float) -> None:
        """Announce a program as at work for the coming seconds."""
        moment = to_micros(now)
        with self._database.transaction() as tx:
            tx.run(_FORGET, before=to_micros(now - _FORGET_AFTER))
            tx.run(
                _TAKE,
                owner=owner,
                kind=kind,
                hostname=hostname,
                pid=pid,
                epoch=1,
                started_at=moment,
                renewed_at=moment,
                expires_at=moment + int(seconds * 1e6),
                detail="{}",
            )

    def renew(self, owner: str, *, now: datetime, seconds: float, detail: dict[str, Any] | None = None) -> bool:
        """Stay at work. False: the lease was ended, the holder must stop and its work was given to others."""
        moment = to_micros(now)
        about = msgspec.json.encode(detail or {}).decode()
        with self._database.transaction() as tx:
            return tx.run(_RENEW, holder=owner, now=moment, until=moment + int(seconds * 1e6), about=about) > 0

    def release(self, owner: str) -> None:
        """Leave cleanly: nothing is held any more."""
        with self._database.transaction() as tx:
            tx.run(_RELEASE, holder=owner)
            tx.wake(SCHEDULER)

    def end(self, owner: str) -> None:
        """Declare a holder dead without waiting for its lease to run out."""
        with self._database.transaction() as tx:
            tx.run(_END, holder=owner)
            tx.wake(SCHEDULER)

    def all(self) -> list[Lease]:
        with self._database.read() as tx:
            return [_to_lease(row) for row in tx.all(_ALL)]


def _to_lease(row: Row) -> Lease:
    owner, kind, hostname, pid, *moments, detail = row
    started_at, renewed_at, expires_at = map(from_micros, moments)
    return Lease(owner, kind, hostname, pid, started_at, renewed_at, expires_at, msgspec.json.decode(detail))
