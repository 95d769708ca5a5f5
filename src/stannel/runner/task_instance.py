"""The task instance as task code sees it: `ti` in the context."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from stannel.model.ids import UNMAPPED
from stannel.protocol.replies import StartupDetails
from stannel.protocol.requests import GetDagRunState, GetPreviousTI, GetTICount, SkipDownstreamTasks
from stannel.sdk import comms
from stannel.sdk.log import TASK_LOGGER
from stannel.sdk.notset import NOTSET, ArgNotSet, is_arg_set
from stannel.sdk.references import XCOM_RETURN_KEY
from stannel.sdk.xcom import LazyXComSequence, XCom


class RuntimeTaskInstance:
    """One attempt at one instance of a task: who it is, and its XComs."""

    def __init__(self, startup: StartupDetails, task: Any) -> None:
        ti, run_context = startup.ti, startup.ti_context
        self.id, self.dag_id, self.task_id, self.run_id = ti.id, ti.dag_id, ti.task_id, ti.run_id
        self.map_index, self.try_number, self.max_tries = ti.map_index, ti.try_number, run_context.max_tries
        self.hostname, self.queue = ti.hostname, ti.queue
        self.start_date: datetime = startup.start_date
        # Earlier than `start_date` if this try was interrupted and taken up again.
        self.first_start_date: datetime = run_context.start_date or startup.start_date
        self.task_reschedule_count = run_context.task_reschedule_count
        self.end_date: datetime | None = None
        self.state = "running"
        self.dag_run = run_context.dag_run
        self.should_retry = run_context.should_retry
        self.rendered_map_index: str | None = None
        self.task = task

    @property
    def is_mapped(self) -> bool:
        return self.map_index != UNMAPPED

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(TASK_LOGGER)

    @property
    def operator(self) -> str:
        return str(self.task.task_type)

    @property
    def duration(self) -> float | None:
        return None if self.end_date is None else (self.end_date - self.start_date).total_seconds()

    @property
    def logical_date(self) -> datetime | None:
        return self.dag_run.logical_date

    def get_dagrun(self) -> Any:
        return self.dag_run

    # --- XComs -----------------------------------------------------------------------------------------------------

    def xcom_push(self, key: str, value: Any) -> None:
        """Leave a value for later tasks of the run."""
        XCom.set(key, value, dag_id=self.dag_id, task_id=self.task_id, run_id=self.run_id, map_index=self.map_index)

    def xcom_pull(
        self,
        task_ids: str | Iterable[str] | None = None,
        dag_id: str | None = None,
        key: str = XCOM_RETURN_KEY,
        include_prior_dates: bool = False,
        *,
        map_indexes: int | Iterable[int] | ArgNotSet | None = NOTSET,
        default: Any = None,
        run_id: str | None = None,
    ) -> Any:
        """What a task left: a value for one task id, a list for several.

        Without `task_ids` the task's own values are meant. Without `map_indexes`, a mapped task gives all its values.
        """
        one: str
        index: Any
        where = {"key": key, "dag_id": dag_id or self.dag_id, "run_id": run_id or self.run_id}
        if task_ids is None:
            one, index = self.task_id, self.map_index if not is_arg_set(map_indexes) else map_indexes
        elif isinstance(task_ids, str):
            one, index = task_ids, map_indexes
        else:
            return [self._pull(where, task_id, map_indexes, include_prior_dates, default) for task_id in list(task_ids)]
        return self._pull(where, one, index, include_prior_dates, default)

    def _pull(self, where: dict[str, str], task_id: str, index: Any, include_prior_dates: bool, default: Any) -> Any:
        if isinstance(index, ArgNotSet) and self._is_mapped_here(where, task_id):
            return LazyXComSequence(task_id=task_id, **where)
        if isinstance(index, Iterable):
            return [self._pull(where, task_id, one, include_prior_dates, default) for one in index]
        map_index = index if isinstance(index, int) else None
        value = XCom.get_one(task_id=task_id, map_index=map_index, include_prior_dates=include_prior_dates, **where)
        return default if value is None else value

    def _is_mapped_here(self, where: dict[str, str], task_id: str) -> bool:
        if where["dag_id"] != self.dag_id or not self.task.has_dag():
            return False
        task = self.task.dag.task_dict.get(task_id)
        return task is not None and task.is_mapped

    def xcom_sequence(self, task_id: str, key: str) -> LazyXComSequence:
        """What all instances of a mapped task of this run left."""
        return LazyXComSequence(key=key, dag_id=self.dag_id, run_id=self.run_id, task_id=task_id)

    # --- the run around it -----------------------------------------------------------------------------------------

    def skip_downstream(self, task_ids: Sequence[str | tuple[str, int]]) -> None:
        """Have these tasks skipped in this run."""
        comms.ask(SkipDownstreamTasks(tasks=list(task_ids)))

    def get_previous_ti(self, state: Any = None, logical_date: datetime | None = None, map_index: int = -1) -> Any:
        """This task's instance in the run before. None: there is none."""
        moment = logical_date or self.logical_date
        return comms.ask(
            GetPreviousTI(
                dag_id=self.dag_id, task_id=self.task_id, logical_date=moment, map_index=map_index, state=state
            )
        ).task_instance

    @staticmethod
    def get_ti_count(dag_id: str, **conditions: Any) -> int:
        """How many task instances meet the conditions."""
        return int(comms.ask(GetTICount(dag_id=dag_id, **conditions)).count)

    @staticmethod
    def get_dagrun_state(dag_id: str, run_id: str) -> str:
        """The state of another run."""
        return str(comms.ask(GetDagRunState(dag_id, run_id)).state)

    def __repr__(self) -> str:
        index = f"[{self.map_index}]" if self.is_mapped else ""
        return f"<TaskInstance: {self.dag_id}.{self.task_id}{index} {self.run_id} try {self.try_number}>"
