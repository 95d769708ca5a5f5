"""The arguments every operator accepts, and what they are when the author gives none."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

from stannel.model.dag import TriggerRule
from stannel.sdk import environment

Callback = Callable[[Any], Any]
Callbacks = Callback | Sequence[Callback] | None


class WeightRule(StrEnum):
    """How a task's priority follows from the graph."""

    DOWNSTREAM = "downstream"
    UPSTREAM = "upstream"
    ABSOLUTE = "absolute"


class TaskArguments(TypedDict, total=False):
    """The arguments every operator accepts."""

    task_id: str
    owner: str
    email: str | Iterable[str] | None
    email_on_retry: bool
    email_on_failure: bool
    retries: int | None
    retry_delay: timedelta | float
    retry_exponential_backoff: bool | float
    max_retry_delay: timedelta | float | None
    start_date: datetime | None
    end_date: datetime | None
    depends_on_past: bool
    ignore_first_depends_on_past: bool
    wait_for_downstream: bool
    dag: Any
    task_group: Any
    params: Any
    default_args: dict[str, Any] | None
    priority_weight: int
    weight_rule: str
    queue: str
    pool: str | None
    pool_slots: int
    execution_timeout: timedelta | None
    trigger_rule: str
    on_execute_callback: Callbacks
    on_failure_callback: Callbacks
    on_success_callback: Callbacks
    on_retry_callback: Callbacks
    on_skipped_callback: Callbacks
    pre_execute: Callback | None
    post_execute: Callable[[Any, Any], Any] | None
    map_index_template: str | None
    max_active_tis_per_dag: int | None
    max_active_tis_per_dagrun: int | None
    executor: str | None
    executor_config: dict[str, Any] | None
    do_xcom_push: bool
    multiple_outputs: bool
    run_as_user: str | None
    task_display_name: str | None
    logger_name: str | None
    doc: str | None
    doc_md: str | None
    doc_json: str | None
    doc_yaml: str | None
    doc_rst: str | None
    render_template_as_native_obj: bool | None
    inlets: Any
    outlets: Any


_TIMEOUT = environment.setting("CORE__DEFAULT_TASK_EXECUTION_TIMEOUT", "")

DEFAULTS: TaskArguments = {
    "owner": "stannel",
    "email": None,
    "email_on_retry": True,
    "email_on_failure": True,
    "retries": int(environment.setting("CORE__DEFAULT_TASK_RETRIES", "0")),
    "retry_delay": timedelta(seconds=float(environment.setting("CORE__DEFAULT_TASK_RETRY_DELAY", "300"))),
    "retry_exponential_backoff": False,
    "max_retry_delay": None,
    "start_date": None,
    "end_date": None,
    "depends_on_past": False,
    "ignore_first_depends_on_past": True,
    "wait_for_downstream": False,
    "priority_weight": 1,
    "weight_rule": WeightRule.DOWNSTREAM,
    "queue": "default",
    "pool": "default_pool",
    "pool_slots": 1,
    "execution_timeout": timedelta(seconds=float(_TIMEOUT)) if _TIMEOUT else None,
    "trigger_rule": TriggerRule.ALL_SUCCESS,
    "on_execute_callback": None,
    "on_failure_callback": None,
    "on_success_callback": None,
    "on_retry_callback": None,
    "on_skipped_callback": None,
    "map_index_template": None,
    "max_active_tis_per_dag": None,
    "max_active_tis_per_dagrun": None,
    "executor": None,
    "executor_config": None,
    "do_xcom_push": True,
    "multiple_outputs": False,
    "run_as_user": None,
    "task_display_name": None,
    "logger_name": None,
    "doc": None,
    "doc_md": None,
    "doc_json": None,
    "doc_yaml": None,
    "doc_rst": None,
    "render_template_as_native_obj": None,
    "inlets": None,
    "outlets": None,
}
# Kept on the task only when given: the methods of the same name are the default.
HOOKS = frozenset({"pre_execute", "post_execute"})
COMMON_ARGUMENTS = frozenset(TaskArguments.__annotations__)
