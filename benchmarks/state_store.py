"""How fast a task uses its state store, beside Airflow's, and whether ten million keys of others slow it down."""

import contextlib
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import airflow_side
import harness
import stannel_side
from rows import Execute, copy, numbers, writing

from stannel.model.state_store import TaskScope
from stannel.settings import load_settings
from stannel.store.opening import open_store
from stannel.store.state_stores import TaskKeeper

ROUNDS, AIRFLOW_ROUNDS = 2000, 200
KEYS_OF_A_RUN = 10_000
LOOKS = 2000
# What is kept is about as long as an id and a cursor.
DAG = """\
from pathlib import Path
from time import perf_counter

from {package} import DAG, task

KEYS = [f"cursor/{{number}}" for number in range(100)]
VALUE = {{"job": "application_1700000000000_0042", "position": 123456789, "at": "2026-11-15T06:30:00+00:00"}}


def operations(task_state_store=None):
    for key in KEYS:
        task_state_store.set(key, VALUE)
        assert task_state_store.get(key) == VALUE
    begun = perf_counter()
    for number in range({rounds}):
        task_state_store.set(KEYS[number % 100], VALUE)
    written = perf_counter()
    for number in range({rounds}):
        task_state_store.get(KEYS[number * 7 % 100])
    read = perf_counter()
    with Path({notes!r}).open("a") as notes:
        print(written - begun, read - written, file=notes)


with DAG("operations", schedule=None):
    task(operations)()
"""


def main() -> None:
    options = harness.options("state-store", count=10_000_000, repeat=5)
    empty, full, looks = stannel_pace(options)
    airflow = airflow_pace(options) if options.against_airflow else None
    sets, gets = empty
    harness.print_result(
        "state-store", "operations/s", "higher", together(sets, gets), airflow and together(*airflow),
        sets=sets, gets=gets, airflow_sets=airflow and airflow[0], airflow_gets=airflow and airflow[1],
        get_growth=gets / full[1], set_growth=sets / full[0], store_get_growth=looks[1] / looks[0],
        store_get_microseconds=looks[1], keys=options.count, store=options.store,
    )  # fmt: skip


def together(sets: float, gets: float) -> float:
    """Operations per second when one is followed by the other."""
    return 2 / (1 / sets + 1 / gets)


Pace = tuple[float, float]
Measure = Callable[[], Pace]


def stannel_pace(options: harness.Options) -> tuple[Pace, Pace, Pace]:
    """Sets and gets per second in an empty store and in a full one, measured in turn; then a get of the store alone."""
    with contextlib.ExitStack() as stack:
        empty, look_empty = stack.enter_context(engine_with(options, keys=0))
        full, look_full = stack.enter_context(engine_with(options, keys=options.count))
        rounds = [(empty(), full()) for _ in range(options.repeat)]
        looks = [(look_empty(), look_full()) for _ in range(options.repeat)]
    return (
        medians([one for one, _ in rounds]),
        medians([one for _, one in rounds]),
        (statistics.median(one for one, _ in looks), statistics.median(one for _, one in looks)),
    )


def medians(paces: list[Pace]) -> Pace:
    return statistics.median(sets for sets, _ in paces), statistics.median(gets for _, gets in paces)


@contextlib.contextmanager
def engine_with(options: harness.Options, keys: int) -> Iterator[tuple[Measure, Callable[[], float]]]:
    """A running engine whose store holds so many keys of past runs."""
    with harness.empty_home() as home, stannel_side.database(home, options.store) as (address, query):
        notes = write_dag(home, stannel_side.PACKAGE, ROUNDS)
        start = functools.partial(stannel_side.running_on, home, home / "dags", address, query, options.parallelism)
        with start() as engine:
            engine.run("operations")
        if keys:
            harness.note(f"writing {keys:,} keys")
        with writing(address) as execute:
            write_keys(execute, keys, is_sqlite=options.store == "sqlite")
        # Otherwise the disk is still busy with all these keys while others are measured.
        os.sync()
        with start() as engine:
            engine.run("operations")
            notes.unlink()
            yield functools.partial(measured, engine, notes, ROUNDS), functools.partial(looked, home, address)


def measured(engine: harness.Engine, notes: Path, rounds: int) -> Pace:
    engine.run("operations")
    *_, last = notes.read_text().splitlines()
    sets, gets = (rounds / float(seconds) for seconds in last.split())
    return sets, gets


def looked(home: Path, address: str) -> float:
    """Microseconds of a get by the store's own verb, without a task around it."""
    store = open_store(load_settings(home, {"STANNEL__DATABASE__SQL_ALCHEMY_CONN": address}))
    try:
        run = next(one for one in store.runs.latest(dag_id="operations") if one.run_id.startswith("bench_"))
        keeper = TaskKeeper(run.pk, TaskScope("operations", run.run_id, "operations"))
        now, begun = datetime.now(UTC), time.perf_counter()
        for number in range(LOOKS):
            if store.state_stores.get(keeper, f"cursor/{number % 100}", now=now) is None:
                raise RuntimeError("a key is missing")
        return (time.perf_counter() - begun) / LOOKS * 1e6
    finally:
        store.close()


def write_keys(execute: Execute, count: int, *, is_sqlite: bool) -> None:
    """Copy the first run many times into the past, each with keys of its own."""
    if not count:
        return
    [(run,)] = execute("SELECT min(pk) FROM dag_run WHERE state = 'success'")
    runs = max(count // KEYS_OF_A_RUN, 1)
    earlier = "- n.i * CAST(60000000 AS BIGINT)"
    moved = {
        name: f"r.{name} {earlier}" for name in ("logical_date", "run_after", "queued_at", "started_at", "ended_at")
    }
    copy(
        execute, "dag_run", "r", {**moved, "pk": None, "run_id": "'past_' || n.i"},
        f"dag_run AS r CROSS JOIN {numbers(runs, is_sqlite=is_sqlite)} AS n WHERE r.pk = {run}",
    )  # fmt: skip
    per_run = -(-count // runs)
    copy(
        execute, "task_state", "s", {"run_pk": "p.pk", "key": "'cursor/' || (100000 + n.i)"},
        f"""dag_run AS p CROSS JOIN {numbers(per_run, is_sqlite=is_sqlite)} AS n
            CROSS JOIN (SELECT * FROM task_state WHERE run_pk = {run} LIMIT 1) AS s
            WHERE p.run_id LIKE 'past_%' ORDER BY p.pk, n.i""",
    )  # fmt: skip


def airflow_pace(options: harness.Options) -> Pace:
    with harness.empty_home() as home:
        notes = write_dag(home, airflow_side.PACKAGE, AIRFLOW_ROUNDS)
        with airflow_side.running(home, home / "dags", store=options.store, parallelism=options.parallelism) as engine:
            return medians([measured(engine, notes, AIRFLOW_ROUNDS) for _ in range(2)])


def write_dag(home: Path, package: str, rounds: int) -> Path:
    notes = home / "notes"
    (home / "dags").mkdir()
    (home / "dags" / "operations.py").write_text(DAG.format(package=package, rounds=rounds, notes=str(notes)))
    return notes


if __name__ == "__main__":
    sys.exit(main())
