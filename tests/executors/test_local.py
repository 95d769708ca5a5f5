"""The local executor keeps a worker alive, and none outlives it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scheduler.conftest import Stage

from stannel.executors.local import LocalExecutor

PATIENCE = 30.0


@pytest.fixture
def executor(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalExecutor]:
    """An executor whose workers do nothing, which costs nothing."""
    program = tmp_path / "worker"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    executor = LocalExecutor(stage.settings)
    executor.start()
    executor.watch(stage.store)
    yield executor
    executor.stop(patience=PATIENCE)


def kill(executor: LocalExecutor) -> int:
    pid = executor.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def until_replaced(executor: LocalExecutor, pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while executor.pid == pid:
        assert time.monotonic() < deadline, "no worker was started"
        time.sleep(0.005)


def test_a_worker_that_dies_is_replaced(executor: LocalExecutor) -> None:
    until_replaced(executor, kill(executor))


def test_a_worker_that_cannot_be_replaced_yet_is_replaced_later(
    executor: LocalExecutor, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    folder = stage.settings.logging.base_log_folder
    aside = folder.rename(folder.with_name("aside"))
    folder.touch()
    pid = kill(executor)
    deadline = time.monotonic() + PATIENCE
    while "No worker process can be started" not in caplog.text:
        assert time.monotonic() < deadline, "nothing was said"
        time.sleep(0.005)
    folder.unlink()
    aside.rename(folder)
    until_replaced(executor, pid)


def test_a_stop_at_the_last_moment_leaves_no_worker_behind(executor: LocalExecutor) -> None:
    class LastMoment(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return False

    executor._stopping = LastMoment()
    pid = kill(executor)
    executor._watch.join(PATIENCE)
    assert not executor._watch.is_alive()
    assert executor.pid == pid


def test_after_a_stop_nothing_runs(executor: LocalExecutor) -> None:
    executor.stop(patience=PATIENCE)
    assert not executor._watch.is_alive()
    assert not Path(f"/proc/{executor.pid}").exists()
