"""Whether work gets dearer as the store fills: the chain's hop with a million finished task instances and without."""

import contextlib
import functools
import os
import statistics
from collections.abc import Callable, Iterator

import airflow_side
import harness
import stannel_side
from rows import Execute, copy, numbers, writing

LINKS = 20
AIRFLOW_RUNS = 3
PACE_MICROSECONDS = 60_000_000

StartEngine = Callable[[], contextlib.AbstractContextManager[stannel_side.Stannel]]


def main() -> None:
    options = harness.options("history", count=1_000_000, repeat=10)
    empty, full = stannel_hops(options)
    airflow = airflow_hops(options) if options.against_airflow else None
    harness.print_result(
        "history", "ms/hop", "lower", full, airflow and airflow[1], growth=full / empty, empty=empty,
        airflow_growth=airflow and airflow[1] / airflow[0], task_instances=options.count, store=options.store,
    )  # fmt: skip


def stannel_hops(options: harness.Options) -> tuple[float, float]:
    """ms per hop in an empty store and in a full one, measured in turn: what disturbs the machine meets both."""
    with contextlib.ExitStack() as stack:
        empty = stack.enter_context(prepared_store(options, runs=0))
        full = stack.enter_context(prepared_store(options, runs=options.count // LINKS))
        empty_engine, full_engine = stack.enter_context(empty()), stack.enter_context(full())
        for engine in (empty_engine, full_engine):
            engine.run("chain")
        hops = [(hop(empty_engine), hop(full_engine)) for _ in range(options.repeat)]
        return statistics.median(hop for hop, _ in hops), statistics.median(hop for _, hop in hops)


@contextlib.contextmanager
def prepared_store(options: harness.Options, runs: int) -> Iterator[StartEngine]:
    """A store with a past of `runs` finished runs, and how to start an engine on it."""
    with harness.empty_home() as home, stannel_side.database(home, options.store) as (address, query):
        dags = home / "dags"
        harness.write_dag(dags, stannel_side.PACKAGE, harness.CHAIN, "chain", LINKS)
        start = functools.partial(stannel_side.running_on, home, dags, address, query, options.parallelism)
        with start() as engine:
            engine.run("chain")
        if runs:
            harness.note(f"writing {runs * LINKS:,} finished task instances")
        with writing(address) as execute:
            write_stannel_history(execute, runs, is_sqlite=options.store == "sqlite")
        # Otherwise the disk is still busy with all that history while the hops are measured.
        os.sync()
        yield start


def airflow_hops(options: harness.Options) -> tuple[float, float]:
    """The same for Apache Airflow, on PostgreSQL; one after the other, for two of it would be in each other's way."""
    with harness.empty_home() as home:
        dags = home / "dags"
        harness.write_dag(dags, airflow_side.PACKAGE, harness.CHAIN, "chain", LINKS)
        with airflow_side.running(home, dags, store="postgres", parallelism=options.parallelism) as engine:
            engine.run("chain")
            empty = statistics.median(hop(engine) for _ in range(AIRFLOW_RUNS))
            harness.note(f"writing {options.count:,} finished task instances")
            with writing(engine.env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "")) as execute:
                write_airflow_history(execute, options.count // LINKS)
            return empty, statistics.median(hop(engine) for _ in range(AIRFLOW_RUNS))


def hop(engine: harness.Engine) -> float:
    return engine.run("chain").ms_per_hop


# --- writing history: one finished run of the engine's own, many times over ----------------------------------------


def write_stannel_history(execute: Execute, runs: int, *, is_sqlite: bool) -> None:
    """Copy the first finished run of the chain `runs` times into the past: its task instances and attempts too."""
    [(run,)] = execute("SELECT min(pk) FROM dag_run WHERE state = 'success'")
    earlier = f"- n.i * CAST({PACE_MICROSECONDS} AS BIGINT)"
    moved = {
        name: f"r.{name} {earlier}" for name in ("logical_date", "run_after", "queued_at", "started_at", "ended_at")
    }
    copy(
        execute, "dag_run", "r", {**moved, "pk": None, "run_id": "'past_' || n.i"},
        f"dag_run AS r CROSS JOIN {numbers(runs, is_sqlite=is_sqlite)} AS n WHERE r.pk = {run}",
    )  # fmt: skip
    copy(
        execute, "task_instance", "t", {"pk": None, "run_pk": "p.pk", "attempt_id": "t.attempt_id || p.pk"},
        f"task_instance AS t CROSS JOIN dag_run AS p WHERE t.run_pk = {run} AND p.run_id LIKE 'past_%'",
    )  # fmt: skip
    copy(
        execute, "attempt", "a", {"attempt_id": "t.attempt_id", "ti_pk": "t.pk", "run_pk": "t.run_pk"},
        f"""task_instance AS first JOIN attempt AS a ON a.ti_pk = first.pk
            JOIN task_instance AS t ON t.task_id = first.task_id AND t.run_pk <> {run}
            JOIN dag_run AS p ON p.pk = t.run_pk AND p.run_id LIKE 'past_%' WHERE first.run_pk = {run}""",
    )  # fmt: skip


def write_airflow_history(execute: Execute, runs: int) -> None:
    [(run,)] = execute("SELECT min(id) FROM dag_run WHERE state = 'success'")
    [(run_id,)] = execute(f"SELECT run_id FROM dag_run WHERE id = {run}")
    earlier = "- n.i * interval '1 minute'"
    copy(
        execute, "dag_run", "r",
        {"id": None, "run_id": "'past_' || n.i", "logical_date": f"coalesce(r.logical_date, r.run_after) {earlier}",
         "run_after": f"r.run_after {earlier}", "start_date": f"r.start_date {earlier}"},
        f"dag_run AS r CROSS JOIN {numbers(runs, is_sqlite=False)} AS n WHERE r.id = {run}",
    )  # fmt: skip
    copy(
        execute, "task_instance", "t", {"id": "gen_random_uuid()", "run_id": "p.run_id"},
        f"task_instance AS t CROSS JOIN dag_run AS p WHERE t.run_id = '{run_id}' AND p.run_id LIKE 'past_%'",
    )  # fmt: skip


if __name__ == "__main__":
    main()
