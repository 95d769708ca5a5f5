"""How long an engine takes from the end of one task to the end of the next, in a chain of 20 that do nothing."""

import airflow_side
import harness
import stannel_side


def main() -> None:
    options = harness.options("chain", count=20, repeat=5)
    stannel = ms_per_hop(stannel_side, options)
    airflow = ms_per_hop(airflow_side, options) if options.against_airflow else None
    harness.print_result("chain", "ms/hop", "lower", stannel, airflow, tasks=options.count, store=options.store)


def ms_per_hop(side: harness.Side, options: harness.Options) -> float:
    """The best of several runs: an engine that is warm, on a machine that is left alone."""
    with harness.empty_home() as home:
        harness.write_dag(home / "dags", side.PACKAGE, harness.CHAIN, "chain", options.count)
        with side.running(home, home / "dags", store=options.store, parallelism=options.parallelism) as engine:
            return min(engine.run("chain").ms_per_hop for _ in range(options.repeat))


if __name__ == "__main__":
    main()
