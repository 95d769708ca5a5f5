"""Fork servers come and go; attempts do not notice."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from supervisor.bench import ENVIRON, HERE, PATIENCE, Bench, fork_settings, make_attempt

from stannel.model.states import TaskState
from stannel.supervisor.files import ForkLaunch


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench with fork servers of its own, to be mistreated."""
    launch = ForkLaunch(fork_settings(tmp_path, capacity=2, import_timeout=2.0))
    yield Bench(launch, tmp_path)
    await launch.close()


def server_of(bench: Bench, kind: str) -> int | None:
    return bench.launch.file_servers.get(str(bench.folder / f"{kind}.py"))


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def until_gone(*pids: int | None) -> None:
    async with asyncio.timeout(PATIENCE):
        while any(_runs(pid) for pid in pids if pid is not None):
            await asyncio.sleep(0.005)


async def test_attempts_of_one_file_share_a_server(bench: Bench):
    await bench.run("succeeds")
    first = server_of(bench, "succeeds")
    await bench.run("succeeds")
    assert first is not None
    assert server_of(bench, "succeeds") == first


async def test_an_edited_file_gets_a_new_server_and_the_old_one_ends(bench: Bench):
    file = bench.folder / "succeeds.py"
    file.write_text("first = 1\n")
    await bench.run("succeeds")
    first = server_of(bench, "succeeds")
    file.write_text("second = 22\n")
    await asyncio.sleep(0.03)
    await bench.run("succeeds")
    assert server_of(bench, "succeeds") not in (first, None)
    await until_gone(first)


async def test_an_edited_dependency_gets_a_new_server(bench: Bench):
    await bench.run("succeeds")
    first = server_of(bench, "succeeds")
    (bench.folder / "imported_by_succeeds.py").write_text("changed = True\n")
    await asyncio.sleep(0.03)
    await bench.run("succeeds")
    assert server_of(bench, "succeeds") != first


async def test_a_repaired_file_runs_again(bench: Bench):
    file = bench.folder / "succeeds.py"
    file.write_text("raise RuntimeError('not yet')\n")
    assert (await bench.run("succeeds")).state == TaskState.FAILED
    file.write_text("pass\n")
    await asyncio.sleep(0.03)
    assert (await bench.run("succeeds")).state == TaskState.SUCCESS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os._exit(4)", "the process that imported it exited with code 4"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("import time; time.sleep(60)", "its import took longer than 2 s"),
        ("(", "SyntaxError"),
    ],
)
async def test_a_file_that_cannot_be_imported_fails_its_attempts_and_no_others(bench: Bench, text: str, words: str):
    (bench.folder / "broken.py").write_text(text)
    broken, fine = await asyncio.gather(bench.run("broken"), bench.run("succeeds"))
    assert broken.state == TaskState.FAILED
    assert words in str(broken.reason)
    assert str(bench.folder / "broken.py") in str(broken.reason)
    assert fine.state == TaskState.SUCCESS


