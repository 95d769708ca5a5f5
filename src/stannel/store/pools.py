"""Pools: how many slots tasks of a kind may hold at the same time."""

import msgspec
from sqlalchemy import bindparam, delete, func, select

from stannel.model.states import HOLDS_SLOT, TaskState
from stannel.store.database import SCHEDULER, Database
from stannel.store.schema import pool
from stannel.store.schema import task_instance as ti
from stannel.store.sql import Tx, upsert, word, words

DEFAULT_POOL = "default_pool"


class Pool(msgspec.Struct, frozen=True):
    """A pool and how full it is; fewer than zero slots means no limit."""

    name: str
    slots: int
    description: str = ""
    include_deferred: bool = False
    used: int = 0


_SAVE = upsert(pool, "name", "slots", "description", "include_deferred")
_DELETE = delete(pool).where(pool.c.name == bindparam("wanted"))
_ALL = select(pool.c.name, pool.c.slots, pool.c.description, pool.c.include_deferred).order_by(pool.c.name)
_USED = (
    select(ti.c.pool, func.sum(ti.c.pool_slots)).where(ti.c.state.in_(words(sorted(HOLDS_SLOT)))).group_by(ti.c.pool)
)
_DEFERRED = (
    select(ti.c.pool, func.sum(ti.c.pool_slots)).where(ti.c.state == word(TaskState.DEFERRED)).group_by(ti.c.pool)
)


def pools_in_use(tx: Tx) -> list[Pool]:
    """Every pool with the slots that queued and running tasks hold in it now."""
    used = {name: int(slots) for name, slots in tx.all(_USED)}
    waiting = {name: int(slots) for name, slots in tx.all(_DEFERRED)}
    return [
        Pool(name, slots, text, bool(deferred), used.get(name, 0) + (waiting.get(name, 0) if deferred else 0))
        for name, slots, text, deferred in tx.all(_ALL)
    ]


class Pools:
    """The pools people made, and the default one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, name: str, slots: int, description: str = "", *, include_deferred: bool = False) -> None:
        """Make a pool, or change the one of that name; waiting tasks are looked at again."""
        with self._database.transaction() as tx:
            tx.run(_SAVE, name=name, slots=slots, description=description, include_deferred=int(include_deferred))
            tx.wake(SCHEDULER)

    def delete(self, name: str) -> bool:
        """False: there is no such pool."""
        with self._database.transaction() as tx:
            return tx.run(_DELETE, wanted=name) > 0

    def all(self) -> list[Pool]:
        with self._database.read() as tx:
            return pools_in_use(tx)
