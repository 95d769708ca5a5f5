"""From the author's objects to the engine's data, once per DAG and version of its file."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from stannel.errors import CycleFound
from stannel.model.dag import DagSpec, GroupSpec, ParamSpec, Retry, TaskSpec, decode_dag, encode_dag
from stannel.model.schedule import Cron
from stannel.sdk import serde
from stannel.sdk.abstract_operator import AbstractOperator
from stannel.sdk.assets.compiled import aliases_of, assets_of, references_of
from stannel.sdk.assets.schedule import time_part
from stannel.sdk.dags import DAG
from stannel.sdk.mapped import MappedOperator
from stannel.sdk.notset import NOTSET
from stannel.sdk.operator import BaseOperator
from stannel.sdk.param_schema import problems
from stannel.sdk.start_trigger import operator_class_of, start_trigger_of
from stannel.sdk.task_arguments import WeightRule
from stannel.sdk.timezone import as_moment, zone_name

_TASK_CALLBACKS = ("execute", "failure", "retry", "skipped", "success")
_MOST_PRIORITY = 2**31 - 1


def compile_dag(dag: DAG, *, fileloc: str) -> DagSpec:
    """The DAG as data; equal DAGs give equal bytes. Raises what is wrong with it, naming file, DAG and task."""
    check_cycles(dag, fileloc)
    priorities = priorities_of(dag)
    tasks = tuple(_task_spec(task, priorities[task.task_id]) for task in dag.tasks)
    schedule = dag.timetable.compiled()
    time = time_part(schedule)
    zone = time.timezone if isinstance(time, Cron) else zone_name(dag.timezone)
    spec = DagSpec(
        dag_id=dag.dag_id,
        fileloc=fileloc,
        display_name=dag.dag_display_name if dag.dag_display_name != dag.dag_id else None,
        description=dag.description,
        doc=dag.doc_md,
        schedule=schedule,
        timezone=zone,
        start_date=_earliest(dag),
        end_date=dag.end_date,
        catchup=bool(dag.catchup),
        max_active_runs=_count(dag, "max_active_runs"),
        max_active_tasks=_count(dag, "max_active_tasks"),
        max_consecutive_failed_runs=dag.max_consecutive_failed_dag_runs or 0,
        dagrun_timeout=_seconds(dag.dagrun_timeout),
        fail_fast=bool(dag.fail_fast),
        is_paused_upon_creation=dag.is_paused_upon_creation,
        tags=tuple(sorted(map(str, dag.tags))),
        owners=tuple(sorted({task.owner for task in tasks})),
        params=_params(dag, dag.params),
        tasks=tasks,
        groups=tuple(_group_spec(group) for group in dag.task_groups.values()),
        callbacks=tuple(name for name in ("failure", "success") if getattr(dag, f"on_{name}_callback")),
        assets=assets_of(dag),
        aliases=aliases_of(dag),
        render_template_as_native_obj=bool(dag.render_template_as_native_obj),
        extra=_dag_extra(dag),
    )
    return _readable(dag, spec)


def _readable(dag: DAG, spec: DagSpec) -> DagSpec:
    """The same, as everyone else will read it: a value of the wrong type is found here and not in the scheduler."""
    try:
        return decode_dag(encode_dag(spec))
    except (msgspec.ValidationError, TypeError) as error:
        place = re.search(r"tasks\[(\d+)\]", str(error))
        where = f"task {spec.tasks[int(place[1])].task_id!r}: " if place else ""
        raise dag.invalid(f"{where}a setting has the wrong type: {error}") from None


def _count(dag: DAG, name: str) -> int | None:
    value = getattr(dag, name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise dag.invalid(f"{name} must be a whole number, not {value!r}")
    return value or None


def _earliest(dag: DAG) -> Any:
    # A DAG without a start date starts when its first task may.
    dates = [as_moment(task.start_date, dag.timezone) for task in dag.tasks if task.start_date is not None]
    return dag.start_date or min(dates, default=None)


def _dag_extra(dag: DAG) -> dict[str, Any]:
    labels = [[*edge, label] for edge, label in sorted(dag.edge_labels.items())]
    return {
        **({"edge_labels": labels} if labels else {}),
        **({"owner_links": dict(sorted(dag.owner_links.items()))} if dag.owner_links else {}),
    }


def _task_spec(task: AbstractOperator, priority: int) -> TaskSpec:
    callbacks = tuple(name for name in _TASK_CALLBACKS if getattr(task, f"on_{name}_callback"))
    settings: Any = task
    mapping = task.expand_input.compiled() if isinstance(task, MappedOperator) else None
    return TaskSpec(
        task_id=task.task_id,
        operator=task.task_type,
        upstream=tuple(sorted(task.upstream_task_ids)),
        trigger_rule=task.trigger_rule,
        retry=Retry(
            retries=task.retries,
            delay=task.retry_delay.total_seconds(),
            exponential=task.retry_exponential_backoff,
            max_delay=_seconds(task.max_retry_delay),
        ),
        execution_timeout=_seconds(task.execution_timeout),
        depends_on_past=bool(task.depends_on_past),
        wait_for_downstream=bool(settings.wait_for_downstream),
        ignore_first_depends_on_past=bool(settings.ignore_first_depends_on_past),
        pool=task.pool,
        pool_slots=settings.pool_slots,
        priority=priority,
        queue=settings.queue or "default",
        executor=settings.executor,
        max_active_tis_per_dag=settings.max_active_tis_per_dag,
        max_active_tis_per_dagrun=settings.max_active_tis_per_dagrun,
        mapping=mapping,
        group_id=task.group_id,
        owner=str(task.owner),
        is_setup=task.is_setup,
        is_teardown=task.is_teardown,
        on_failure_fail_dagrun=task.on_failure_fail_dagrun,
        is_empty=_is_empty(task, callbacks),
        callbacks=callbacks,
        template_fields=tuple(settings.template_fields),
        inlets=references_of(task.inlets),
        outlets=references_of(task.outlets),
        start_trigger=start_trigger_of(task),
        resumes_failures=operator_class_of(task).resume_execution is not BaseOperator.resume_execution,
        doc=settings.doc_md or settings.doc or settings.doc_rst or settings.doc_json or settings.doc_yaml,
        extra=_task_extra(settings),
    )


def _is_empty(task: AbstractOperator, callbacks: tuple[str, ...]) -> bool:
    if not getattr(task, "does_nothing", False) or callbacks or task.outlets or isinstance(task, MappedOperator):
        return False
    return not ({"pre_execute", "post_execute"} & vars(task).keys())


def _task_extra(task: Any) -> dict[str, Any]:
    given = {
        "display_name": task.task_display_name,
        "weight_rule": None if task.weight_rule is WeightRule.DOWNSTREAM else str(task.weight_rule),
        "map_index_template": task.map_index_template,
    }
    return {name: value for name, value in given.items() if value is not None}


def _group_spec(group: Any) -> GroupSpec:
    parent = group.parent_group.group_id if group.parent_group is not None else None
    return GroupSpec(group_id=group.group_id, parent=parent, tooltip=group.tooltip)


def _params(dag: DAG, params: Any) -> dict[str, ParamSpec]:
    specs = {}
    for name in params:
        param = params.get_param(name)
        has_default = param.value is not NOTSET
        found = next(problems(param.value, param.schema), None) if has_default and param.value is not None else None
        if found is not None:
            raise dag.invalid(f"the default of the parameter {name!r} breaks its own schema: {found}")
        specs[name] = ParamSpec(
            default=serde.encode(param.value, f"the parameter {name!r} of DAG {dag.dag_id!r}") if has_default else None,
            schema=serde.encode(param.schema, f"the schema of the parameter {name!r} of DAG {dag.dag_id!r}"),
            description=param.description,
            required=not has_default,
        )
    return specs


def _seconds(duration: Any) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def check_cycles(dag: DAG, file: str | None = None) -> None:
    """Raise `CycleFound` with the circle's path if tasks wait for each other."""
    left = {task.task_id: len(task.upstream_task_ids) for task in dag.tasks}
    ready = [task_id for task_id, count in left.items() if count == 0]
    while ready:
        task_id = ready.pop()
        del left[task_id]
        for after in dag.task_dict[task_id].downstream_task_ids:
            left[after] -= 1
            if left[after] == 0:
                ready.append(after)
    if left:
        raise CycleFound(dag.dag_id, _circle(dag, left), file)


