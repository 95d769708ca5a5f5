"""The desk of a worker: ends are stored in batches, answers come from threads, trouble becomes an error reply."""

import asyncio
import threading

import pytest
from scheduler.conftest import Stage, task

from stannel.errors import StoreUnavailable
from stannel.executors.desk import StoreDesk
from stannel.model.run import Outcome
from stannel.model.states import TaskState
from stannel.protocol.refusal import Refused
from stannel.protocol.requests import GetVariable
from stannel.protocol.schema import ErrorCode

PATIENCE = 30.0


def test_ends_that_come_together_are_stored_together_and_each_hears_its_own(stage: Stage) -> None:
    stage.dag(*(task(f"t{number}") for number in range(20)), max_active_tasks=20)
    run = stage.trigger()
    stage.tick()
    attempts = stage.claim_all()
    batches: list[int] = []
    finish = stage.store.attempts.finish
    stage.store.attempts.finish = lambda ends: batches.append(len(ends)) or finish(ends)  # type: ignore[method-assign,func-returns-value]

    async def end_all() -> list[bool]:
        desk = StoreDesk(stage.store, xcom_limit=1000)
        outcome = Outcome(state=TaskState.SUCCESS, end_date=stage.now)
        # The first one twice: its second end must be refused, and only that one.
        stored = await asyncio.gather(*(desk.finish(one, outcome) for one in [*attempts, attempts[0]]))
        desk.close()
        return stored

    assert asyncio.run(end_all()) == [True] * 20 + [False]
    assert sum(batches) == 21
    assert len(batches) < 21
    assert set(stage.states(run).values()) == {"success"}


def test_a_failed_attempt_gets_the_moment_of_its_next_try(stage: Stage) -> None:
    stage.dag(task("a", retries=1))
    run = stage.trigger()
    stage.tick()
    attempt = stage.claim()["a"]

    async def fail() -> bool:
        desk = StoreDesk(stage.store, xcom_limit=1000)
        ended = await desk.finish(attempt, Outcome(state=TaskState.UP_FOR_RETRY, end_date=stage.now))
        desk.close()
        return ended

    assert asyncio.run(fail())
    assert stage.store.tasks.of_run(run)[0].retry_at is not None


def test_trouble_with_the_store_reaches_the_task_as_an_error_it_can_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.dag(task("a"))
    stage.trigger()
    stage.tick()
    attempt = stage.claim()["a"]

    def broken(_: str) -> None:
        raise StoreUnavailable("sqlite:///x", "the disk is gone")

    monkeypatch.setattr(stage.store.variables, "find", broken)

    async def ask() -> None:
        desk = StoreDesk(stage.store, xcom_limit=1000)
        try:
            await desk.answer(attempt, GetVariable("k"))
        finally:
            desk.close()

    with pytest.raises(Refused) as refusal:
        asyncio.run(ask())
    assert refusal.value.code is ErrorCode.API_SERVER_ERROR
    assert "the disk is gone" in (refusal.value.detail or {})["message"]


def test_slow_answers_hold_up_no_end_and_no_claim(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.dag(task("a"))
    run = stage.trigger()
    stage.tick()
    attempt = stage.claim()["a"]
    answering, may_go_on = threading.Semaphore(0), threading.Event()

    def slow(_: str) -> None:
        answering.release()
        assert may_go_on.wait(PATIENCE)

    monkeypatch.setattr(stage.store.variables, "find", slow)

    async def end_while_others_ask() -> bool:
        desk = StoreDesk(stage.store, xcom_limit=1000)
        asking = [asyncio.create_task(desk.answer(attempt, GetVariable("k"))) for _ in range(20)]
        try:
            assert await asyncio.to_thread(lambda: all(answering.acquire(timeout=PATIENCE) for _ in range(3)))
            outcome = Outcome(state=TaskState.SUCCESS, end_date=stage.now)
            return await asyncio.wait_for(desk.finish(attempt, outcome), PATIENCE)
        finally:
            may_go_on.set()
            await asyncio.gather(*asking, return_exceptions=True)
            desk.close()

    assert asyncio.run(end_while_others_ask())
    assert stage.states(run) == {"a": "success"}
