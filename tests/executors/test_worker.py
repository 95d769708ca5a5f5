"""A worker lives on its lease, runs what it has claimed whatever else fails, and stops all of it when it is told to."""

import asyncio
import os
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from scheduler.conftest import Stage, task

from stannel.errors import StoreUnavailable
from stannel.executors.worker import LEASE_LOST, Worker
from stannel.model.run import Run

PATIENCE = 60.0


def queued(stage: Stage, body: str, on_import: str = "") -> Run:
    """A run with one queued task, `a`, and the DAG file it needs."""
    folder = stage.settings.core.dags_folder
    folder.mkdir(parents=True, exist_ok=True)
    text = f"""
        import time
        from stannel.sdk import DAG, task
        {on_import}
        with DAG("d", schedule=None):
            @task
            def a():
                {body}
            a()
    """
    (folder / "d.py").write_text(textwrap.dedent(text))
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    return run


def make_worker(stage: Stage) -> Worker:
    return Worker(stage.store, stage.settings, owner="worker-1")


async def run_to_the_end(worker: Worker) -> int:
    return await asyncio.wait_for(worker.run(), PATIENCE)


@pytest.mark.parametrize("error", [StoreUnavailable("sqlite:///x", "it is gone"), ZeroDivisionError("a bug")])
async def test_a_worker_that_cannot_renew_its_lease_stops_its_attempts_and_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run = queued(stage, "time.sleep(600)")

    def fail(*_: Any, **__: Any) -> bool:
        raise error

    monkeypatch.setattr(stage.store.leases, "renew", fail)
    assert await run_to_the_end(make_worker(stage)) == LEASE_LOST
    assert stage.states(run) == {"a": "failed"}


async def test_a_store_that_does_not_answer_at_all_costs_the_lease_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    release = stage.store.leases.release

    def leave(owner: str) -> None:
        left.set()
        release(owner)

    monkeypatch.setattr(stage.store.leases, "renew", lambda *_, **__: left.wait(PATIENCE))
    monkeypatch.setattr(stage.store.leases, "release", leave)
    assert await run_to_the_end(make_worker(stage)) == LEASE_LOST


async def test_a_heartbeat_that_fails_once_costs_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, loop = make_worker(stage), asyncio.get_running_loop()
    still_mine, calls = stage.store.attempts.still_mine, 0

    def fail_once(owner: str) -> set[str]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        loop.call_soon_threadsafe(worker.drain)
        return still_mine(owner)

    monkeypatch.setattr(stage.store.attempts, "still_mine", fail_once)
    assert await run_to_the_end(worker) == 0


async def test_trouble_with_callbacks_is_no_trouble_of_the_attempts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queued(stage, "pass")
    worker, loop = make_worker(stage), asyncio.get_running_loop()

    def fail(*_: Any, **__: Any) -> list[Any]:
        loop.call_soon_threadsafe(worker.drain)
        raise StoreUnavailable("sqlite:///x", "it is gone")

    monkeypatch.setattr(stage.store.callbacks, "claim", fail)
    assert await run_to_the_end(worker) == 0
    assert stage.states(run) == {"a": "success"}


async def test_what_is_being_claimed_while_the_worker_is_stopped_is_stopped_as_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queued(stage, "time.sleep(600)")
    worker, loop, stopped = make_worker(stage), asyncio.get_running_loop(), threading.Event()
    claim = stage.store.attempts.claim

    def stop() -> None:
        worker.stop()
        stopped.set()

    def claim_meanwhile(*args: Any, **kwargs: Any) -> Any:
        claimed = claim(*args, **kwargs)
        loop.call_soon_threadsafe(stop)
        assert stopped.wait(PATIENCE)
        return claimed

    monkeypatch.setattr(stage.store.attempts, "claim", claim_meanwhile)
    assert await run_to_the_end(worker) == 0
    assert stage.states(run) == {"a": "failed"}


async def test_a_process_that_is_late_is_noted_once_it_is_there(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, importing = tmp_path / "gate", tmp_path / "importing"
    os.mkfifo(gate)
    wait_at_the_gate = f"gate = open({str(gate)!r}); open({str(importing)!r}, 'w').close(); gate.read()"
    queued(stage, "time.sleep(600)", on_import=wait_at_the_gate)
    worker, loop = make_worker(stage), asyncio.get_running_loop()
    noted: asyncio.Future[dict[str, int]] = loop.create_future()
    beats: asyncio.Queue[None] = asyncio.Queue()
    still_mine, note_pids = stage.store.attempts.still_mine, stage.store.attempts.note_pids

    def beat(owner: str) -> set[str]:
        mine = still_mine(owner)
        if mine:
            loop.call_soon_threadsafe(beats.put_nowait, None)
        return mine

    def note(pids: dict[str, int]) -> None:
        note_pids(pids)
        loop.call_soon_threadsafe(noted.set_result, pids)

    monkeypatch.setattr(stage.store.attempts, "still_mine", beat)
    monkeypatch.setattr(stage.store.attempts, "note_pids", note)
    # As long as this end is open the file's import does not come to its end, and no task process exists.
    held = os.open(gate, os.O_RDWR)
    working = asyncio.create_task(run_to_the_end(worker))
    for _ in range(3):
        await asyncio.wait_for(beats.get(), PATIENCE)
    while not importing.exists():
        await asyncio.wait_for(beats.get(), PATIENCE)
    assert not noted.done()
    os.close(held)
    pids = await asyncio.wait_for(noted, PATIENCE)
    assert all(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert len(pids) == 1
    worker.stop()
    assert await working == 0
