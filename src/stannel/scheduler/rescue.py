"""Takes up attempts whose worker died: they are tried again, or fail, as their author said."""

import random
from datetime import datetime, timedelta

from stannel.model.moments import to_micros
from stannel.model.retry import retry_delay
from stannel.model.run import Outcome
from stannel.model.states import AttemptState, TaskState
from stannel.store import Store
from stannel.store.attempts import LostAttempt, finish_instance, lost_attempts
from stannel.store.callbacks import has_lost_callbacks, request_callback, requeue_lost_callbacks
from stannel.store.database import SCHEDULER, WORKER
from stannel.store.runs import mark_dirty
from stannel.store.sql import Tx


def rescue_lost_attempts(store: Store, now: datetime) -> int:
    """End every running attempt whose worker's lease is over; how many there were."""
    with store.read() as tx:
        moment = to_micros(now)
        if not lost_attempts(tx, moment, most=1) and not has_lost_callbacks(tx, moment):
            return 0
    with store.transaction() as tx:
        lost = lost_attempts(tx, to_micros(now))
        mark_dirty(tx, [one.run_pk for one in lost])
        for one in lost:
            _end_lost(tx, store, one, now)
        requeue_lost_callbacks(tx, to_micros(now))
        tx.wake(SCHEDULER, WORKER)
    return len(lost)


def _end_lost(tx: Tx, store: Store, one: LostAttempt, now: datetime) -> None:
    task = store.dags.spec(one.version, tx).task(one.task_id)
    why = f"the worker {one.owner} died while it ran" if one.owner else "its worker lost it"
    if task is not None and one.try_number <= one.max_tries:
        wait = timedelta(seconds=retry_delay(task.retry, one.try_number, random.random()))
        outcome = Outcome(state=TaskState.UP_FOR_RETRY, end_date=now, reason=why, retry_at=now + wait)
    else:
        outcome = Outcome(state=TaskState.FAILED, end_date=now, reason=why)
    if finish_instance(tx, one.ti_pk, one.attempt_id, outcome, AttemptState.LOST):
        kind = "retry" if outcome.state is TaskState.UP_FOR_RETRY else "failure"
        if task is not None and kind in task.callbacks:
            request_callback(tx, one.run_pk, kind, now=to_micros(now), reason=why, ti_pk=one.ti_pk)
