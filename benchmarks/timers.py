"""How fast timers that are due at the same moment are stored: from then until none of their tasks is deferred."""

import time

import harness
import waits

# Airflow stores them one by one: so many are enough to know its pace.
AIRFLOW_COUNT = 2_000
# Seconds to write the rows, and for a triggerer to start and have all of them wait, before the moment comes.
STANNEL_LEAD, AIRFLOW_LEAD = 15.0, 40.0
MARKERS = 20
PATIENCE = 300


def main() -> None:
    options = harness.options("timers", count=50_000)
    few = options.count // 5
    with waits.stannel(options) as store:
        stannel = seconds_to_store(store, STANNEL_LEAD, moments=options.count)
        coroutines = seconds_to_store(store, STANNEL_LEAD, coroutines=few)
    airflow = None
    if options.against_airflow:
        with waits.airflow(options) as other:
            airflow = seconds_to_store(other, AIRFLOW_LEAD, moments=AIRFLOW_COUNT - MARKERS, coroutines=MARKERS)
    harness.print_result(
        "timers", "timers stored/s", "higher", options.count / stannel, airflow and AIRFLOW_COUNT / airflow,
        timers=options.count, seconds=stannel, lost=0, coroutines=few, coroutine_seconds=coroutines,
        coroutines_per_second=few / coroutines, airflow_timers=AIRFLOW_COUNT if airflow else None,
        airflow_seconds=airflow, store=options.store,
    )  # fmt: skip


def seconds_to_store(store: waits.Waiting, lead: float, *, moments: int = 0, coroutines: int = 0) -> float:
    """Seconds from the moment for which all of them wait until all are stored. A lost one is an error."""
    count = moments + coroutines
    harness.note(f"{type(store).__name__}: {moments:,} moments, {coroutines:,} coroutines")
    moment = time.time() + lead
    store.fill(moments=moments, coroutines=coroutines, moment=moment)
    with store.triggerer(capacity=count) as process:
        time.sleep(max(moment - 0.5 - time.time(), 0))
        if store.states() != {"deferred": count} or store.started() < coroutines:
            raise RuntimeError(f"half a second before the moment only {store.started()} of {coroutines} wait")
        harness.wait_for(lambda: not store.is_anyone_deferred(), f"the end of {count} waits", PATIENCE, 0.02, process)
        seconds = time.time() - moment
    if store.states() != {"scheduled": count}:
        raise RuntimeError(f"of {count} tasks not all are resumed: {store.states()}")
    return seconds


if __name__ == "__main__":
    main()
