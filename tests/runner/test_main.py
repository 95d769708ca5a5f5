"""A task process from fork to exit, forked from real servers, running real DAG files."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from supervisor.bench import PATIENCE, Bench

from stannel.model.run import Outcome
from stannel.model.states import TaskState
from stannel.protocol.requests import SetXCom
from stannel.supervisor.desk import Limits
from stannel.supervisor.files import ForkLaunch, ForkSettings

DAG_FILE = """
import logging, os, random, signal, sys, threading, time
from datetime import timedelta
from stannel.sdk import DAG, BaseOperator, Variable, task

log = logging.getLogger("mine")

class Stoppable(BaseOperator):
    def execute(self, context):
        print("running", flush=True)
        time.sleep(60)

    def on_kill(self):
        print("on_kill was called")

with DAG("d", schedule=None):
    @task
    def succeeds():
        print("printed")
        print("complained", file=sys.stderr)
        log.info("logged %s", 1)
        log.debug("not shown")
        return {"answer": 42}

    @task
    def raises():
        raise ValueError("no such table")

    @task
    def logs_an_exception():
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("caught")

    @task
    def leaves():
        os._exit(3)

    @task
    def exits():
        sys.exit(4)

    @task
    def chance():
        return [random.random(), os.getpid()]

    @task
    def asks_from_threads():
        found = []
        threads = [threading.Thread(target=lambda n=n: found.append(Variable.get(str(n)))) for n in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return len(found)

    @task(execution_timeout=timedelta(seconds=0.2))
    def sleeps():
        time.sleep(60)

    @task
    def closes_its_streams():
        sys.stdout.close()
        sys.stderr.close()

    succeeds(), raises(), logs_an_exception(), leaves(), exits(), chance(), asks_from_threads(), closes_its_streams()
    sleeps()
    Stoppable(task_id="stoppable")
"""


class Files(Bench):
    """Runs tasks of one DAG file."""

    async def run_task(self, task_id: str, **fields: object) -> Outcome:
        fileloc = str(self.folder / "dag.py")
        return await asyncio.wait_for(self.supervision(task_id, fileloc=fileloc, **fields).run(), PATIENCE)


@pytest_asyncio.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    (tmp_path / "dag.py").write_text(DAG_FILE)
    launch = ForkLaunch(ForkSettings(dags_folder=tmp_path, environ={**os.environ, "PYTHONPATH": ":".join(sys.path)}))
    yield Files(launch, tmp_path)
    await launch.close()


async def test_prints_logs_and_results_reach_the_engine(files: Files):
    outcome = await files.run_task("succeeds")
    assert outcome.state == TaskState.SUCCESS
    assert files.events("task.stdout") == ["printed"]
    assert files.events("task.stderr") == ["complained"]
    assert files.events("mine") == ["logged 1"]
    values = [request.value for request in files.desk.requests if isinstance(request, SetXCom)]
    assert values == [{"answer": 42}]


async def test_an_error_in_the_task_fails_it_and_its_traceback_is_in_the_log(files: Files):
    assert (await files.run_task("raises")).state == TaskState.FAILED
    assert any("ValueError: no such table" in str(record.get("exception")) for record in files.log())


async def test_an_error_is_retried_when_retries_remain(files: Files):
    outcome = await files.run_task("raises", should_retry=True)
    assert outcome.state == TaskState.UP_FOR_RETRY
    assert "no such table" in str(outcome.reason)


async def test_a_logged_exception_keeps_its_trace(files: Files):
    await files.run_task("logs_an_exception")
    record = next(record for record in files.log() if record["logger"] == "mine")
    assert (record["event"], record["level"]) == ("caught", "error")
    assert "ZeroDivisionError" in str(record["exception"])


async def test_a_process_that_leaves_early_has_no_result(files: Files):
    outcome = await files.run_task("leaves")
    assert (outcome.state, outcome.reason) == (TaskState.FAILED, "its process exited with code 3")


async def test_sys_exit_is_a_failure(files: Files):
    assert (await files.run_task("exits")).state == TaskState.FAILED


async def test_chance_differs_from_process_to_process(files: Files):
    await files.run_task("chance")
    await files.run_task("chance")
    values = [request.value for request in files.desk.requests if isinstance(request, SetXCom)]
    assert values[0][0] != values[1][0]
    assert values[0][1] != values[1][1]


async def test_threads_may_ask_at_the_same_time(files: Files):
    assert (await files.run_task("asks_from_threads")).state == TaskState.SUCCESS
    values = [request.value for request in files.desk.requests if isinstance(request, SetXCom)]
    assert values == [8]


async def test_a_task_that_closes_its_streams_still_reports(files: Files):
    assert (await files.run_task("closes_its_streams")).state == TaskState.SUCCESS


async def test_a_task_told_to_stop_runs_on_kill_once(files: Files):
    supervision = files.supervision("stoppable", fileloc=str(files.folder / "dag.py"))
    running = asyncio.create_task(supervision.run())
    await files.said("running")
    supervision.cancel("enough", TaskState.SKIPPED)
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert outcome.state == TaskState.SKIPPED
    assert files.events("task.stdout") == ["running", "on_kill was called"]
    assert not outcome.unreported


async def test_what_an_import_prints_is_not_repeated_by_every_task(files: Files):
    (files.folder / "dag.py").write_text(DAG_FILE + "print('half a line', end='')\n")
    await files.run_task("succeeds")
    assert files.events("task.stdout") == ["printed"]


async def test_a_task_that_keeps_its_own_time_limit_reports_it_itself(files: Files):
    files.limits = Limits(timeout_slack=PATIENCE)
    outcome = await files.run_task("sleeps", execution_timeout=0.2, should_retry=True)
    assert outcome.state == TaskState.UP_FOR_RETRY
    assert "execution_timeout of 0.2 s" in str(outcome.reason)
    assert not outcome.unreported


async def test_a_file_with_threads_is_imported_in_the_task_process(files: Files):
    (files.folder / "dag.py").write_text(
        DAG_FILE + "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    assert (await files.run_task("succeeds")).state == TaskState.SUCCESS
    assert files.events("mine") == ["logged 1"]


async def test_a_broken_file_fails_its_attempts_with_the_traceback(files: Files):
    (files.folder / "dag.py").write_text("import nothing_of_that_name\n")
    outcome = await files.run_task("succeeds")
    assert outcome.state == TaskState.FAILED
    assert "line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'" in str(outcome.reason)
    assert "import nothing_of_that_name" in str(files.log()[0]["error_detail"])
