"""What every task is, mapped or not: its settings, its place in a DAG and its arrows."""

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Self

from stannel.errors import DagInvalid, DuplicateTaskId
from stannel.model.dag import TriggerRule
from stannel.model.ids import check_author_id
from stannel.sdk import building
from stannel.sdk.node import Node, flat
from stannel.sdk.params import ParamsDict
from stannel.sdk.references import XCOM_RETURN_KEY, XComArg
from stannel.sdk.task_arguments import DEFAULTS, HOOKS, WeightRule

# Accepted, because existing DAG files give them; ignoring them in silence would be worse than refusing them.
_WITHOUT_EFFECT = {
    "email": "send mail from an on_failure_callback",
    "run_as_user": "tasks run as the user of their worker",
    "executor_config": "choose a queue or an executor instead",
}


def default_args_for(arguments: dict[str, Any]) -> dict[str, Any]:
    """What DAG, task groups and the task itself give as defaults; the nearest wins."""
    dag, group = placement(arguments)
    merged: dict[str, Any] = {}
    if dag is not None:
        merged.update(dag.default_args)
    if group is not None:
        merged.update(group.inherited_default_args())
    merged.update(arguments.get("default_args") or {})
    return merged


def placement(arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The DAG and task group a task with these arguments belongs to; either may be None."""
    group = arguments.get("task_group")
    dag = arguments.get("dag") or (group.dag if group is not None else None) or building.current_dag()
    if group is None and dag is not None:
        group = building.current_group() if dag is building.current_dag() else dag.task_group
    return dag, group


class AbstractOperator(Node):
    """A task as the graph sees it."""

    is_mapped = False
    custom_operator_name: str | None = None

    task_id: str
    owner: str
    retries: int
    retry_delay: timedelta
    retry_exponential_backoff: float
    max_retry_delay: timedelta | None
    depends_on_past: bool
    trigger_rule: TriggerRule
    weight_rule: WeightRule
    execution_timeout: timedelta | None
    pool: str
    do_xcom_push: bool
    multiple_outputs: bool
    inlets: list[Any]
    outlets: list[Any]

    def __init__(self, arguments: dict[str, Any]) -> None:
        task_id = check_author_id("task", arguments.get("task_id"))
        dag, group = placement(arguments)
        self.label = task_id
        self.task_id = group.child_id(task_id) if group is not None else task_id
        self.task_group = group
        self.upstream_task_ids: set[str] = set()
        self.downstream_task_ids: set[str] = set()
        self.is_setup = self.is_teardown = self.on_failure_fail_dagrun = False
        self.params = ParamsDict(arguments.get("params") or {})
        self._dag: Any = None
        self._known_before: frozenset[str] = frozenset()
        self._take_settings({**DEFAULTS, **arguments})
        if dag is not None:
            self.dag = dag

    def _take_settings(self, settings: dict[str, Any]) -> None:
        for name in DEFAULTS:
            setattr(self, name, settings[name])
        for name in HOOKS & settings.keys():
            if settings[name] is not None:
                setattr(self, name, settings[name])
        self.retries = self._whole("retries", settings["retries"] or 0, least=0)
        self.retry_delay = self._duration("retry_delay")
        self.max_retry_delay = self._duration("max_retry_delay") if settings["max_retry_delay"] is not None else None
        self.execution_timeout = (
            self._duration("execution_timeout") if settings["execution_timeout"] is not None else None
        )
        self.retry_exponential_backoff = _factor(settings["retry_exponential_backoff"])
        self.pool = settings["pool"] or "default_pool"
        self._whole("pool_slots", settings["pool_slots"], least=1)
        self._whole("priority_weight", settings["priority_weight"])
        self.trigger_rule = self._one_of("trigger_rule", TriggerRule, settings["trigger_rule"])
        self.weight_rule = self._one_of("weight_rule", WeightRule, settings["weight_rule"])
        for name in ("max_active_tis_per_dag", "max_active_tis_per_dagrun"):
            if settings[name] is not None:
                self._whole(name, settings[name], least=1)
        self.inlets, self.outlets = _several(settings["inlets"]), _several(settings["outlets"])
        if settings["wait_for_downstream"]:
            self.depends_on_past = True
        for name, advice in _WITHOUT_EFFECT.items():
            if settings[name]:
                building.warn(f"task {self.task_id!r}: {name} has no effect in Stannel; {advice}")

    def _whole(self, name: str, value: Any, least: int | None = None) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
            bound = "" if least is None else f" of at least {least}"
            raise self.invalid(f"{name} must be a whole number{bound}, not {value!r}")
        return value

    def _duration(self, name: str) -> timedelta:
        value = getattr(self, name)
        if isinstance(value, timedelta):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return timedelta(seconds=value)
        raise self.invalid(f"{name} must be a timedelta or a number of seconds, not {value!r}")

    def _one_of(self, name: str, kind: Any, value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(kind)
            raise self.invalid(f"{name} is {value!r}, which is none of {known}") from None

    def invalid(self, reason: str) -> DagInvalid:
        """The error that names this task, its DAG and its file."""
        dag = self._dag
        file = dag.fileloc if dag is not None else building.defining_file()
        return DagInvalid(dag.dag_id if dag is not None else "?", file or None, f"task {self.task_id!r}: {reason}")

    # --- its DAG ---------------------------------------------------------------------------------------------------

    def has_dag(self) -> bool:
        return self._dag is not None

    @property
    def dag(self) -> Any:
        """The DAG this task belongs to."""
        if self._dag is None:
            raise RuntimeError(f"the task {self.task_id!r} belongs to no DAG yet; make it inside `with DAG(...)`")
        return self._dag

    @dag.setter
    def dag(self, dag: Any) -> None:
        if self._dag is dag:
            return
        if self._dag is not None:
            raise self.invalid(f"it belongs to this DAG and cannot also be used in DAG {dag.dag_id!r}")
        if dag.task_dict.get(self.task_id) not in (None, self):
            raise DuplicateTaskId(dag.dag_id, self.task_id, dag.fileloc or None)
        self._dag = dag
        if self.task_group is None:
            self.task_group = dag.task_group
        dag.task_dict[self.task_id] = self
        self.task_group.add(self)

    @property
    def dag_id(self) -> str:
        return self._dag.dag_id if self._dag is not None else "?"

    @property
    def task_type(self) -> str:
        """The operator's name as shown to people."""
        return self.custom_operator_name or type(self).__name__

    operator_name = task_type

    @property
    def node_id(self) -> str:
        return self.task_id

    @property
    def group_id(self) -> str | None:
        return self.task_group.group_id if self.task_group is not None else None

    @property
    def log(self) -> logging.Logger:
        """Where this task's own messages go: the task log while it runs."""
        name: str | None = getattr(self, "logger_name", None)
        return logging.getLogger(name or f"stannel.task.{type(self).__module__}.{type(self).__name__}")

    # --- its arrows ------------------------------------------------------------------------------------------------

    @property
    def roots(self) -> Sequence["AbstractOperator"]:
        return [self]

    @property
    def leaves(self) -> Sequence["AbstractOperator"]:
        return [self]

    def add_edge_to(self, downstream: "AbstractOperator", label: str | None = None) -> None:
        """Let `downstream` wait for this task; a task without a DAG joins the other's."""
        if self._dag is None and downstream._dag is not None:
            self.dag = downstream._dag
        elif downstream._dag is None and self._dag is not None:
            downstream.dag = self._dag
        if self._dag is not downstream._dag:
            raise self.invalid(f"it cannot be connected to {downstream.task_id!r} of DAG {downstream.dag_id!r}")
        self.downstream_task_ids.add(downstream.task_id)
        downstream.upstream_task_ids.add(self.task_id)
        if label and self._dag is not None:
            self._dag.edge_labels[self.task_id, downstream.task_id] = label

    @property
    def upstream_list(self) -> list["AbstractOperator"]:
        return [self.dag.get_task(task_id) for task_id in sorted(self.upstream_task_ids)]

    @property
    def downstream_list(self) -> list["AbstractOperator"]:
        return [self.dag.get_task(task_id) for task_id in sorted(self.downstream_task_ids)]

    def get_direct_relatives(self, upstream: bool = False) -> list["AbstractOperator"]:
        return self.upstream_list if upstream else self.downstream_list

    def get_flat_relative_ids(self, *, upstream: bool = False) -> set[str]:
        """The ids of every task before (or after) this one, at any distance."""
        found: set[str] = set()
        waiting = [self]
        while waiting:
            task = waiting.pop()
            for task_id in (task.upstream_task_ids if upstream else task.downstream_task_ids) - found:
                found.add(task_id)
                waiting.append(self.dag.get_task(task_id))
        return found

    def get_flat_relatives(self, upstream: bool = False) -> Collection["AbstractOperator"]:
        return [self.dag.get_task(task_id) for task_id in sorted(self.get_flat_relative_ids(upstream=upstream))]

    @property
    def output(self) -> XComArg:
        """A reference to what this task will return."""
        return XComArg(self, XCOM_RETURN_KEY)

    # --- setup and teardown ----------------------------------------------------------------------------------------

    def as_setup(self) -> Self:
        """Run before the tasks that need it; its teardown runs whatever became of them."""
        self.is_setup = True
        return self

    def as_teardown(self, *, setups: Any = None, on_failure_fail_dagrun: bool | None = None) -> Self:
        """Run once the tasks between `setups` and this are done, if the setups succeeded."""
        self.is_teardown = True
        self.trigger_rule = TriggerRule.ALL_DONE_SETUP_SUCCESS
        if on_failure_fail_dagrun is not None:
            self.on_failure_fail_dagrun = on_failure_fail_dagrun
        for node in flat(setups) if setups is not None else ():
            for task in node.leaves:
                task.as_setup()
            self.set_upstream(node)
        return self

    def __enter__(self) -> Self:
        if not (self.is_setup or self.is_teardown):
            raise self.invalid("only a setup or a teardown can be used in a `with` statement")
        self._known_before = frozenset(self.dag.task_dict)
        return self

    def __exit__(self, *error: object) -> None:
        between = [task for task_id, task in self.dag.task_dict.items() if task_id not in self._known_before]
        setups = [self] if self.is_setup else [task for task in self.upstream_list if task.is_setup]
        for task in between:
            if not (task.upstream_task_ids - {setup.task_id for setup in setups}):
                task.set_upstream([setup for setup in setups if setup is not task])
            if self.is_teardown and not task.downstream_task_ids and not task.is_teardown:
                task.set_downstream(self)

    def __repr__(self) -> str:
        return f"<Task({self.task_type}): {self.task_id}>"


def _several(value: Any) -> list[Any]:
    """What the author gave, one thing or a collection of them, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _factor(value: bool | float) -> float:
    """What each further delay is multiplied by; 0 means always the same delay."""
    return 2.0 if value is True else float(value)
