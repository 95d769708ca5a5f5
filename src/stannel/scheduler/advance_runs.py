"""Starts queued runs and moves running ones on: whatever changed in a run is planned, and the plan is written down."""

import logging
from collections import OrderedDict
from datetime import datetime

from stannel.errors import StannelError
from stannel.model.dag import DagSpec
from stannel.model.moments import from_micros, to_micros
from stannel.model.plan import Instance, RunPlan
from stannel.model.run import Run
from stannel.model.states import RunState, TaskState
from stannel.scheduler.graph import Graph, Past
from stannel.scheduler.plan import Lengths, plan_run
from stannel.store import Store
from stannel.store.callbacks import request_callback
from stannel.store.dags import pause_dag
from stannel.store.runs import (
    add_instances,
    current_version,
    end_run,
    follow_version,
    latest_states,
    mark_dirty,
    mark_follower_dirty,
    note_run,
    overdue_runs,
    previous_run,
    queued_runs,
    running_counts,
    start_run,
    stop_instances,
    take_dirty,
)
from stannel.store.sql import Tx
from stannel.store.tasks import apply_plan, instances_of, runs_with_due_retries
from stannel.store.waits import Ending, expire_waits, next_wait_deadline
from stannel.store.xcoms import mapped_lengths

log = logging.getLogger(__name__)

_GRAPHS_KEPT = 256
# A plan that creates instances is followed by another one; a DAG needs one round for each of its mapped levels.
_MOST_ROUNDS = 100


class PlanBroken(StannelError):
    """A run that cannot be planned because of a bug; nothing about it was changed."""

    def __init__(self, run: Run, error: Exception) -> None:
        super().__init__(f"The scheduler cannot plan this run: {type(error).__name__}: {error}")
        self.run, self.error = run, error


