"""Triggers that wait for runs and tasks of other DAGs. They hear at once of runs that end; they look for the rest."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from stannel.model.states import TaskState
from stannel.protocol.requests import GetDagRunState, GetDRCount, GetTaskStates
from stannel.triggers.asking import EngineRefused, ask, look_until_seen
from stannel.triggers.base import BaseTrigger, TriggerEvent

RunsOfTasks = Mapping[str, Mapping[str, str | None]]


def state_texts(states: Iterable[str] | None) -> list[str]:
    """The states as texts, each once, in their order."""
    return list(dict.fromkeys(str(getattr(state, "value", state)) for state in states or ()))


def any_task_in(runs: RunsOfTasks, states: Collection[str]) -> bool:
    """True if one of the tasks is in one of the states. `runs` are states by run and task."""
    return any(state in states for tasks in runs.values() for state in tasks.values())


def all_tasks_in(runs: RunsOfTasks, states: Collection[str], *, task_ids: Collection[str], run_count: int) -> bool:
    """True if all runs are there, with all of the tasks, and every one is in one of the states."""
    return len(runs) == run_count and all(
        all(state in states for state in tasks.values()) and not missing_tasks(tasks, task_ids)
        for tasks in runs.values()
    )


def missing_tasks(tasks: Collection[str], task_ids: Collection[str]) -> list[str]:
    """Those of the ids that are not among the tasks of a run."""
    # The instances of a mapped task are called after it, with a number behind.
    known = {*tasks, *(name.rpartition("_")[0] for name in tasks)}
    return [task_id for task_id in task_ids if task_id not in known]


class WorkflowTrigger(BaseTrigger):
    """Waits for runs of another DAG, or for tasks or a task group in them; fires `{"status": ...}`.

    The status is "failed" or "skipped" when one of them is in such a state, "success" when all are in allowed ones.
    """

    def __init__(
        self,
        external_dag_id: str,
        run_ids: Sequence[str] | None = None,
        logical_dates: Sequence[datetime] | None = None,
        external_task_ids: Collection[str] | None = None,
        external_task_group_id: str | None = None,
        failed_states: Iterable[str] | None = None,
        skipped_states: Iterable[str] | None = None,
        allowed_states: Iterable[str] | None = None,
        poke_interval: float = 2.0,
        soft_fail: bool = False,
        **kwargs: Any,
    ) -> None:
        # Older callers say execution_dates.
        logical_dates = logical_dates or kwargs.pop("execution_dates", None)
        super().__init__(**kwargs)
        if not run_ids and not logical_dates:
            raise ValueError(f"Nothing of {external_dag_id!r} can be waited for without run_ids or logical_dates.")
        self.external_dag_id = external_dag_id
        self.run_ids, self.logical_dates = _list(run_ids), _list(logical_dates)
        self.external_task_ids, self.external_task_group_id = _list(external_task_ids), external_task_group_id
        self.failed_states, self.skipped_states = state_texts(failed_states), state_texts(skipped_states)
        self.allowed_states = state_texts(allowed_states) or [TaskState.SUCCESS.value]
        self.poke_interval, self.soft_fail = poke_interval, soft_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = (
            "external_dag_id",
            "run_ids",
            "logical_dates",
            "external_task_ids",
            "external_task_group_id",
            "failed_states",
            "skipped_states",
            "allowed_states",
            "poke_interval",
            "soft_fail",
        )
        return "stannel.triggers.external_task.WorkflowTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        status = await look_until_seen(self._status, [self.external_dag_id], self.poke_interval)
        yield TriggerEvent({"status": status})

    async def _status(self) -> str | None:
        """None: wait on."""
        if self.external_task_ids or self.external_task_group_id:
            return self._status_of_tasks(await self._tasks())
        for states, status in ((self.failed_states, "failed"), (self.skipped_states, "skipped")):
            if states and await self._count(states):
                return status
        return "success" if await self._count(self.allowed_states) >= self._run_count else None

    def _status_of_tasks(self, runs: RunsOfTasks) -> str | None:
        if any_task_in(runs, self.failed_states):
            return "failed"
        if any_task_in(runs, self.skipped_states):
            return "skipped"
        task_ids = self.external_task_ids or []
        is_over = all_tasks_in(runs, self.allowed_states, task_ids=task_ids, run_count=self._run_count)
        return "success" if is_over else None

    @property
    def _run_count(self) -> int:
        return len(set(self.run_ids or self.logical_dates or ()))

    async def _count(self, states: list[str]) -> int:
        question = GetDRCount(
            dag_id=self.external_dag_id, run_ids=self.run_ids, logical_dates=self.logical_dates, states=states
        )
        return int((await ask(question)).count)

    async def _tasks(self) -> RunsOfTasks:
        question = GetTaskStates(
            dag_id=self.external_dag_id,
            task_ids=self.external_task_ids,
            task_group_id=self.external_task_group_id,
            run_ids=self.run_ids,
            logical_dates=self.logical_dates,
        )
        try:
            answer: RunsOfTasks = (await ask(question)).task_states
        except EngineRefused as refusal:
            if not refusal.is_not_found:
                raise
            return {}
        return answer


class DagStateTrigger(BaseTrigger):
    """Waits until all of the runs are in one of the states; fires what it was, with the state of each run by its id."""

    def __init__(
        self,
        dag_id: str,
        states: Iterable[str],
        run_ids: Sequence[str] | None = None,
        logical_dates: Sequence[datetime] | None = None,
        poll_interval: float = 5.0,
        **kwargs: Any,
    ) -> None:
        logical_dates = logical_dates or kwargs.pop("execution_dates", None)
        super().__init__(**kwargs)
        if not run_ids and not logical_dates:
            raise ValueError(f"No run of {dag_id!r} can be waited for without run_ids or logical_dates.")
        self.dag_id, self.states = dag_id, state_texts(states)
        self.run_ids, self.logical_dates = _list(run_ids), _list(logical_dates)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("dag_id", "states", "run_ids", "logical_dates", "poll_interval")
        return "stannel.triggers.external_task.DagStateTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        ended = await look_until_seen(self._ended, [self.dag_id], self.poll_interval)
        classpath, kwargs = self.serialize()
        yield TriggerEvent((classpath, {**kwargs, **ended}))

    async def _ended(self) -> dict[str, str] | None:
        """The runs' states, as far as their ids are known. None: not all of them are there yet."""
        question = GetDRCount(
            dag_id=self.dag_id, run_ids=self.run_ids, logical_dates=self.logical_dates, states=self.states
        )
        if (await ask(question)).count < len(set(self.run_ids or self.logical_dates or ())):
            return None
        states = {run_id: str((await ask(GetDagRunState(self.dag_id, run_id))).state) for run_id in self.run_ids or ()}
        # A run that was cleared between the two questions has gone on.
        return states if all(state in self.states for state in states.values()) else None


def _list(values: Iterable[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
