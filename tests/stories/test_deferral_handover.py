"""Triggers change hands without loss: after a clean stop at once, after a death soon, after a freeze without a kill."""

import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stories.deferral import GATES, JOBS, counts, frozen, note_resumptions, notes, open_gate, resumptions, send

from stannel.model.run import Run
from stannel.model.states import TaskState
from stannel.testing import Engine

JOB_COUNT = 200


@pytest.fixture
def jobs(engine: Engine, tmp_path: Path) -> Engine:
    """An engine with everything but triggerers."""
    engine.environ |= {"STORY_GATES": str(tmp_path / "gates"), "STORY_NOTES": str(tmp_path / "notes")}
    engine.add_dag_file("gates.py", GATES)
    engine.add_dag_file("jobs.py", JOBS)
    note_resumptions(engine.store)
    engine.start("standalone", "--no-triggerer")
    return engine


def many_waiting(engine: Engine) -> Run:
    run = engine.trigger("many_jobs")
    engine.wait_until(
        lambda: counts(engine.store, run)["deferred"] == JOB_COUNT, seconds=30, what="not all began to wait"
    )
    engine.store.dags.pause("many_jobs", paused=True)
    return run


def held(engine: Engine, pid: int) -> int:
    """How many triggers this triggerer has."""
    return sum(len(engine.store.triggers.held(one.owner)) for one in engine.leases("triggerer") if one.pid == pid)


def wait_until_held(engine: Engine, pid: int, seconds: float = 30.0) -> None:
    engine.wait_until(
        lambda: held(engine, pid) == JOB_COUNT, seconds=seconds, what=f"process {pid} did not get all triggers"
    )


def wait_until_running(engine: Engine, count: int) -> None:
    is_so = lambda: Counter(line.split()[0] for line in notes(engine))["run"] >= count  # noqa: E731
    engine.wait_until(is_so, seconds=30, what=f"{count} triggers did not run")


def every_wait_ends_once(engine: Engine, run: Run) -> None:
    open_gate(engine, run, "go", "gone")
    engine.wait_until(lambda: not counts(engine.store, run)["deferred"], seconds=30, what="some waits did not end")
    assert sorted(resumptions(engine.store).values()) == [["gone"]] * JOB_COUNT
    assert not [line for line in notes(engine) if line.startswith("kill")]
    assert engine.store.upkeep.check() == []


def test_a_wait_that_was_killed_while_no_triggerer_ran_still_gets_its_on_kill(jobs: Engine) -> None:
    run = jobs.trigger("jobs")
    jobs.wait_for_states(run, job="deferred")
    jobs.store.tasks.set_state(run, [jobs.tasks(run)["job"].pk], TaskState.FAILED, now=datetime.now(UTC))
    jobs.start("triggerer")
    jobs.wait_until(lambda: not jobs.triggers(), seconds=30, what="the killed trigger stayed")
    assert [line.split()[0] for line in notes(jobs)] == ["killing", "killed", "cleanup"]


def test_a_clean_stop_gives_triggers_to_others_at_once(jobs: Engine) -> None:
    # A lease of more than forty seconds: whoever waits for its end fails this test.
    jobs.environ["STANNEL__TRIGGERER__JOB_HEARTBEAT_SEC"] = "20"
    first = jobs.start("triggerer")
    run = many_waiting(jobs)
    wait_until_held(jobs, first.pid)
    wait_until_running(jobs, JOB_COUNT)
    second = jobs.start("triggerer")
    assert jobs.stop(first) == 0
    began = time.monotonic()
    wait_until_held(jobs, second.pid, seconds=15)
    print(f"taken over {1000 * (time.monotonic() - began):.0f} ms after a clean stop")
    every_wait_ends_once(jobs, run)


def test_a_clean_stop_stores_what_was_fired(jobs: Engine) -> None:
    first = jobs.start("triggerer")
    run = many_waiting(jobs)
    wait_until_running(jobs, JOB_COUNT)
    open_gate(jobs, run, "go", "gone")
    jobs.wait_until(lambda: resumptions(jobs.store), seconds=30, what="nothing was fired")
    assert jobs.stop(first) == 0
    # What it had not fired by then, another does.
    jobs.start("triggerer")
    every_wait_ends_once(jobs, run)


def test_the_triggers_of_a_killed_triggerer_are_taken_over_soon(jobs: Engine) -> None:
    first = jobs.start("triggerer")
    run = many_waiting(jobs)
    wait_until_held(jobs, first.pid)
    wait_until_running(jobs, JOB_COUNT)
    second = jobs.start("triggerer")
    began = time.monotonic()
    send(first.pid, signal.SIGKILL)
    wait_until_held(jobs, second.pid)
    print(f"taken over {time.monotonic() - began:.1f} s after a kill")
    every_wait_ends_once(jobs, run)


def test_one_who_was_only_frozen_lets_go_without_killing_anything(jobs: Engine) -> None:
    first = jobs.start("triggerer")
    run = many_waiting(jobs)
    wait_until_held(jobs, first.pid)
    wait_until_running(jobs, JOB_COUNT)
    second = jobs.start("triggerer")
    with frozen(first.pid):
        wait_until_held(jobs, second.pid)
    # It stops what it ran, which others run now, and takes its share again.
    cleaned = lambda: Counter(line.split()[0] for line in notes(jobs))["cleanup"] >= JOB_COUNT  # noqa: E731
    jobs.wait_until(cleaned, seconds=30, what="the revived one went on with what it had lost")
    every_wait_ends_once(jobs, run)
