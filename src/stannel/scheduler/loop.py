"""The scheduler: sleeps until something changed or is due, then does its duties in order."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from stannel.errors import StannelError
from stannel.model.ids import new_id
from stannel.model.moments import to_micros
from stannel.scheduler.advance_runs import Advance
from stannel.scheduler.asset_runs import create_asset_runs
from stannel.scheduler.create_runs import create_due_runs
from stannel.scheduler.expiry import forget_expired_state
from stannel.scheduler.queue_tasks import QueueLimits, queue_tasks
from stannel.scheduler.rescue import rescue_lost_attempts
from stannel.settings import Settings
from stannel.store import Store
from stannel.store.dags import next_due
from stannel.store.database import SCHEDULER
from stannel.store.event_queue import next_look
from stannel.store.runs import next_deadlines
from stannel.store.signals import Listener, wait
from stannel.store.tasks import next_retry
from stannel.store.waits import Ending, next_wait_deadline
from stannel.supervisor.tasklog import append_note, log_path

log = logging.getLogger(__name__)

_RUNS_PER_TICK = 50
_PAUSE_AFTER_ERROR = 1.0
_SHORTEST_PAUSE = 0.005
# Under load the scheduler rests three times as long as it worked, so that one look serves several ends.
_BREATH, _LONGEST_BREATH = 3.0, 0.02


def utcnow() -> datetime:
    return datetime.now(UTC)


class Scheduler:
    """One scheduler. Several may work on one PostgreSQL database at the same time."""

    def __init__(self, store: Store, settings: Settings, *, clock: Callable[[], datetime] = utcnow) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self.owner = f"scheduler-{new_id()[-12:]}"
        self._advance = Advance(
            store,
            max_active_runs=settings.core.max_active_runs_per_dag,
            max_map_length=settings.core.max_map_length,
        )
        self._limits = QueueLimits(
            parallelism=settings.core.parallelism,
            max_active_tasks=settings.core.max_active_tasks_per_dag,
            most=settings.scheduler.max_tis_per_query,
        )
        self._stopping = threading.Event()
        self._renewed = self._swept = float("-inf")
        self.ticks = 0
        self._took = 0.0
        self._last_tick: datetime | None = None
        self._judges_from: datetime | None = None
        self._trouble: str | None = None

    def run(self, stop: threading.Event | None = None) -> None:
        """Work until stopped. An error is logged and the work goes on; the store decides what is left to do."""
        listener: Listener | None = None
        while not (self._stopping.is_set() or (stop is not None and stop.is_set())):
            try:
                listener = listener or self._store.listen(SCHEDULER)
                self._keep_lease()
                pause = self.tick()
                self._trouble = None
                self._rest(listener, pause)
            except StannelError as error:
                log.error("The scheduler could not go on and tries again: %s", error)
                self._trouble = str(error)
                self._stopping.wait(_PAUSE_AFTER_ERROR)
            except Exception as error:
                log.exception("The scheduler met a bug in itself and tries again")
                self._trouble = f"{type(error).__name__}: {error}"
                self._stopping.wait(_PAUSE_AFTER_ERROR)
        if listener is not None:
            listener.close()
        self._leave()

    def stop(self) -> None:
        """Have `run` return soon."""
        self._stopping.set()
        with contextlib.suppress(StannelError):
            self._store.database.wake(SCHEDULER)

    def _rest(self, listener: Listener, pause: float) -> None:
        """Sleep until woken. Under load news are always there already: a breath then lets them gather."""
        if listener.drain():
            time.sleep(min(_BREATH * self._took, _LONGEST_BREATH))
            listener.drain()
        else:
            wait(listener, pause)

    def tick(self) -> float:
        """Do everything that can be done now; the seconds until something is due."""
        began = time.monotonic()
        # First what somebody waits for: a worker is woken by it while the rest is looked at.
        self._move_all()
        if self._rescue() | self._create_all():
            self._move_all()
        self.ticks += 1
        self._took = time.monotonic() - began
        return self._until_next_deadline()

    def _move_all(self) -> None:
        while self._move_runs(self._clock()):
            pass

    def _rescue(self) -> bool:
        now = self._clock()
        return self._may_judge(now) and rescue_lost_attempts(self._store, now) > 0

    def _create_all(self) -> bool:
        created = False
        while self._create_runs(self._clock()):
            created = True
        return created

    def _may_judge(self, now: datetime) -> bool:
        """Whether silence of others means their death. Not after our own: then the whole machine may have slept."""
        patience = timedelta(seconds=self._settings.scheduler.lease_seconds)
        if self._last_tick is not None and now - self._last_tick > patience:
            self._judges_from = now + patience
        self._last_tick = now
        return self._judges_from is None or now >= self._judges_from

    def _create_runs(self, now: datetime) -> bool:
        moment = to_micros(now)
        with self._store.read() as tx:
            by_events, by_time = next_look(tx), next_due(tx)
        limits = {
            "most": self._settings.scheduler.max_dagruns_to_create_per_loop,
            "max_active_runs": self._settings.core.max_active_runs_per_dag,
        }
        looked_at = 0
        if by_events is not None and by_events <= moment:
            looked_at += create_asset_runs(self._store, now, **limits)
        if by_time is not None and by_time <= moment:
            looked_at += create_due_runs(self._store, now, **limits)
        # None, though one is due: another scheduler is at it.
        return looked_at > 0

    def _move_runs(self, now: datetime) -> bool:
        """Start, plan and queue in one transaction. True: there may be more to do at once."""
        with self._store.transaction() as tx:
            self._advance.start_runs(tx, now)
            self._advance.wake_retries(tx, now)
            self._advance.end_overdue(tx, now)
            overdue = self._advance.end_overdue_waits(tx, now)
            planned = self._advance.plan_runs(tx, now, most=_RUNS_PER_TICK)
            queue_tasks(self._store, tx, now, self._limits)
        self._note_overdue(overdue)
        return planned == _RUNS_PER_TICK

    def _note_overdue(self, overdue: Sequence[Ending]) -> None:
        for one in overdue:
            wait = one.wait
            limit = "the timeout of the wait" if wait.deadline_of == "trigger" else "the task's execution_timeout"
            path = log_path(self._settings.logging.base_log_folder, wait)
            append_note(path, "stannel.scheduler", f"The wait for {wait.classpath} was ended: {limit} is over", "error")

    def _keep_lease(self) -> None:
        moment = time.monotonic()
        seconds = self._settings.scheduler.lease_seconds
        if moment - self._renewed < self._settings.scheduler.scheduler_heartbeat_sec:
            return
        leases, now = self._store.leases, self._clock()
        # A lease that is renewed while nothing gets done must say so, or it would look healthy.
        detail = {"ticks": self.ticks, **({"trouble": self._trouble} if self._trouble else {})}
        if not leases.renew(self.owner, now=now, seconds=seconds, detail=detail):
            leases.take(
                self.owner, "scheduler", hostname=os.uname().nodename, pid=os.getpid(), now=now, seconds=seconds
            )
        self._renewed = moment
        if moment - self._swept > self._settings.scheduler.sweep_interval:
            self._store.runs.sweep()
            forget_expired_state(self._store, now, batch=self._settings.state_store.state_cleanup_batch_size)
            self._swept = moment

    def _until_next_deadline(self) -> float:
        now = to_micros(self._clock())
        with self._store.read() as tx:
            moments = [next_due(tx), next_look(tx), next_retry(tx), next_wait_deadline(tx), *next_deadlines(tx, now)]
        waits = [(moment - now) / 1e6 for moment in moments if moment is not None]
        # What is due and was not done cannot be done now; trying again at once would be a hot loop.
        return max(min([self._settings.scheduler.scheduler_heartbeat_sec, *waits]), _SHORTEST_PAUSE)

    def _leave(self) -> None:
        try:
            self._store.leases.release(self.owner)
        except StannelError as error:
            log.warning("The scheduler's lease could not be released and will run out: %s", error)
