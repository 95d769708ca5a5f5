"""Says for every task of a run what it is waiting for, from what the store and the leases show."""

from datetime import datetime
from functools import cached_property

from stannel.cli.output import moment
from stannel.cli.waits import Triggerers, explain
from stannel.model.run import Run, TaskInstance
from stannel.model.states import RunState, TaskState, TriggerState
from stannel.scheduler.graph import Graph, Past
from stannel.scheduler.waiting import why_waiting
from stannel.settings import Settings
from stannel.store.leases import Lease
from stannel.store.runs import previous_run, running_counts
from stannel.store.sql import Tx
from stannel.store.store import Store
from stannel.store.tasks import instances_of
from stannel.store.trigger_records import TriggerRecord

NO_SCHEDULER = "no scheduler is at work; start one with: stannel standalone"
NO_WORKER = "no worker is at work; start one with: stannel standalone"


class Waiting:
    """Explains one run, as it stands at one moment."""

    def __init__(self, store: Store, settings: Settings, run: Run, now: datetime) -> None:
        self._settings, self._run, self._now = settings, run, now
        self._dag = store.dags.get(run.dag_id)
        self._spec = store.dags.spec(run.version)
        self._graph = Graph(self._spec)
        leases = store.leases.all()
        at_work = [lease for lease in leases if lease.is_live(now)]
        self._triggerers = Triggerers(leases, now)
        self._store = store
        self._at_work = {lease.kind for lease in at_work}
        self._trouble = _trouble_of([lease for lease in at_work if lease.kind == "scheduler"])
        with store.read() as tx:
            self._instances = instances_of(tx, run.pk)
            self._past = self._load_past(tx) if self._graph.looks_back else None
            self._running_runs = running_counts(tx).get(run.dag_id, 0)

    def run(self) -> str | None:
        """Why the run as a whole does not move. None: nothing holds it back, or it has ended."""
        if self._run.state not in (RunState.QUEUED, RunState.RUNNING):
            return None
        if self._dag.is_paused:
            return f"its DAG is paused; go on with: stannel dags unpause {self._run.dag_id}"
        if "scheduler" not in self._at_work:
            return NO_SCHEDULER
        if self._trouble is not None:
            return f"the scheduler cannot go on: {self._trouble}"
        if self._run.state is not RunState.QUEUED:
            return None
        if self._run.run_after > self._now:
            return f"it starts at {moment(self._run.run_after)}"
        limit = self._spec.max_active_runs or self._settings.core.max_active_runs_per_dag
        if self._running_runs >= limit:
            return f"{self._running_runs} runs of this DAG are running already (max_active_runs is {limit})"
        return "the scheduler starts it next"

    def task(self, instance: TaskInstance) -> str | None:
        """Why an instance stands as it does, as a clause. None: there is nothing to explain."""
        match instance.state:
            case TaskState.NONE:
                return self.run() or self._not_decided(instance)
            case TaskState.SCHEDULED:
                return self.run() or _clause(instance.note) or "the scheduler hands it to a worker next"
            case TaskState.QUEUED:
                return "it waits for a worker to take it" if "worker" in self._at_work else NO_WORKER
            case TaskState.UP_FOR_RETRY | TaskState.UP_FOR_RESCHEDULE:
                verb = "is tried" if instance.state is TaskState.UP_FOR_RETRY else "looks"
                when = f"it {verb} again at {moment(instance.retry_at)}" if instance.retry_at else f"it {verb} again"
                return f"{when} ({instance.note})" if instance.note else when
            case TaskState.DEFERRED:
                return self._deferred(instance)
            case _:
                return instance.note

    def _deferred(self, instance: TaskInstance) -> str:
        trigger = self._triggers.get((instance.task_id, instance.map_index))
        if trigger is None:
            return self.run() or "its wait is over; the scheduler goes on with it next"
        return explain(trigger, self._triggerers)

    @cached_property
    def _triggers(self) -> dict[tuple[str, int], TriggerRecord]:
        found = self._store.triggers.all(dag_id=self._run.dag_id, run_id=self._run.run_id, limit=None)
        return {(one.task_id, one.map_index): one for one in found if one.state is TriggerState.WAITING}

    def _not_decided(self, instance: TaskInstance) -> str:
        sentence = why_waiting(
            self._graph, self._instances, instance.task_id, map_index=instance.map_index, past=self._past
        )
        # The sentence begins with the task's name, which stands beside it on the screen already.
        _, _, predicate = sentence.rstrip(".").partition(" ")
        return f"it {predicate}"

    def _load_past(self, tx: Tx) -> Past | None:
        before = previous_run(tx, self._run)
        if before is None:
            return None
        return {(one.task_id, one.map_index): one.state for one in instances_of(tx, before)}


def _trouble_of(schedulers: list[Lease]) -> str | None:
    """What every scheduler complains about. None: one of them is well."""
    troubles = [lease.detail.get("trouble") for lease in schedulers]
    return troubles[0] if troubles and all(troubles) else None


def _clause(sentence: str | None) -> str:
    text = (sentence or "").rstrip(".")
    return text[:1].lower() + text[1:]