def _circle(dag: DAG, stuck: Iterable[str]) -> list[str]:
    # Every stuck task has a stuck upstream task, so walking backwards must come round.
    among = set(stuck)
    task_id = min(among)
    path: list[str] = []
    while task_id not in path:
        path.append(task_id)
        task_id = min(dag.task_dict[task_id].upstream_task_ids & among)
    # `path` leads against the arrows, so the circle is read from its end.
    return [task_id, *reversed(path[path.index(task_id) :])]


def priorities_of(dag: DAG) -> dict[str, int]:
    """Each task's effective weight: its own plus, by its rule, that of everything after (or before) it."""
    order = {task_id: place for place, task_id in enumerate(dag.task_dict)}
    weights = [task.priority_weight for task in dag.tasks]
    after = _reachable(dag, order, upstream=False)
    before = _reachable(dag, order, upstream=True)
    result = {}
    for task_id, place in order.items():
        rule = dag.task_dict[task_id].weight_rule
        reached = {WeightRule.DOWNSTREAM: after, WeightRule.UPSTREAM: before}.get(rule)
        total = weights[place] + (_sum_of(reached[place], weights) if reached is not None else 0)
        result[task_id] = max(-_MOST_PRIORITY - 1, min(_MOST_PRIORITY, total))
    return result


def _reachable(dag: DAG, order: dict[str, int], upstream: bool) -> list[int]:
    """For each task the set of tasks beyond it, as bits: one pass over the graph however many paths there are."""
    sets = [0] * len(order)
    for task_id in _from_the_end(dag, upstream):
        task = dag.task_dict[task_id]
        bits = 0
        for other in task.upstream_task_ids if upstream else task.downstream_task_ids:
            bits |= sets[order[other]] | 1 << order[other]
        sets[order[task_id]] = bits
    return sets


def _from_the_end(dag: DAG, upstream: bool) -> list[str]:
    ahead = "upstream_task_ids" if upstream else "downstream_task_ids"
    behind = "downstream_task_ids" if upstream else "upstream_task_ids"
    left = {task.task_id: len(getattr(task, ahead)) for task in dag.tasks}
    ready = [task_id for task_id, count in left.items() if count == 0]
    for task_id in ready:
        for other in getattr(dag.task_dict[task_id], behind):
            left[other] -= 1
            if left[other] == 0:
                ready.append(other)
    return ready


def _sum_of(bits: int, weights: list[int]) -> int:
    total = 0
    while bits:
        lowest = bits & -bits
        total += weights[lowest.bit_length() - 1]
        bits ^= lowest
    return total
