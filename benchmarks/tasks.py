"""How many tasks that do nothing an engine runs in a second: 200 independent ones in one run."""

import airflow_side
import fork_floor
import harness
import stannel_side


def main() -> None:
    options = harness.options("tasks", count=200, repeat=3)
    floor = fork_floor.forks_per_second(options.parallelism)
    stannel = tasks_per_second(stannel_side, options)
    floor = max(floor, fork_floor.forks_per_second(options.parallelism))
    serial = fork_floor.forks_per_second(1)
    airflow = tasks_per_second(airflow_side, options) if options.against_airflow else None
    harness.print_result(
        "tasks", "tasks/s", "higher", stannel, airflow, fork_floor=floor, of_floor=stannel / floor,
        serial_floor=serial, of_serial_floor=stannel / serial,
        tasks=options.count, parallelism=options.parallelism, store=options.store,
    )  # fmt: skip


def tasks_per_second(side: harness.Side, options: harness.Options) -> float:
    """The best of several runs: an engine that is warm, on a machine that is left alone."""
    with harness.empty_home() as home:
        harness.write_dag(home / "dags", side.PACKAGE, harness.INDEPENDENT, "wide", options.count)
        with side.running(home, home / "dags", store=options.store, parallelism=options.parallelism) as engine:
            return max(engine.run("wide").tasks_per_second for _ in range(options.repeat))


if __name__ == "__main__":
    main()
