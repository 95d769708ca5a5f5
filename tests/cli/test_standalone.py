"""The whole engine as a user starts and stops it, and the commands that need one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stannel.model.states import RunState
from stannel.testing.engine import Engine

PROGRAM = [sys.executable, "-m", "stannel.cli.main"]
SECONDS = 60

pytestmark = pytest.mark.slow

DAGS = """
import os
from stannel.sdk import Variable, dag, task


@task
def extract():
    print("hello from extract")
    return [1, 2, 3]


@task
def total(numbers):
    return sum(numbers)


@task
def times(number):
    print("got", number)


@task
def wait_for(path):
    with open(path) as gate:
        gate.read()


@task
def fail():
    raise ValueError("oops")


@dag(schedule=None)
def adding():
    total(extract())
    times.expand(number=[7, 8, 9])


@dag(schedule=None)
def failing():
    fail()


@task
def read(key):
    print("read", Variable.get(key))


@dag(schedule=None)
def reading():
    read("kept")


@dag(schedule=None)
def waiting():
    wait_for(os.environ["STANNEL_TEST_GATE"])


adding(), failing(), reading(), waiting()
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a task of `waiting` reads: it runs until the test closes the other end."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def engine(tmp_path: Path, gate: Path) -> Iterator[Engine]:
    with Engine(tmp_path, settings={"STANNEL_TEST_GATE": str(gate)}) as engine:
        engine.add_dag_file("demo.py", DAGS)
        yield engine


