"""When a failed attempt is tried again: the author's rule, or what the task itself asked for."""

import random
from datetime import timedelta

import msgspec

from stannel.model.retry import retry_delay
from stannel.model.run import Attempt, Outcome
from stannel.model.states import TaskState
from stannel.store import Store


def with_retry_time(store: Store, attempt: Attempt, outcome: Outcome) -> Outcome:
    """The outcome with the moment of the next try, if there is one."""
    if outcome.state is not TaskState.UP_FOR_RETRY or outcome.retry_at is not None:
        return outcome
    delay = outcome.retry_delay
    if delay is None:
        task = store.dags.spec(attempt.run.version).task(attempt.task_id)
        delay = retry_delay(task.retry, attempt.try_number, random.random()) if task else 0.0
    return msgspec.structs.replace(outcome, retry_at=outcome.end_date + timedelta(seconds=delay))
