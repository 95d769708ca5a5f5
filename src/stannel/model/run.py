"""Runs, task instances and attempts as they travel between the store and the programs."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from stannel.model.asset import ConsumedEvent, Emitted
from stannel.model.ids import UNMAPPED
from stannel.model.states import AttemptState, RunState, TaskState
from stannel.model.trigger import Deferral


class RunType(StrEnum):
    """What caused a run."""

    BACKFILL = "backfill"
    SCHEDULED = "scheduled"
    MANUAL = "manual"
    OPERATOR_TRIGGERED = "operator_triggered"
    ASSET_TRIGGERED = "asset_triggered"
    ASSET_MATERIALIZATION = "asset_materialization"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a DAG. `pk` is the store's own number; `version` names the DAG version it started with."""

    pk: int
    dag_id: str
    run_id: str
    run_type: RunType
    state: RunState
    version: str
    run_after: datetime
    logical_date: datetime | None = None
    data_interval_start: datetime | None = None
    data_interval_end: datetime | None = None
    queued_at: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    conf: dict[str, Any] = {}
    clear_number: int = 0
    triggered_by: str | None = None
    note: str | None = None
    partition_key: str | None = None


class TaskInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One task (or one map index of it) in one run."""

    pk: int
    run_pk: int
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = UNMAPPED
    state: TaskState = TaskState.NONE
    try_number: int = 0
    max_tries: int = 0
    attempt_id: str | None = None
    pool: str = "default_pool"
    pool_slots: int = 1
    priority: int = 1
    queue: str = "default"
    operator: str = ""
    note: str | None = None
    rendered_map_index: str | None = None
    scheduled_at: datetime | None = None
    queued_at: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    retry_at: datetime | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try at a task instance: everything a supervisor needs to run it and to answer for it."""

    attempt_id: str
    ti_pk: int
    run: Run
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    queue: str
    fileloc: str
    start_date: datetime
    execution_timeout: float | None = None
    should_retry: bool = False
    state: AttemptState = AttemptState.RUNNING
    next_method: str | None = None
    next_kwargs: dict[str, Any] | None = None
    reschedule_count: int = 0
    # When this try first started, if it was interrupted (rescheduled or deferred) since.
    first_start_date: datetime | None = None
    # What its run consumed, if asset events made it.
    events: tuple[ConsumedEvent, ...] = ()

    @property
    def dag_id(self) -> str:
        return self.run.dag_id

    @property
    def run_id(self) -> str:
        return self.run.run_id

    def seconds_left(self, now: datetime) -> float | None:
        """What is left of `execution_timeout`, which counts from the first start of a try that waited meanwhile."""
        if self.execution_timeout is None or self.next_method is None or self.first_start_date is None:
            return self.execution_timeout
        return max(self.execution_timeout - (now - self.first_start_date).total_seconds(), 0.0)

    @property
    def label(self) -> str:
        """How people and logs name it: `dag / run / task[3] try 2`."""
        index = "" if self.map_index == UNMAPPED else f"[{self.map_index}]"
        return f"{self.dag_id} / {self.run_id} / {self.task_id}{index} try {self.try_number}"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, in the words of its supervisor."""

    state: TaskState
    end_date: datetime
    reason: str | None = None
    retry_delay: float | None = None
    retry_at: datetime | None = None
    rendered_map_index: str | None = None
    skip: tuple[tuple[str, int], ...] = ()
    # What the task waits for, when it ended to wait.
    deferral: Deferral | None = None
    # What a success tells of the task's outlets.
    outlets: tuple[Emitted, ...] = ()
    # The process did not say so itself, so it did not run its author's callbacks either.
    unreported: bool = False
