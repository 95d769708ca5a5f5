"""How long it takes from the moment a trigger fires to the first line of the code that goes on."""

import statistics

import airflow_side
import harness
import stannel_side
import waits

# Every task waits in its trigger by then, in both engines.
LEAD_SECONDS = 15
# One at a time, and out of step with anything that happens every second.
APART_SECONDS = 0.73
TASKS = """\
with DAG("resume", schedule=None, max_active_tasks={count}):
    for number in range({count}):
        Wait(task_id=f"wait_{{number}}", after={lead} + number * {apart}, notes=notes)
"""


def main() -> None:
    options = harness.options("resume", count=40)
    stannel = latencies(stannel_side, options)
    airflow = latencies(airflow_side, options) if options.against_airflow else None
    harness.print_result(
        "resume", "ms until resumed, p50", "lower", statistics.median(stannel), airflow and statistics.median(airflow),
        p95=p95(stannel), airflow_p95=airflow and p95(airflow), longest=max(stannel),
        airflow_longest=airflow and max(airflow), deferrals=options.count, store=options.store,
    )  # fmt: skip


def latencies(side: harness.Side, options: harness.Options) -> list[float]:
    """Milliseconds of each deferral, by the clock of the machine that both halves of it read."""
    with harness.empty_home() as home:
        dag = TASKS.format(count=options.count, lead=LEAD_SECONDS, apart=APART_SECONDS)
        notes = waits.write(home, dag, "resume")
        with side.running(home, home / "dags", store=options.store, parallelism=options.parallelism) as engine:
            engine.run("resume")
        lines = [line.split() for line in (notes / "resumed").read_text().splitlines()]
    if len(lines) != options.count:
        raise RuntimeError(f"{options.count} tasks deferred, {len(lines)} were resumed")
    return [(float(resumed) - float(fired)) * 1000 for fired, resumed in lines]


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


if __name__ == "__main__":
    main()