async def test_a_file_that_starts_threads_is_not_forked_but_still_runs(bench: Bench):
    (bench.folder / "main_thread_only.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    outcome = await bench.run("main_thread_only")
    assert outcome.state == TaskState.SUCCESS
    assert "threads 1 " in str(bench.events("task.stdout")[0])


async def test_the_least_recently_used_server_makes_room(bench: Bench):
    await bench.run("succeeds")
    oldest = server_of(bench, "succeeds")
    await bench.run("fails")
    await bench.run("skips")
    assert len(bench.launch.file_servers) == 2
    assert server_of(bench, "succeeds") is None
    await until_gone(oldest)


async def test_a_retired_server_stays_until_its_attempts_have_ended(bench: Bench):
    _, running = bench.start("waits_for_a_word")
    await bench.said("waiting")
    await bench.run("fails")
    await bench.run("skips")
    assert server_of(bench, "waits_for_a_word") is None
    bench.desk.word.set()
    assert (await asyncio.wait_for(running, PATIENCE)).state == TaskState.SUCCESS


async def test_a_killed_file_server_loses_none_of_its_attempts(bench: Bench):
    runs = [bench.start("waits_for_a_word")[1] for _ in range(3)]
    for number in (1, 2, 3):
        await bench.said("waiting", number)
    kill(server_of(bench, "waits_for_a_word"))
    await bench.run("succeeds")
    bench.desk.word.set()
    outcomes = await asyncio.wait_for(asyncio.gather(*runs), PATIENCE)
    assert [outcome.state for outcome in outcomes] == [TaskState.SUCCESS] * 3


async def test_killing_every_server_loses_no_attempt_and_the_next_one_starts_anew(bench: Bench):
    _, running = bench.start("waits_for_a_word")
    await bench.said("waiting")
    base = bench.launch.base_pid
    kill(base)
    kill(server_of(bench, "waits_for_a_word"))
    await until_gone(base)
    bench.desk.word.set()
    assert (await asyncio.wait_for(running, PATIENCE)).state == TaskState.SUCCESS
    assert (await bench.run("succeeds")).state == TaskState.SUCCESS
    assert bench.launch.base_pid != base


async def test_the_exit_code_of_an_orphan_is_still_known(bench: Bench):
    _, running = bench.start("dies_when_told")
    await bench.said("waiting")
    kill(bench.launch.base_pid)
    kill(server_of(bench, "dies_when_told"))
    bench.desk.word.set()
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert outcome.reason == "its process exited with code 5"


async def test_attempts_ordered_while_servers_are_being_killed_all_run_exactly_once(bench: Bench):
    bench.desk.word.set()
    await bench.run("marks_its_run")
    for _ in range(5):
        runs = [bench.start("marks_its_run")[1] for _ in range(6)]
        async with asyncio.timeout(PATIENCE):
            while (server := server_of(bench, "marks_its_run")) is None:
                await asyncio.sleep(0)
        kill(server)
        outcomes = await asyncio.wait_for(asyncio.gather(*runs), PATIENCE)
        assert [(outcome.state, outcome.reason) for outcome in outcomes] == [(TaskState.SUCCESS, None)] * 6
    assert [bench.events("task.stdout", number) for number in range(1, 32)] == [["ran"]] * 31


async def test_closing_the_launch_ends_every_server_and_every_task(bench: Bench):
    _, running = bench.start("runs_long")
    await bench.said("running")
    task = int(str(bench.events("stannel.supervisor")[0]).rsplit(maxsplit=1)[-1])
    pids = [bench.launch.base_pid, server_of(bench, "runs_long"), task]
    await bench.launch.close()
    await until_gone(*pids)
    outcome = await asyncio.wait_for(running, PATIENCE)
    assert outcome.state == TaskState.FAILED


async def test_when_the_supervising_process_is_killed_its_tasks_die(tmp_path: Path):
    program = subprocess.Popen(
        [sys.executable, str(HERE / "doomed.py"), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**ENVIRON, "PYTHONPATH": str(HERE.parent)},
    )
    assert program.stdout is not None
    with program, program.stdout as output:
        pids = [int(word) for word in output.readline().split()]
        assert all(map(_runs, pids))
        assert len(pids) == 3
        program.kill()
    await until_gone(*pids)


async def test_a_signal_sent_before_the_process_exists_reaches_it(bench: Bench):
    attempt = make_attempt(fileloc=str(bench.folder / "succeeds.py"))
    process, wires = await bench.launch.start(attempt)
    gone = asyncio.Event()
    process.watch(lambda: None, gone.set)
    process.signal(signal.SIGKILL)
    await asyncio.wait_for(gone.wait(), PATIENCE)
    assert process.exit is not None
    assert process.exit.words.startswith("was killed by SIGKILL")
    for fd in (wires.comm, wires.logs, wires.stdout, wires.stderr):
        os.close(fd)


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False
