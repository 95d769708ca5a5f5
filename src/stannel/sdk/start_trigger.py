"""The trigger that a task begins with, as data: worked out while the file is read, when no process of it runs yet."""

from datetime import timedelta
from typing import Any

from stannel.model.dag import StartTrigger
from stannel.sdk import building
from stannel.sdk.abstract_operator import AbstractOperator
from stannel.sdk.deferral import are_queues_enabled, encoded
from stannel.sdk.mapped import MappedOperator
from stannel.sdk.references import references_in
from stannel.sdk.template_marks import needs_rendering
from stannel.triggers.base import StartTriggerArgs

# What the instances of a mapped task may not differ in if they are to start from their trigger.
_OWN = frozenset({"start_from_trigger", "start_trigger_args", "trigger_kwargs"})


def operator_class_of(task: AbstractOperator) -> Any:
    """The class whose `execute` will run."""
    return task.operator_class if isinstance(task, MappedOperator) else type(task)


def start_trigger_of(task: AbstractOperator) -> StartTrigger | None:
    """What the task waits for before its first process. None: it begins with a process."""
    given = _given(task)
    if given is None:
        return None
    arguments = dict(given.trigger_kwargs or {})
    for reference in references_in([arguments, given.next_kwargs]):
        raise task.invalid(f"{reference!r} in start_trigger_args is not known before the task has a process")
    if given.next_method and not callable(getattr(operator_class_of(task), given.next_method, None)):
        raise task.invalid(f"start_trigger_args goes on at {given.next_method!r}, which the operator does not have")
    settings: Any = task
    return StartTrigger(
        classpath=given.trigger_cls,
        kwargs=encoded(arguments, f"the start trigger of task {task.task_id!r}"),
        method=given.next_method or None,
        next_kwargs=encoded(given.next_kwargs or {}, f"the next_kwargs of task {task.task_id!r}"),
        timeout=given.timeout.total_seconds() if isinstance(given.timeout, timedelta) else given.timeout,
        queue=settings.queue if are_queues_enabled() else None,
        renders=needs_rendering(arguments, ()),
    )


def _given(task: AbstractOperator) -> StartTriggerArgs | None:
    if isinstance(task, MappedOperator):
        return _given_to_all(task)
    settings: Any = task
    if not settings.start_from_trigger:
        return None
    if settings.start_trigger_args is None:
        raise task.invalid("start_from_trigger is set, but start_trigger_args does not say which trigger")
    args: StartTriggerArgs = settings.start_trigger_args
    return args


def _given_to_all(task: MappedOperator) -> StartTriggerArgs | None:
    """What every instance begins with; its own arguments would be known only where it runs, so it begins there."""
    kind, partial, expanded = task.operator_class, task.partial_kwargs, task.expand_input
    args: StartTriggerArgs | None = partial.get("start_trigger_args", kind.start_trigger_args)
    if not partial.get("start_from_trigger", kind.start_from_trigger) or args is None:
        return None
    if expanded.by_kwargs or _OWN & expanded.arguments.keys():
        building.warn(
            f"task {task.task_id!r}: its instances start on a worker, because what they wait for differs; "
            "start_from_trigger works for a mapped task if all instances wait for the same"
        )
        return None
    kwargs = partial.get("trigger_kwargs") or args.trigger_kwargs
    return StartTriggerArgs(
        trigger_cls=args.trigger_cls,
        next_method=args.next_method,
        trigger_kwargs=kwargs,
        next_kwargs=args.next_kwargs,
        timeout=args.timeout,
    )
