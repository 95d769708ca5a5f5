"""A triggerer as a user starts and stops it."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stannel.model.run import Run
from stannel.testing.engine import Engine

PROGRAM = [sys.executable, "-m", "stannel.cli.main"]
SECONDS = 60

DAGS = """
import asyncio
from stannel.sdk import BaseOperator, dag
from stannel.triggers.base import BaseTrigger, TriggerEvent


class Gate(BaseTrigger):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def serialize(self):
        return f"{type(self).__module__}.{type(self).__qualname__}", {"path": self.path}

    async def run(self):
        print("looking at", self.path)
        while not await asyncio.to_thread(__import__("os").path.exists, self.path):
            await asyncio.sleep(0.02)
        yield TriggerEvent("open")


class Stubborn(Gate):
    async def cleanup(self):
        print("not leaving")
        await asyncio.Event().wait()


class WaitForGate(BaseOperator):
    def __init__(self, *, path, trigger_class=Gate, trigger_queue=None, **kwargs):
        super().__init__(**kwargs)
        self.path, self.trigger_class, self.trigger_queue = path, trigger_class, trigger_queue

    def execute(self, context):
        trigger = self.trigger_class(self.path)
        trigger.queue = self.trigger_queue
        self.defer(trigger=trigger, method_name="resume")

    def resume(self, context, event):
        print("the gate is", event)


@dag(schedule=None)
def gated():
    WaitForGate(task_id="wait", path=GATE)


@dag(schedule=None)
def remote():
    WaitForGate(task_id="wait", path=GATE, trigger_queue="far")


@dag(schedule=None)
def stubborn():
    WaitForGate(task_id="wait", path=GATE, trigger_class=Stubborn)


gated(), remote(), stubborn()
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def engine(tmp_path: Path, gate: Path) -> Iterator[Engine]:
    with Engine(tmp_path, settings={"STANNEL__TRIGGERER__JOB_HEARTBEAT_SEC": "0.2"}) as engine:
        engine.add_dag_file("gates.py", DAGS.replace("GATE)", f"{str(gate)!r})").replace("GATE,", f"{str(gate)!r},"))
        yield engine


def call(engine: Engine, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Call the program beside the engine."""
    done = subprocess.run([*PROGRAM, *args], env=engine.environ, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("capacity", ["0", "-42", "0.5", "2.0", "NAN", "", "1e3"])
def test_a_capacity_that_is_not_a_count_is_a_usage_error(stannel, capacity):
    assert f"{capacity!r} is not a capacity" in stannel("triggerer", f"--capacity={capacity}", code=2).stderr


def test_queues_need_the_setting_that_gives_triggers_queues(stannel):
    assert "--queues needs [triggerer] queues_enabled" in stannel("triggerer", "--queues", "a", code=1).stderr
    assert "names no queue" in stannel("triggerer", "--queues", " , ", code=2).stderr


@pytest.mark.slow
def test_a_triggerer_of_its_own_runs_what_waits_and_says_what_it_can_take(engine, gate):
    engine.start("standalone", "--no-triggerer")
    run = engine.trigger("gated")
    engine.wait_for_states(run, wait="deferred")
    assert engine.leases("triggerer") == []
    process = engine.start("triggerer", "--capacity", "7")
    engine.wait_until(lambda: engine.triggers(run)[0].owner, seconds=SECONDS, what="nobody took the trigger")
    engine.wait_until(
        lambda: [one.detail.get("capacity") for one in engine.leases("triggerer")] == [7],
        seconds=SECONDS,
        what="the triggerer did not say what it can take",
    )
    gate.touch()
    assert engine.wait_for_run(run).state == "success"
    lines = lines_of(engine, "tasks", "logs", "gated", "wait")
    order = ["Deferred to", "[trigger 1] looking at", "the gate is open", "Ended success"]
    places = [next(place for place, line in enumerate(lines) if text in line) for text in order]
    assert places == sorted(places)
    assert engine.stop(process) == 0
    assert engine.leases("triggerer") == []


@pytest.mark.slow
def test_a_clean_stop_gives_the_triggers_back(engine, gate):
    engine.start("standalone", "--no-triggerer")
    first = engine.start("triggerer")
    run = engine.trigger("gated")
    engine.wait_until(lambda: any(one.owner for one in engine.triggers(run)), seconds=SECONDS, what="nobody took it")
    first.send_signal(signal.SIGINT)
    assert first.wait(SECONDS) == 0
    assert [one.owner for one in engine.triggers(run)] == [None]
    why = call(engine, "tasks", "state", "gated", "wait").stdout
    assert "no triggerer is running; start one with: stannel triggerer" in why
    engine.start("triggerer")
    gate.touch()
    assert engine.wait_for_run(run).state == "success"


@pytest.mark.slow
def test_the_second_interrupt_does_not_wait_for_a_trigger_that_will_not_leave(engine):
    engine.environ["STANNEL__TRIGGERER__CANCEL_GRACE"] = "600"
    engine.start("standalone", "--no-triggerer")
    process = engine.start("triggerer")
    run = engine.trigger("stubborn")
    log_says(engine, run, "looking at")
    process.send_signal(signal.SIGINT)
    log_says(engine, run, "not leaving")
    assert process.poll() is None
    assert "giving back 1 triggers; press Ctrl-C again to end them now" in engine.output.read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0
    assert [one.owner for one in engine.triggers(run)] == [None]


@pytest.mark.slow
def test_a_queue_is_served_by_whoever_names_it(engine, gate):
    gate.touch()
    engine.environ["STANNEL__TRIGGERER__QUEUES_ENABLED"] = "true"
    engine.start("standalone", "--no-triggerer")
    engine.start("triggerer")
    run = engine.trigger("remote")
    engine.wait_for_states(run, wait="deferred")
    assert "no triggerer serves queue 'far'" in call(engine, "tasks", "state", "remote", "wait").stdout
    engine.start("triggerer", "--queues", "near,far")
    assert engine.wait_for_run(run).state == "success"


@pytest.mark.slow
def test_standalone_runs_triggers_and_starts_their_process_only_when_one_is_there(engine, gate):
    engine.start()
    engine.wait_until(lambda: host_counts(engine) == [0], seconds=SECONDS, what="the triggerer said nothing")
    run = engine.trigger("gated")
    engine.wait_until(lambda: host_counts(engine) == [1], seconds=SECONDS, what="no process was started for it")
    gate.touch()
    assert engine.wait_for_run(run).state == "success"


@pytest.mark.slow
@pytest.mark.parametrize("dag_id", ["gated", "remote"])
def test_trying_a_task_out_runs_its_trigger_whatever_its_queue(engine, gate, dag_id):
    gate.touch()
    done = call(engine, "tasks", "test", dag_id, "wait")
    assert "wait is deferred; its trigger is run here until it fires" in done.stdout
    assert "looking at" in done.stdout
    assert "the gate is open" in done.stdout
    assert "wait: deferred" in done.stderr
    assert engine.triggers() == []


def log_says(engine: Engine, run: Run, text: str) -> None:
    """Return once the log of the run's task holds the text."""

    def look() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return text in engine.task_log(run, "wait")
        return False

    engine.wait_until(look, seconds=SECONDS, what=f"the log did not say {text!r}")


def host_counts(engine: Engine) -> list[int | None]:
    return [one.detail.get("hosts") for one in engine.leases("triggerer")]


def lines_of(engine: Engine, *args: str) -> list[str]:
    return call(engine, *args).stdout.splitlines()
