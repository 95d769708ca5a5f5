"""What the engine does all the time costs the same however much lies behind it: no statement walks through history."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from store.world import KEY, NOW, World, after, outcome, task

from stannel.model.moments import to_micros
from stannel.model.states import RunState, TaskState
from stannel.scheduler.rescue import rescue_lost_attempts
from stannel.store import Store
from stannel.store.attempts import lost_attempts
from stannel.store.dags import due_dags, next_due
from stannel.store.database import Database
from stannel.store.runs import (
    latest_scheduled,
    living_runs,
    mark_follower_dirty,
    next_deadlines,
    overdue_runs,
    previous_run,
    queued_runs,
    running_counts,
    take_dirty,
)
from stannel.store.sql import Tx
from stannel.store.tasks import (
    Without,
    instances_of,
    next_retry,
    runs_with_due_retries,
    scheduled_instances,
    slots_in_use,
)
from stannel.store.vault import Vault

# More than it takes to tell a walk through history from a look at the living; raise it to look closer.
RUNS = int(os.environ.get("STANNEL_TEST_HISTORY", "3000"))
TASKS = 4
# A statement that reads even one page or step for every tenth finished row is far above these.
MOST_STEPS, MOST_PAGES = 2_000, 120

_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
_RUNS = """INSERT INTO dag_run (dag_id, run_id, run_type, state, version, run_after, logical_date, started_at, ended_at,
dirty) {numbers} SELECT 'd', 'old-' || i, CASE WHEN i <= {count} / 2 THEN 'scheduled' ELSE 'manual' END, 'success',
'v', i, CASE WHEN i % 3 > 0 OR i <= {count} / 2 THEN {epoch} + CAST(i AS BIGINT) * 1000000 END, i, i, 0 FROM n"""
_INSTANCES = """INSERT INTO task_instance (run_pk, dag_id, task_id, map_index, state, try_number, attempt_id, pool,
queue, operator, scheduled_at, queued_at, started_at, ended_at) SELECT r.pk, 'd', 't' || n.i, -1, 'success', 1,
r.pk || '-' || n.i, 'default_pool', 'default', 'X', 1, 1, 1, 1 FROM dag_run r, ({few}) n"""
_ATTEMPTS = """INSERT INTO attempt (attempt_id, ti_pk, run_pk, try_number, state, owner, queued_at)
SELECT attempt_id, pk, run_pk, 1, 'success', 'gone', 1 FROM task_instance"""
_XCOMS = """INSERT INTO xcom (run_pk, task_id, map_index, key, value, created_at)
SELECT run_pk, task_id, map_index, 'k', '1', 1 FROM task_instance"""


def make_history(world: World, runs: int) -> None:
    """Finished runs of the DAG `d`: the older half scheduled, the newer made by hand, some of them without a date."""
    few = " UNION ".join(f"SELECT {number} AS i" for number in range(TASKS))
    old = to_micros(NOW - timedelta(days=30))
    world.plant(
        _RUNS.format(numbers=_NUMBERS.format(count=runs), count=runs, epoch=old),
        _INSTANCES.format(few=few),
        _ATTEMPTS,
        _XCOMS,
    )


class Meter:
    """A database that notes what each statement costs: steps of SQLite's machine, or pages PostgreSQL looked at."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address
        self.costs: list[tuple[int, str]] = []

    @property
    def dialect(self) -> Any:
        return self._database.dialect

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        with self._database.transaction() as tx:
            tx._cursor = MeteredCursor(tx, self.costs)
            yield tx

    @contextmanager
    def read(self) -> Iterator[Tx]:
        with self._database.read() as tx:
            tx._cursor = MeteredCursor(tx, self.costs)
            yield tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


class MeteredCursor:
    """A cursor that measures each statement in the very state in which it runs."""

    def __init__(self, tx: Tx, costs: list[tuple[int, str]]) -> None:
        self._cursor: Any = tx._cursor
        self._is_sqlite, self._costs = tx.is_sqlite, costs

    def execute(self, sql: str, params: Any) -> "MeteredCursor":
        if self._is_sqlite:
            self._counted(sql, lambda: self._cursor.execute(sql, params))
        else:
            self._explained(sql, params)
            self._cursor.execute(sql, params)
        return self

    def executemany(self, sql: str, rows: Any, **options: Any) -> None:
        if options:
            for row in rows:
                self._explained(sql, row)
            self._cursor.executemany(sql, rows, **options)
            return
        for row in rows:
            self.execute(sql, row)

    def _counted(self, sql: str, run: Callable[[], object]) -> None:
        steps = [0]

        def count() -> int:
            steps[0] += 50
            return 0

        self._cursor.connection.set_progress_handler(count, 50)
        run()
        # Rows are produced while they are fetched, so that is part of the cost.
        self._rows = self._cursor.fetchall() if self._cursor.description else []
        self._cursor.connection.set_progress_handler(None, 0)
        self._costs.append((steps[0], sql))

    def _explained(self, sql: str, params: Any) -> None:
        if sql.startswith("SELECT pg_"):
            return
        explain = self._cursor.connection.cursor()
        # Explaining a change makes it; it is taken back and then made once more.
        with self._cursor.connection.transaction(force_rollback=True):
            explain.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
            plan = explain.fetchone()[0][0]["Plan"]
        self._costs.append((plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], sql))

    def fetchall(self) -> Any:
        return self._rows if self._is_sqlite else self._cursor.fetchall()

    def fetchone(self) -> Any:
        if not self._is_sqlite:
            return self._cursor.fetchone()
        return self._rows[0] if self._rows else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@pytest.fixture
