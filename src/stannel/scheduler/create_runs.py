"""Makes the runs that schedules ask for, and remembers when each DAG is due next."""

import contextlib
import logging
from datetime import datetime

from stannel.errors import RunExists, StannelError
from stannel.model.dag import DagSpec
from stannel.model.ids import run_id_for
from stannel.model.moments import maybe_moment, to_micros
from stannel.model.run import RunType
from stannel.model.schedule import Continuous, DueRun, Interval
from stannel.scheduler import timetables
from stannel.store import Store
from stannel.store.dags import DagStatus, due_dags, hold_at_limit, set_next_run
from stannel.store.runs import NewRun, create_run, latest_scheduled, living_runs
from stannel.store.sql import Tx

log = logging.getLogger(__name__)


class TimetableBroken(StannelError):
    """The next run of a DAG cannot be computed; it has none until its file changes."""

    def __init__(self, dag_id: str, error: Exception) -> None:
        super().__init__(f"The schedule of the DAG {dag_id!r} cannot be followed: {type(error).__name__}: {error}.")
        self.dag_id, self.error = dag_id, error


def create_due_runs(store: Store, now: datetime, *, most: int, max_active_runs: int) -> int:
    """Make the runs that are due, one for each DAG at most; how many DAGs were looked at. 0: none is due."""
    with store.transaction() as tx:
        due = due_dags(tx, to_micros(now), most)
        for status in due:
            try:
                _take_up(tx, status, store.dags.spec(status.version, tx), now, max_active_runs)
            except TimetableBroken as error:
                # Other DAGs go on; this one has no next run until its file changes.
                log.error("%s", error, exc_info=error.__cause__)
                set_next_run(tx, status.dag_id, None)
    return len(due)


def _take_up(tx: Tx, status: DagStatus, spec: DagSpec, now: datetime, max_active_runs: int) -> None:
    # What is due is computed again unless every run is wanted: intervals that passed meanwhile are left out.
    due = status.next_run if spec.catchup else None
    if due is None:
        due = _next_run(spec, _last_run(tx, spec.dag_id), now, status.first_seen)
    if due is None or due.run_after > now:
        set_next_run(tx, spec.dag_id, due)
        return
    limit = 1 if isinstance(spec.schedule, Continuous) else spec.max_active_runs or max_active_runs
    if living_runs(tx, spec.dag_id) >= limit:
        set_next_run(tx, spec.dag_id, due)
        hold_at_limit(tx, spec.dag_id)
        return
    # Somebody may have made the run of this date by hand; the schedule goes on after it.
    with contextlib.suppress(RunExists):
        create_run(tx, status.version, spec, _scheduled(due), to_micros(now))
    set_next_run(tx, spec.dag_id, _next_run(spec, due, now, status.first_seen))


def _next_run(spec: DagSpec, last: DueRun | None, now: datetime, first_seen: datetime) -> DueRun | None:
    try:
        return timetables.next_run(spec, last, now, first_seen=first_seen)
    except Exception as error:
        raise TimetableBroken(spec.dag_id, error) from error


def _scheduled(due: DueRun) -> NewRun:
    return NewRun(
        run_id=run_id_for(RunType.SCHEDULED, due.logical_date or due.run_after),
        run_type=RunType.SCHEDULED,
        run_after=due.run_after,
        logical_date=due.logical_date,
        interval=due.interval,
        triggered_by="timetable",
    )


def _last_run(tx: Tx, dag_id: str) -> DueRun | None:
    row = latest_scheduled(tx, dag_id)
    if row is None:
        return None
    logical, start, end, after = (maybe_moment(value) for value in row)
    assert after is not None
    return DueRun(logical, Interval(start, end) if start and end else None, after)