def stannel(engine: Engine, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Call the program beside the engine."""
    done = subprocess.run([*PROGRAM, *args], env=engine.environ, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def as_json(engine: Engine, *args: str) -> Any:
    return json.loads(stannel(engine, *args, "-o", "json").stdout)


def hold_a_task_running(engine: Engine, gate: Path) -> int:
    """Trigger `waiting` and return the open end its task reads from, once it reads."""
    engine.trigger("waiting", run_id="held")
    # Opening blocks until the task has opened the other end.
    return os.open(gate, os.O_WRONLY)


def seen_running(engine: Engine) -> bool:
    return any(lease.detail.get("running") for lease in engine.leases("worker"))


def test_a_watched_run_that_succeeds_is_exit_code_0_and_one_that_fails_is_1(engine):
    engine.start()
    engine.wait_for_dag("adding")
    done = stannel(engine, "dags", "trigger", "adding", "--wait")
    assert "total: success" in done.stderr
    assert "succeeded in" in done.stderr
    failed = stannel(engine, "dags", "trigger", "failing", "--wait", code=1)
    assert "fail: failed" in failed.stderr
    assert "ValueError: oops" in stannel(engine, "tasks", "logs", "failing", "fail").stdout
    assert "hello from extract" in stannel(engine, "tasks", "logs", "adding", "extract").stdout


def test_what_is_at_work_is_shown_and_notable_things_are_told(engine):
    process = engine.start()
    engine.wait_for_dag("failing")
    programs = {row["kind"]: row["health"] for row in as_json(engine, "info")["programs"]}
    assert programs == dict.fromkeys(("parser", "scheduler", "triggerer", "worker"), "healthy")
    run = engine.run("failing", run_id="told")
    assert run.state is RunState.FAILED
    engine.wait_until(lambda: "failing told failed" in engine.output.read_text(), seconds=30, what="no line was told")
    assert engine.stop(process) == 0
    assert "DAGs        4" in engine.output.read_text()
    assert engine.output.read_text().rstrip().endswith("stopped")
    assert engine.leases("scheduler") == []


def test_a_second_standalone_on_the_same_home_is_refused(engine):
    process = engine.start()
    refused = stannel(engine, "standalone", code=1)
    assert f"Stannel runs already on {engine.home} (process {process.pid})" in refused.stderr
    engine.stop(process)
    engine.stop(engine.start())


def test_the_first_interrupt_waits_for_running_tasks(engine, gate):
    process = engine.start()
    held = hold_a_task_running(engine, gate)
    engine.wait_until(lambda: seen_running(engine), seconds=30, what="the worker did not say that a task runs")
    process.send_signal(signal.SIGINT)
    engine.wait_until(
        lambda: "waiting for 1 running task; press Ctrl-C again" in engine.output.read_text(),
        seconds=30,
        what="it did not say that it waits",
    )
    assert process.poll() is None
    os.close(held)
    assert process.wait(SECONDS) == 0
    run = engine.store.runs.get("waiting", "held")
    assert engine.states(run) == {"wait_for": "success"}


def test_the_second_interrupt_stops_running_tasks(engine, gate):
    process = engine.start()
    held = hold_a_task_running(engine, gate)
    engine.wait_until(lambda: seen_running(engine), seconds=30, what="the worker did not say that a task runs")
    process.send_signal(signal.SIGINT)
    engine.wait_until(
        lambda: "press Ctrl-C again" in engine.output.read_text(), seconds=30, what="it did not say that it waits"
    )
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0
    os.close(held)
    assert "stopping the running tasks" in engine.output.read_text()
    assert engine.states(engine.store.runs.get("waiting", "held")) == {"wait_for": "failed"}


def test_a_log_is_followed_while_the_task_runs(engine, gate):
    engine.start()
    held = hold_a_task_running(engine, gate)
    following = subprocess.Popen(
        [*PROGRAM, "tasks", "logs", "waiting", "wait_for", "--follow"],
        env={**engine.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert "started as process" in following.stdout.readline()
    assert following.poll() is None
    os.close(held)
    rest, _ = following.communicate(timeout=SECONDS)
    assert "Ended success" in rest
    assert following.returncode == 0


def test_only_a_scheduler_runs_what_a_parser_has_stored(engine):
    parsing = engine.start()
    engine.wait_for_dag("adding")
    engine.stop(parsing)
    process = engine.start("scheduler")
    assert engine.run("adding").state is RunState.SUCCESS
    assert engine.leases("parser") == []
    assert engine.stop(process) == 0


def test_trying_a_dag_out_runs_it_and_records_nothing(engine):
    done = stannel(engine, "dags", "test", "adding")
    assert "hello from extract" in done.stdout
    assert "succeeded in" in done.stderr
    assert engine.store.runs.latest() == []
    assert engine.store.dags.all() == []
    failed = stannel(engine, "dags", "test", "failing", "--quiet", code=1)
    assert "fail: failed" in failed.stderr
    assert "ValueError" not in failed.stdout


def test_trying_a_dag_out_sees_the_variables_of_the_home(engine):
    engine.store.variables.save("kept", "from home")
    assert "read from home" in stannel(engine, "dags", "test", "reading").stdout


def test_trying_a_dag_out_needs_no_home_and_imports_only_the_given_file(engine, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(DAGS.replace("adding", "subtracting"))
    witness = elsewhere / "imported"
    (elsewhere / "other.py").write_text(f"import stannel.sdk as dag\nopen({str(witness)!r}, 'w').close()\n")
    home = tmp_path / "nowhere"
    stannel(engine, "--home", str(home), "dags", "test", "subtracting", "--file", str(elsewhere / "mine.py"))
    assert not witness.exists()
    assert not home.exists()


def test_trying_a_task_out_leaves_its_dependencies_alone(engine):
    done = stannel(engine, "tasks", "test", "adding", "times", "--map-index", "1")
    assert "got 8" in done.stdout
    assert "got 7" not in done.stdout
    assert "hello from extract" not in done.stdout
    assert "extract" not in done.stderr
    assert "ValueError: oops" in stannel(engine, "tasks", "test", "failing", "fail", code=1).stdout
    assert "choose one of its instances" in stannel(engine, "tasks", "test", "adding", "times", code=1).stderr
    assert "did you mean times?" in stannel(engine, "tasks", "test", "adding", "time", code=1).stderr
    assert engine.store.runs.latest() == []


def test_trying_out_an_unknown_dag_names_the_files_that_are_broken(engine):
    engine.add_dag_file("broken.py", "from stannel.sdk import dag\nraise RuntimeError('on purpose')\n")
    refused = stannel(engine, "dags", "test", "addin", code=1)
    assert "did you mean adding" in refused.stderr
    assert "on purpose" in refused.stderr
