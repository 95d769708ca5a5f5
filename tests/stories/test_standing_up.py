"""Starting, stopping, taking over: programs come and go, the work goes on."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from support.postgres import running_postgres

from stannel.errors import DiskFull, StannelError
from stannel.testing import Engine

GATED = """
    import os, time
    from datetime import timedelta
    from stannel.sdk import DAG, task

    with DAG("gated", schedule=None, max_active_tasks=100):
        @task(retries=2, retry_delay=timedelta(0))
        def until_told(number):
            print("at work")
            while not os.path.exists(os.environ["STORY_GO"]):
                time.sleep(0.01)
            with open(os.environ["STORY_NOTES"], "a") as notes:
                notes.write(f"{number}\\n")
        until_told.expand(number=list(range(8)))
"""


@pytest.fixture
def gated(engine: Engine, tmp_path: Path) -> Engine:
    engine.environ |= {"STORY_GO": str(tmp_path / "go"), "STORY_NOTES": str(tmp_path / "notes")}
    engine.add_dag_file("gated.py", GATED)
    return engine


def running(engine: Engine, count: int) -> None:
    run = engine.store.runs.latest()[0]

    def are_running() -> bool:
        return list(engine.states(run).values()).count("running") == count

    engine.wait_until(are_running, seconds=30, what=f"{count} tasks did not start")


def open_the_gate(engine: Engine) -> None:
    Path(engine.environ["STORY_GO"]).touch()


def fill_the_store(engine: Engine) -> None:
    for number in range(2000):
        engine.trigger("small", run_id=f"filling {number}")


def test_a_clean_stop_waits_for_what_runs(gated: Engine) -> None:
    process = gated.start()
    run = gated.trigger("gated")
    running(gated, 8)
    process.send_signal(signal.SIGTERM)
    open_the_gate(gated)
    assert process.wait(30) == 0
    assert list(gated.states(run).values()) == ["success"] * 8
    assert list(gated.processes()) == []
    assert gated.store.leases.all() == []


def test_tasks_survive_the_death_of_the_main_process(gated: Engine) -> None:
    process = gated.start()
    run = gated.trigger("gated")
    running(gated, 8)
    process.kill()
    process.wait()
    gated.start()
    open_the_gate(gated)
    assert gated.wait_for_run(run).state == "success"
    notes = Path(gated.environ["STORY_NOTES"]).read_text().splitlines()
    assert sorted(map(int, notes)) == list(range(8))
    assert {one.try_number for one in gated.tasks(run).values()} == {1}


def test_a_dead_workers_tasks_are_taken_up_by_the_next(gated: Engine) -> None:
    gated.start()
    run = gated.trigger("gated")
    running(gated, 8)
    [worker] = gated.leases("worker")
    os.kill(worker.pid, signal.SIGKILL)

    def second_tries() -> bool:
        return {one.try_number for one in gated.tasks(run).values()} == {2}

    gated.wait_until(second_tries, seconds=20, what="the tasks were not tried again")
    open_the_gate(gated)
    assert gated.wait_for_run(run).state == "success"


def test_a_worker_that_was_frozen_too_long_writes_nothing_any_more(gated: Engine) -> None:
    gated.start()
    run = gated.trigger("gated")
    running(gated, 8)
    [worker] = gated.leases("worker")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        taken_back = lambda: {str(one.state) for one in gated.tasks(run).values()} & {"up_for_retry", "queued"}  # noqa: E731
        gated.wait_until(taken_back, seconds=20, what="the tasks were not taken from the frozen worker")
        open_the_gate(gated)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert gated.wait_for_run(run).state == "success"
    successes = [one.ti_pk for one in gated.store.attempts.of_run(run) if one.state == "success"]
    assert len(successes) == len(set(successes)) == 8
    assert gated.store.upkeep.check() == []


def test_two_schedulers_share_one_database_and_do_nothing_twice(tmp_path: Path, postgres_url: str) -> None:
    source = """
        import os
        from stannel.sdk import DAG, task
        with DAG("shared", schedule=None, max_active_tasks=100):
            @task
            def once(number):
                with open(os.environ["STORY_NOTES"], "a") as notes:
                    notes.write(f"{number}\\n")
            once.expand(number=list(range(100)))
    """
    with Engine(tmp_path, database=postgres_url) as engine:
        engine.environ["STORY_NOTES"] = str(tmp_path / "notes")
        engine.add_dag_file("shared.py", source)
        engine.start()
        engine.start("scheduler")
        assert len(engine.leases("scheduler")) == 2
        runs = [engine.trigger("shared", run_id=f"run{number}") for number in range(3)]
        assert [engine.wait_for_run(run).state for run in runs] == ["success"] * 3
        notes = (tmp_path / "notes").read_text().splitlines()
        assert sorted(map(int, notes)) == sorted([*range(100)] * 3)
        assert engine.store.upkeep.check() == []


def test_a_second_standalone_on_one_home_is_refused(sqlite_engine: Engine) -> None:
    sqlite_engine.start()
    with pytest.raises(Exception, match="runs already"):
        sqlite_engine.start()


def test_a_new_file_is_live_and_a_deleted_one_leaves_its_history(sqlite_engine: Engine) -> None:
    engine = sqlite_engine
    engine.start()
    file = engine.add_dag_file("late.py", "from stannel.sdk import DAG\nwith DAG('late', schedule=None): pass\n")
    run = engine.run("late")
    file.unlink()
    engine.wait_until(lambda: not engine.store.dags.get("late").is_active, seconds=10, what="the DAG stayed")
    assert engine.store.runs.get("late", run.run_id).state == "success"


def test_a_full_disk_stops_nothing_for_good(tmp_path: Path) -> None:
    """A home on a small file system of its own; it fills up, the engine says so, room is made, work goes on."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.system(f"mount -t tmpfs -o size=6m tmpfs {mount} 2>/dev/null"):
        pytest.skip("a small file system cannot be mounted here")
    try:
        with Engine(mount) as engine:
            engine.output = tmp_path / "standalone.out"
            engine.add_dag_file(
                "small.py",
                """
                from stannel.sdk import DAG, task
                with DAG("small", schedule=None):
                    @task
                    def fine(): pass
                    fine()
                """,
            )
            engine.start()
            assert engine.run("small").state == "success"
            ballast = mount / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb") as out:
                while True:
                    out.write(b"x" * 4096)
                    out.flush()
            with pytest.raises(DiskFull):
                fill_the_store(engine)
            ballast.unlink()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(Exception):
                    assert engine.run("small", run_id=f"after {time.monotonic()}").state == "success"
                    break
            else:
                pytest.fail("the engine did not recover")
            assert engine.store.upkeep.check() == []
    finally:
        os.system(f"umount -l {mount}")


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid:
                    found += tree_of(int(entry.name))
    return found


