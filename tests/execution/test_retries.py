"""When a failed attempt is tried again."""

from datetime import timedelta

import msgspec
from scheduler.conftest import Stage, task

from stannel.execution.retries import with_retry_time
from stannel.model.run import Attempt, Outcome
from stannel.model.states import TaskState


def failed(stage: Stage, **fields: float) -> Outcome:
    return Outcome(state=TaskState.UP_FOR_RETRY, end_date=stage.now, **fields)


def test_the_authors_delay_counts(stage: Stage) -> None:
    stage.dag(task("a", retries=2))
    stage.trigger()
    stage.tick()
    attempt = stage.claim()["a"]
    assert with_retry_time(stage.store, attempt, failed(stage)).retry_at == stage.now + timedelta(seconds=60)


def test_a_task_may_ask_for_its_own_delay(stage: Stage, attempt: Attempt) -> None:
    outcome = with_retry_time(stage.store, attempt, failed(stage, retry_delay=5.0))
    assert outcome.retry_at == stage.now + timedelta(seconds=5)


def test_an_end_that_is_final_has_no_next_try(stage: Stage, attempt: Attempt) -> None:
    outcome = msgspec.structs.replace(failed(stage), state=TaskState.FAILED)
    assert with_retry_time(stage.store, attempt, outcome) == outcome
