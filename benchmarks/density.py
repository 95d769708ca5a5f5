"""What idle triggers cost in one triggerer: seconds until all of them wait, memory of each, processor time.

Triggers that only wait for a moment (DateTimeTrigger) are rows in Stannel, which no process holds: the case "moments".
Triggers with code of their own are coroutines in both engines: the case "coroutines".
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import harness
import waits

MANY = 100_000
# Memory is looked at when what was needed to start is given back, and processor time for long enough to be seen.
SETTLE_SECONDS, IDLE_SECONDS = 4, 6
START_SECONDS = 300
# Among Airflow's DateTimeTriggers, which do not tell when they begin: the last of these is as good as the last of all.
MARKERS = 20


@dataclass(frozen=True)
class Cost:
    seconds: float
    kb_each: float
    cpu_percent: float


def main() -> None:
    options = harness.options("density", count=10_000)
    cases = stannel_costs(options)
    airflow = airflow_cost(options) if options.against_airflow else None
    moments = cases[f"moments_{options.count}"]
    harness.print_result(
        "density", "s until all triggers wait", "lower", moments.seconds, airflow and airflow.seconds,
        triggers=options.count, store=options.store,
        **{case: rounded(cost) for case, cost in cases.items()},
        **{f"airflow_{options.count}": rounded(airflow) for _ in range(1) if airflow},
    )  # fmt: skip


def rounded(cost: Cost) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(cost).items()}


def stannel_costs(options: harness.Options) -> dict[str, Cost]:
    cases = {}
    with waits.stannel(options) as store:
        idle = memory_with_none(store)
        for count in sorted({options.count, MANY}):
            harness.note(f"Stannel: {count:,} moments")
            store.fill(moments=count)
            # That it is resumed says that the triggerer looks after all of them.
            store.have_one_due()
            cases[f"moments_{count}"] = measure(store, count, idle, store.is_one_resumed)
        harness.note(f"Stannel: {options.count:,} coroutines")
        store.fill(coroutines=options.count)
        cases[f"coroutines_{options.count}"] = measure(
            store, options.count, idle, lambda: store.started() >= options.count
        )
    return cases


def airflow_cost(options: harness.Options) -> Cost:
    with waits.airflow(options) as store:
        idle = memory_with_none(store)
        harness.note(f"Airflow: {options.count:,} moments")
        store.fill(moments=options.count - MARKERS, coroutines=MARKERS)
        return measure(store, options.count, idle, lambda: store.started() >= MARKERS)


def memory_with_none(store: waits.Waiting) -> float:
    store.fill()
    with store.triggerer(capacity=1) as process:
        harness.wait_for(store.is_triggerer_at_work, "the triggerer's first sign of life", 60, process=process)
        time.sleep(SETTLE_SECONDS)
        return harness.pss_mb(harness.process_tree(process.pid))


def measure(store: waits.Waiting, count: int, idle: float, do_all_wait: Callable[[], bool]) -> Cost:
    """The cost of those who wait in the store; the seconds begin with the triggerer's process."""
    started = time.monotonic()
    with store.triggerer(capacity=count) as process:
        harness.wait_for(do_all_wait, f"the start of {count} triggers", START_SECONDS, 0.01, process)
        seconds = time.monotonic() - started
        time.sleep(SETTLE_SECONDS)
        memory = harness.pss_mb(harness.process_tree(process.pid))
        return Cost(seconds, (memory - idle) * 1024 / count, harness.idle_cpu_percent(process.pid, IDLE_SECONDS))


if __name__ == "__main__":
    main()
