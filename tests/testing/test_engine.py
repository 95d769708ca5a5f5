"""The engine that tests drive: several triggerers in it, each a process that a test may do anything to."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stannel.testing import Engine

pytestmark = pytest.mark.slow

DAGS = """
from stannel.sdk import BaseOperator, dag
from stannel.triggers.file import FileTrigger


class WaitForFile(BaseOperator):
    def execute(self, context):
        self.defer(trigger=FileTrigger(filepath=FILE, poke_interval=0.05), method_name="resume")

    def resume(self, context, event):
        print("it is there")


@dag(schedule=None)
def files():
    WaitForFile(task_id="wait")


files()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture
def engine(tmp_path: Path, file: Path) -> Iterator[Engine]:
    with Engine(tmp_path) as engine:
        engine.add_dag_file("files.py", DAGS.replace("FILE,", f"{str(file)!r},"))
        yield engine


def test_triggerers_are_processes_of_their_own_and_one_takes_over_from_the_other(engine: Engine, file: Path) -> None:
    engine.start("standalone", "--no-triggerer")
    processes = {process.pid: process for process in (engine.start("triggerer"), engine.start("triggerer"))}
    run = engine.trigger("files")

    def owner() -> str | None:
        return next((one.owner for one in engine.triggers(run)), None)

    first = engine.wait_until(owner, seconds=30, what="nobody took the trigger")
    leases = {lease.owner: lease.pid for lease in engine.leases("triggerer")}
    assert set(leases.values()) == processes.keys()
    processes[leases[first]].send_signal(signal.SIGKILL)
    engine.wait_until(lambda: owner() not in (None, first), seconds=30, what="the other did not take it over")
    file.touch()
    assert engine.wait_for_run(run).state == "success"
    assert "it is there" in engine.task_log(run, "wait")