@pytest.mark.parametrize("outage", ["frozen", "crashed"])
def test_a_database_that_is_away_for_seconds_costs_no_task(tmp_path: Path, outage: str) -> None:
    with running_postgres(durable=True) as server, Engine(tmp_path, database=server.url()) as engine:
        engine.environ |= {"STORY_GO": str(tmp_path / "go"), "STORY_NOTES": str(tmp_path / "notes")}
        engine.add_dag_file("gated.py", GATED)
        engine.start()
        run = engine.trigger("gated")
        running(engine, 8)
        if outage == "frozen":
            processes = tree_of(server.pid)
            for pid in processes:
                os.kill(pid, signal.SIGSTOP)
            # Longer than a lease: whoever counts silence alone would take everybody for dead.
            time.sleep(5)
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        else:
            # One backend killed hard: the server ends all the others and recovers.
            os.kill(tree_of(server.pid)[-1], signal.SIGKILL)
        open_the_gate(engine)

        def has_ended() -> bool:
            with contextlib.suppress(StannelError):
                return engine.store.runs.get(run.dag_id, run.run_id).state == "success"
            return False

        deadline = time.monotonic() + 60
        while not has_ended():
            assert time.monotonic() < deadline, engine.states(run)
            time.sleep(0.1)
        assert {one.try_number for one in engine.tasks(run).values()} == {1}
        assert engine.store.upkeep.check() == []


def test_callbacks_run_though_every_slot_is_taken(tmp_path: Path) -> None:
    source = """
        import os, signal
        from stannel.sdk import DAG, task
        def note(context):
            with open(os.environ["STORY_NOTES"], "a") as notes:
                notes.write("called back\\n")
        with DAG("dies", schedule=None):
            @task(on_failure_callback=note)
            def dies(): os.kill(os.getpid(), signal.SIGKILL)
            dies()
    """
    # One slot: it frees itself for the gated task the moment the other one has died.
    with Engine(tmp_path, settings={"STANNEL__CORE__PARALLELISM": "1"}) as engine:
        engine.environ |= {"STORY_GO": str(tmp_path / "go"), "STORY_NOTES": str(tmp_path / "notes")}
        engine.add_dag_file("dies.py", source)
        engine.add_dag_file("gated.py", GATED)
        engine.start()
        engine.trigger("dies")
        engine.trigger("gated")
        engine.wait_until((tmp_path / "notes").exists, seconds=20, what="the callback did not run")
        open_the_gate(engine)