class Advance:
    """Plans runs. It keeps nothing but the shapes of DAGs it has seen."""

    def __init__(self, store: Store, *, max_active_runs: int, max_map_length: int) -> None:
        self._store, self._max_active_runs, self._max_map_length = store, max_active_runs, max_map_length
        self._graphs: OrderedDict[str, Graph] = OrderedDict()

    def start_runs(self, tx: Tx, now: datetime) -> None:
        """Start queued runs, the oldest first, as far as each DAG's `max_active_runs` allows."""
        waiting = queued_runs(tx, to_micros(now))
        if not waiting:
            return
        running = running_counts(tx)
        for run_pk, dag_id, version in waiting:
            spec = self._store.dags.spec(version, tx)
            if running.get(dag_id, 0) < (spec.max_active_runs or self._max_active_runs):
                moment = to_micros(now)
                deadline = None if spec.dagrun_timeout is None else moment + int(spec.dagrun_timeout * 1e6)
                start_run(tx, run_pk, now=moment, deadline=deadline)
                running[dag_id] = running.get(dag_id, 0) + 1

    def wake_retries(self, tx: Tx, now: datetime) -> None:
        """Have runs planned in which a task has waited long enough for its next try."""
        mark_dirty(tx, runs_with_due_retries(tx, to_micros(now)))

    def end_overdue(self, tx: Tx, now: datetime) -> None:
        """Fail the runs that took longer than their `dagrun_timeout`."""
        moment = to_micros(now)
        for run in overdue_runs(tx, moment):
            why = "the run took longer than its dagrun_timeout"
            stop_instances(tx, run.pk, now=moment, why=why)
            self._end(tx, run, self._store.dags.spec(run.version, tx), RunState.FAILED, moment, why)

    def end_overdue_waits(self, tx: Tx, now: datetime) -> list[Ending]:
        """Tasks that waited longer than they may fail, or hear of it on a worker; those waits."""
        overdue = next_wait_deadline(tx)
        return expire_waits(tx, self._store.dags, now) if overdue is not None and overdue <= to_micros(now) else []

    def plan_runs(self, tx: Tx, now: datetime, *, most: int) -> int:
        """Plan up to `most` runs in which something changed; how many there were."""
        runs = take_dirty(tx, most)
        for run in runs:
            try:
                self._plan(tx, run, to_micros(now))
            except PlanBroken as error:
                # Everybody else's runs go on; this one says what is wrong, and the next sweep tries it again.
                if run.note != str(error):
                    log.error("The run %s of %s cannot be planned", run.run_id, run.dag_id, exc_info=error.__cause__)
                    note_run(tx, run.pk, str(error))
        return len(runs)

    def _plan(self, tx: Tx, run: Run, now: int) -> None:
        version = current_version(tx, run.dag_id)
        if version != run.version:
            follow_version(tx, run.pk, version)
        spec, graph = self._shape(tx, run, version)
        past = self._past(tx, run) if graph.looks_back else None
        lengths = mapped_lengths(tx, run.pk) if graph.has_mapped else {}
        for _ in range(_MOST_ROUNDS):
            instances = instances_of(tx, run.pk)
            plan = self._decide(run, graph, instances, now, lengths, past)
            apply_plan(tx, run, spec, plan, now)
            self._start_from_triggers(tx, run, spec, instances, plan, now)
            add_instances(tx, run.pk, spec, plan.missing)
            if not plan.expand and not plan.missing:
                break
        if graph.looks_back:
            mark_follower_dirty(tx, run)
        if plan.verdict is not None:
            self._end(tx, run, spec, plan.verdict, now, plan.reason)

    def _start_from_triggers(
        self, tx: Tx, run: Run, spec: DagSpec, instances: list[Instance], plan: RunPlan, now: int
    ) -> None:
        """Tasks that begin with a trigger wait at once: no worker, no slot. One that goes on goes to a worker."""
        chosen = set(plan.schedule)
        for task in spec.tasks if chosen else ():
            if task.start_trigger is not None:
                begun = [
                    one
                    for one in instances
                    if one.pk in chosen and one.task_id == task.task_id and one.state is not TaskState.UP_FOR_RESCHEDULE
                ]
                if begun:
                    self._store.triggers.start(tx, run, task, begun, now=from_micros(now))

    def _shape(self, tx: Tx, run: Run, version: str) -> tuple[DagSpec, Graph]:
        try:
            spec = self._store.dags.spec(version, tx)
            return spec, self._graph(version, spec)
        except Exception as error:
            raise PlanBroken(run, error) from error

    def _decide(
        self, run: Run, graph: Graph, instances: list[Instance], now: int, lengths: Lengths, past: Past | None
    ) -> RunPlan:
        try:
            return plan_run(graph, instances, now=now, lengths=lengths, past=past, max_map_length=self._max_map_length)
        except Exception as error:
            raise PlanBroken(run, error) from error

    def _end(self, tx: Tx, run: Run, spec: DagSpec, state: RunState, now: int, why: str | None) -> None:
        if end_run(tx, run, state, now=now, why=why):
            if state is RunState.FAILED:
                self._pause_if_it_keeps_failing(tx, spec)
            kind = "success" if state is RunState.SUCCESS else "failure"
            if kind in spec.callbacks:
                request_callback(tx, run.pk, kind, now=now, reason=why)

    def _pause_if_it_keeps_failing(self, tx: Tx, spec: DagSpec) -> None:
        limit = spec.max_consecutive_failed_runs
        if limit and latest_states(tx, spec.dag_id, limit) == [RunState.FAILED] * limit:
            log.warning("The DAG %s is paused: its last %d runs failed", spec.dag_id, limit)
            pause_dag(tx, spec.dag_id)

    def _past(self, tx: Tx, run: Run) -> dict[tuple[str, int], TaskState] | None:
        before = previous_run(tx, run)
        if before is None:
            return None
        return {(one.task_id, one.map_index): one.state for one in instances_of(tx, before)}

    def _graph(self, version: str, spec: DagSpec) -> Graph:
        if (graph := self._graphs.get(version)) is None:
            graph = self._graphs[version] = Graph(spec)
            if len(self._graphs) > _GRAPHS_KEPT:
                self._graphs.popitem(last=False)
        return graph