def meter(world: World) -> Meter:
    """A world with a long past and a little going on in each state there is."""
    world.dag(*(task(f"t{number}", retries=1) for number in range(TASKS)), dag_id="d")
    make_history(world, RUNS)
    for name, moment in (("running", 1e6), ("second", 2e6), ("third", 3e6), ("queued", 4e6)):
        world.new_run(name, logical_date=after(moment), run_after=after(1e6) if name == "queued" else NOW)
    world.start()
    world.schedule()
    world.queue()
    world.lease("w", seconds=10)
    first, second, *_ = world.claim(most=6)
    world.finish(first)
    world.finish(second, TaskState.UP_FOR_RETRY, retry_at=NOW)
    world.store.tasks.clear(world.run("third"), [one.pk for one in world.instances("third")], now=NOW)
    world.schedule()
    world.new_run("fresh")
    world.start()
    if world.store.database.dialect.name == "postgresql":
        world.plant("ANALYZE")
    return Meter(world.store.database)


def in_transaction(function: Callable[[Tx], object]) -> Callable[[Store], object]:
    def run(store: Store) -> object:
        with store.transaction() as tx:
            return function(tx)

    return run


LATER = to_micros(after(100))


def a_run(store: Store, run_id: str = "running") -> Any:
    return store.runs.get("d", run_id)


def finish_one(store: Store) -> object:
    (attempt,) = store.attempts.claim("w", most=1, hostname="h", now=NOW)
    return store.attempts.finish([(attempt, outcome(TaskState.SUCCESS, skip=(("t1", -1),)))])


def clear_all(store: Store, run: Any) -> object:
    return store.tasks.clear(run, [one.pk for one in store.tasks.of_run(run)], now=NOW)


HOT: dict[str, Callable[[Store], object]] = {
    "claim and finish": finish_one,
    "take_dirty": in_transaction(lambda tx: take_dirty(tx, 10)),
    "scheduled_instances": in_transaction(lambda tx: scheduled_instances(tx, 10, Without())),
    "slots_in_use": in_transaction(slots_in_use),
    "lost_attempts": in_transaction(lambda tx: lost_attempts(tx, LATER)),
    "rescue": lambda store: rescue_lost_attempts(store, after(100)),
    "next_due": in_transaction(next_due),
    "due_dags": in_transaction(lambda tx: due_dags(tx, LATER, 10)),
    "next_retry": in_transaction(next_retry),
    "due retries": in_transaction(lambda tx: runs_with_due_retries(tx, LATER)),
    "next_deadlines": in_transaction(lambda tx: next_deadlines(tx, LATER)),
    "overdue_runs": in_transaction(lambda tx: overdue_runs(tx, LATER)),
    "living_runs": in_transaction(lambda tx: living_runs(tx, "d")),
    "queued_runs": in_transaction(lambda tx: queued_runs(tx, LATER)),
    "running_counts": in_transaction(running_counts),
    "latest_scheduled": in_transaction(lambda tx: latest_scheduled(tx, "d")),
    "previous_run": lambda store: in_transaction(lambda tx: previous_run(tx, a_run(store)))(store),
    "follower of an old run": lambda store: in_transaction(lambda tx: mark_follower_dirty(tx, a_run(store, "old-1")))(
        store
    ),
    "instances_of": lambda store: in_transaction(lambda tx: instances_of(tx, a_run(store).pk))(store),
    "still_mine": lambda store: store.attempts.still_mine("w"),
    "attempts": lambda store: store.attempts.of_run(a_run(store)),
    "sweep": lambda store: store.runs.sweep(),
    "pools": lambda store: store.pools.all(),
    "latest": lambda store: store.runs.latest(dag_id="d"),
    "set_state": lambda store: store.runs.set_state(a_run(store), RunState.FAILED, now=NOW),
    "clear": lambda store: store.tasks.clear(
        a_run(store), [one.pk for one in store.tasks.of_run(a_run(store))], now=NOW
    ),
    "delete a run": lambda store: store.runs.delete(a_run(store, "old-1")),
    "pause": lambda store: store.dags.pause("d", paused=True),
    "xcoms": lambda store: store.xcoms.get_prior("d", a_run(store).pk, "t1", -1, "k"),
    "callbacks": lambda store: store.callbacks.claim("w", most=3, now=NOW),
    "renew a lease": lambda store: store.leases.renew("w", now=NOW, seconds=3),
}


def test_nothing_the_engine_does_all_the_time_walks_through_history(meter):
    most = MOST_STEPS if meter.dialect.name == "sqlite" else MOST_PAGES
    store = Store(meter, Vault(KEY))
    too_dear = {}
    for name, verb in HOT.items():
        meter.costs.clear()
        verb(store)
        assert meter.costs, name
        dearest, sql = max(meter.costs)
        if dearest > most:
            too_dear[name] = (dearest, sql)
    assert too_dear == {}


def test_the_meter_sees_a_walk_through_history(meter):
    most = MOST_STEPS if meter.dialect.name == "sqlite" else MOST_PAGES
    with meter.read() as tx:
        tx.all(text("SELECT count(*) FROM task_instance WHERE note = 'x'"))
    assert meter.costs[0][0] > most
