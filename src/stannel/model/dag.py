"""What an author wrote, as data: a DAG, its tasks, how a task is mapped. Made by `sdk.compile`, read by all others."""

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from stannel.model.asset import AliasSpec, AssetSpec, Reference
from stannel.model.schedule import AnySchedule, Never


class TriggerRule(StrEnum):
    """When a task may start, given how its upstream tasks ended."""

    ALL_SUCCESS = "all_success"
    ALL_FAILED = "all_failed"
    ALL_DONE = "all_done"
    ALL_DONE_MIN_ONE_SUCCESS = "all_done_min_one_success"
    ALL_DONE_SETUP_SUCCESS = "all_done_setup_success"
    ALL_SKIPPED = "all_skipped"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    ONE_DONE = "one_done"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_SKIPPED = "none_skipped"
    ALWAYS = "always"


class MapSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of `expand`: a literal of known length, or the list (or dict) an upstream task returns."""

    argument: str
    length: int | None = None
    task_id: str | None = None
    key: str = "return_value"


class Mapping(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many instances a task has: the product of its sources. `by_kwargs`: one source, a list of argument dicts."""

    sources: tuple[MapSource, ...]
    by_kwargs: bool = False


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often, and how long after a failure, a task is tried again."""

    retries: int = 0
    delay: float = 300.0
    exponential: float = 0.0
    max_delay: float | None = None


class StartTrigger(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a task waits for before it is first given a process. Arguments are encoded, `timeout` is in seconds."""

    classpath: str
    kwargs: dict[str, Any] = {}
    method: str | None = None
    next_kwargs: dict[str, Any] = {}
    timeout: float | None = None
    queue: str | None = None
    # Some argument is a template, so whoever runs the trigger has to render it first.
    renders: bool = False


class TaskSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task. Durations are seconds. `priority` is the effective weight, computed over the graph once."""

    task_id: str
    operator: str = "BaseOperator"
    upstream: tuple[str, ...] = ()
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    retry: Retry = Retry()
    execution_timeout: float | None = None
    depends_on_past: bool = False
    wait_for_downstream: bool = False
    ignore_first_depends_on_past: bool = True
    pool: str = "default_pool"
    pool_slots: int = 1
    priority: int = 1
    queue: str = "default"
    executor: str | None = None
    max_active_tis_per_dag: int | None = None
    max_active_tis_per_dagrun: int | None = None
    mapping: Mapping | None = None
    group_id: str | None = None
    owner: str = "stannel"
    is_setup: bool = False
    is_teardown: bool = False
    on_failure_fail_dagrun: bool = False
    # An empty task without callbacks or outlets needs no process: the scheduler ends it itself.
    is_empty: bool = False
    is_stub: bool = False
    # Which callbacks the author gave: "success", "failure", "retry", "skipped", "execute".
    callbacks: tuple[str, ...] = ()
    template_fields: tuple[str, ...] = ()
    inlets: tuple[Reference, ...] = ()
    outlets: tuple[Reference, ...] = ()
    # Waited for before the first process of each try; None: the task starts on a worker.
    start_trigger: StartTrigger | None = None
    # Its own code decides what a failed or overdue wait means, so a worker has to tell it.
    resumes_failures: bool = False
    doc: str | None = None
    extra: dict[str, Any] = {}


class GroupSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task group, for display and for waiting on it as a whole."""

    group_id: str
    parent: str | None = None
    tooltip: str = ""


class ParamSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run parameter: its default and the JSON Schema a given value must meet."""

    default: Any = None
    schema: dict[str, Any] = {}
    description: str | None = None
    required: bool = False


class DagSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """One DAG. `fileloc` is relative to the DAG folder; tasks stand in the author's order."""

    dag_id: str
    fileloc: str = ""
    display_name: str | None = None
    description: str | None = None
    doc: str | None = None
    schedule: AnySchedule = Never()
    timezone: str = "UTC"
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: bool = False
    max_active_runs: int | None = None
    max_active_tasks: int | None = None
    max_consecutive_failed_runs: int = 0
    dagrun_timeout: float | None = None
    fail_fast: bool = False
    is_paused_upon_creation: bool | None = None
    tags: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    params: dict[str, ParamSpec] = {}
    tasks: tuple[TaskSpec, ...] = ()
    groups: tuple[GroupSpec, ...] = ()
    callbacks: tuple[str, ...] = ()
    # Every asset and alias that the schedule or a task names.
    assets: tuple[AssetSpec, ...] = ()
    aliases: tuple[AliasSpec, ...] = ()
    render_template_as_native_obj: bool = False
    extra: dict[str, Any] = {}

    def task(self, task_id: str) -> TaskSpec | None:
        """The task of that id. None: this version of the DAG has no such task."""
        return self._by_id.get(task_id)

    @cached_property
    def _by_id(self) -> dict[str, TaskSpec]:
        return {task.task_id: task for task in self.tasks}


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(DagSpec)


def encode_dag(spec: DagSpec) -> bytes:
    """The form in which a DAG travels and is stored; equal DAGs give equal bytes."""
    return _encoder.encode(spec)


def decode_dag(data: bytes | str) -> DagSpec:
    return _decoder.decode(data)
