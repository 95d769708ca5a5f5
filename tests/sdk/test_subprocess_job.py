"""`SubprocessJobOperator`: real processes that outlive the attempt that started them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.memory_channel import MemoryChannel, run

from stannel.protocol.requests import RetryTask, SucceedTask
from stannel.sdk import DAG
from stannel.sdk.detached import LOST, NEVER_STARTED, RUNNING, Job, forget_old_jobs
from stannel.sdk.operators import SubprocessJobOperator

SECONDS = 20.0
ENV = {"PATH": os.environ["PATH"]}


def eventually(look: Callable[[], Any]) -> Any:
    """The first true answer; none in time fails the test."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "jobs"
    yield folder
    for one in folder.iterdir() if folder.exists() else ():
        Job(folder, one.name).stop()


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def dag_with(folder: Path, command: Any, **arguments: Any) -> DAG:
    with DAG("d", schedule=None) as dag:
        SubprocessJobOperator(task_id="job", command=command, jobs_folder=str(folder), **arguments)
    return dag


def gate(path: Path) -> str:
    """A command that goes on until the file is there."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


# --- the job itself ---------------------------------------------------------------------------------------------------


def test_a_job_is_started_once_however_often_it_is_asked_for(folder: Path, tmp_path: Path) -> None:
    job, effects = Job(folder, "t"), tmp_path / "effects"
    assert job.status() == NEVER_STARTED
    command = ["/bin/sh", "-c", f"echo x >> {effects}; {gate(tmp_path / 'go')}; exit 3"]
    assert job.start(command, env=ENV, cwd=str(tmp_path))
    assert not job.start(command, env=ENV, cwd=str(tmp_path))
    assert Job(folder, "t").status() == RUNNING
    (tmp_path / "go").touch()
    assert job.wait(SECONDS) == "EXITED 3"
    assert not job.start(command, env=ENV, cwd=str(tmp_path))
    assert effects.read_text() == "x\n"


def test_a_job_leads_a_session_of_its_own_and_tells_its_children_its_token(folder: Path, tmp_path: Path) -> None:
    job = Job(folder, "t")
    job.start(["/bin/sh", "-c", "echo $STANNEL_JOB_TOKEN; ps -o sid= -p $$; pwd"], env=ENV, cwd=str(tmp_path))
    assert job.wait(SECONDS) == "EXITED 0"
    token, session, cwd = job.output().decode().split()
    assert (token, cwd) == ("t", str(tmp_path))
    assert int(session) == int((job.folder / "pid").read_text()) != os.getsid(0)


def test_a_job_that_was_killed_is_lost(folder: Path, tmp_path: Path) -> None:
    job = Job(folder, "t")
    job.start(["sleep", "1000"], env=ENV, cwd=str(tmp_path))
    group = int(eventually(lambda: (job.folder / "pid").exists() and (job.folder / "pid").read_text()))
    os.killpg(group, signal.SIGKILL)
    assert job.wait(SECONDS) == LOST


def test_a_job_whose_keeper_was_killed_still_counts_as_running(folder: Path, tmp_path: Path) -> None:
    job = Job(folder, "t")
    job.start(["/bin/sh", "-c", f"echo begun; {gate(tmp_path / 'go')}"], env=ENV, cwd=str(tmp_path))
    eventually(job.output)
    os.kill(int((job.folder / "pid").read_text()), signal.SIGKILL)
    assert job.wait(0.2) == RUNNING
    (tmp_path / "go").touch()
    assert job.wait(SECONDS) == LOST


def test_what_a_job_leaves_behind_does_not_hold_it_open(folder: Path, tmp_path: Path) -> None:
    job = Job(folder, "t")
    job.start(["/bin/sh", "-c", "sleep 1000 & echo $!"], env=ENV, cwd=str(tmp_path))
    assert job.wait(SECONDS) == "EXITED 0"
    os.kill(int(job.output()), signal.SIGKILL)


def test_a_job_that_does_not_listen_is_killed_with_its_children(folder: Path, tmp_path: Path) -> None:
    job = Job(folder, "t")
    job.start(["/bin/sh", "-c", "trap '' TERM; echo begun; sleep 1000; sleep 1000"], env=ENV, cwd=str(tmp_path))
    eventually(job.output)
    job.stop()
    assert job.status() in (LOST, "EXITED 143", "EXITED 137")


def test_only_jobs_that_ended_long_ago_are_forgotten(folder: Path, tmp_path: Path) -> None:
    for name, command in (("old", ["true"]), ("new", ["true"]), ("running", ["sleep", "1000"])):
        Job(folder, name).start(command, env=ENV, cwd=str(tmp_path))
    for name in ("old", "new"):
        Job(folder, name).wait(SECONDS)
    os.utime(folder / "old" / "exit", (1, 1))
    forget_old_jobs(folder, seconds=60)
    assert sorted(one.name for one in folder.iterdir()) == ["new", "running"]


# --- the operator -----------------------------------------------------------------------------------------------------


def test_the_last_line_is_the_result_and_every_line_is_logged(
    folder: Path, channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    dag = dag_with(folder, ["/bin/sh", "-c", "echo one; printf two"], env={"A": "1"}, append_env=False)
    assert isinstance(run(dag, "job", channel), SucceedTask)
    assert channel.returned("job") == "two"
    assert {"one", "two"} <= {record.getMessage() for record in caplog.records}


def test_a_retry_after_a_success_returns_the_same_and_runs_nothing(
    folder: Path, channel: MemoryChannel, tmp_path: Path
) -> None:
    dag = dag_with(folder, f"echo x >> {tmp_path}/effects; echo done")
    for _ in range(2):
        assert isinstance(run(dag, "job", channel), SucceedTask)
    assert channel.returned("job") == "done"
    assert (tmp_path / "effects").read_text() == "x\n"


def test_a_job_that_fails_fails_the_try_and_the_next_one_starts_another(
    folder: Path, channel: MemoryChannel, tmp_path: Path
) -> None:
    dag = dag_with(folder, f"echo x >> {tmp_path}/effects; exit 3")
    for count in (1, 2):
        ended = run(dag, "job", channel, should_retry=True)
        assert isinstance(ended, RetryTask)
        assert "EXITED 3" in (ended.retry_reason or "")
        assert (tmp_path / "effects").read_text() == "x\n" * count


def test_a_job_that_was_submitted_but_not_noted_is_found(folder: Path, channel: MemoryChannel, tmp_path: Path) -> None:
    dag = dag_with(folder, f"echo x >> {tmp_path}/effects; echo done")
    run(dag, "job", channel)
    del channel.task_state["subprocess_job"]
    assert isinstance(run(dag, "job", channel), SucceedTask)
    assert channel.returned("job") == "done"
    assert (tmp_path / "effects").read_text() == "x\n"


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_job_on_another_machine_is_not_run_a_second_time(
    folder: Path, channel: MemoryChannel, tmp_path: Path, is_noted: bool
) -> None:
    dag = dag_with(folder, f"echo x >> {tmp_path}/effects")
    dag.task_dict["job"].status_retry_delays = ()
    run(dag, "job", channel)
    channel.task_state["subprocess_job/machine"] = "elsewhere"
    channel.task_state["subprocess_job"]["machine"] = "elsewhere"
    if not is_noted:
        del channel.task_state["subprocess_job"]
    ended = run(dag, "job", channel, should_retry=True)
    assert isinstance(ended, RetryTask)
    assert (tmp_path / "effects").read_text() == "x\n"


@pytest.mark.parametrize("cancels", [True, False])
def test_a_killed_task_ends_its_job_unless_told_otherwise(folder: Path, channel: MemoryChannel, cancels: bool) -> None:
    dag = dag_with(folder, "sleep 1000", cancel_on_kill=cancels)
    task = dag.task_dict["job"]
    job = Job(folder, "t")
    job.start(["sleep", "1000"], env=ENV, cwd="/")
    eventually((job.folder / "pid").exists)
    task.submission_token = "t"
    task.on_kill()
    assert (job.status() == RUNNING) is not cancels
    with contextlib.suppress(FileNotFoundError):
        job.stop()


def test_a_working_directory_that_is_none_starts_nothing(folder: Path, channel: MemoryChannel) -> None:
    ended = run(dag_with(folder, "true", cwd="/nowhere"), "job", channel, should_retry=True)
    assert "does not exist" in ended.retry_reason
    assert not folder.exists()
