"""How soon a fresh installation has run its first task, and what it costs when there is nothing to do."""

import functools
import time
from dataclasses import dataclass

import airflow_side
import harness
import stannel_side

# Long enough for start-up work to end and for slow periodic work to show.
SETTLE_SECONDS, IDLE_SECONDS = 10, 15


@dataclass(frozen=True)
class Measured:
    first_task_seconds: float
    ready_seconds: float
    idle_pss_mb: float
    idle_cpu_percent: float
    processes: int


def main() -> None:
    options = harness.options("standalone", stores=["sqlite"])
    stannel = measure(stannel_side.PACKAGE, stannel_side.running, options)
    # A second is Airflow's own default; anything shorter would make it look worse when idle.
    start_airflow = functools.partial(airflow_side.running, idle_sleep=1)
    airflow = measure(airflow_side.PACKAGE, start_airflow, options) if options.against_airflow else None
    harness.print_result(
        "standalone", "s to first task done", "lower",
        stannel.first_task_seconds, airflow and airflow.first_task_seconds,
        **{name: getattr(stannel, name) for name in Measured.__dataclass_fields__},
        **{f"airflow_{name}": getattr(airflow, name) for name in Measured.__dataclass_fields__ if airflow},
    )  # fmt: skip


def measure(package: str, start: harness.Start, options: harness.Options) -> Measured:
    with harness.empty_home() as home:
        harness.write_dag(home / "dags", package, harness.ONCE, "once")
        started = time.time()
        with start(home, home / "dags", store=options.store, parallelism=options.parallelism) as engine:
            harness.wait_for(engine.is_ready, "readiness", 180, every=0.02)
            ready = time.time()
            ended = harness.wait_for(lambda: engine.first_task_end("once"), "the first task's end", 180)
            time.sleep(SETTLE_SECONDS)
            cpu = harness.idle_cpu_percent(engine.pid, IDLE_SECONDS)
            tree = harness.process_tree(engine.pid)
            return Measured(ended - started, ready - started, harness.pss_mb(tree), cpu, len(tree))


if __name__ == "__main__":
    main()
