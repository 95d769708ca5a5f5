"""One task, many instances: what `.partial(...)` and `.expand(...)` make, and how an instance gets its arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

from stannel.errors import DagInvalid
from stannel.model.dag import Mapping as MappingSpec
from stannel.model.dag import MapSource
from stannel.sdk import building
from stannel.sdk.abstract_operator import AbstractOperator
from stannel.sdk.exceptions import AirflowException
from stannel.sdk.references import (
    JoinedXComArg,
    MappedXComArg,
    Reference,
    XComArg,
    ZippedXComArg,
    items_of,
    references_in,
    resolved,
)
from stannel.sdk.task_arguments import COMMON_ARGUMENTS


class ExpandInput:
    """What a task is mapped over: for each argument a list, a dict or another task's output."""

    def __init__(self, arguments: Mapping[str, Any], by_kwargs: bool = False) -> None:
        self.arguments, self.by_kwargs = dict(arguments), by_kwargs

    def compiled(self) -> MappingSpec:
        """The form the scheduler counts instances with."""
        sources = tuple(_source(name, value) for name, value in self.arguments.items())
        return MappingSpec(sources=sources, by_kwargs=self.by_kwargs)

    def references(self) -> list[Reference]:
        return list(references_in(self.arguments))

    def pick(self, map_index: int, context: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[int]]:
        """The arguments of one instance, and the identities of those other tasks made. The last changes fastest."""
        wanted = map_index
        picked: dict[str, Any] = {}
        made: set[int] = set()
        for name, value in reversed(self.arguments.items()):
            items = items_of(_mapped_over(value, context))
            map_index, place = divmod(map_index, len(items)) if items else (1, 0)
            if items:
                item = items[place]
                picked[name] = resolved(item, context)
                if isinstance(value, Reference) or picked[name] is not item:
                    made.add(id(picked[name]))
        if map_index:
            raise AirflowException(
                f"There is no item for instance {wanted}: what the task is mapped over is shorter than it was when its "
                "instances were made."
            )
        if not self.by_kwargs:
            return dict(reversed(picked.items())), frozenset(made)
        (kwargs,) = picked.values()
        if not isinstance(kwargs, dict):
            raise TypeError(f"expand_kwargs() needs a list of dicts, but an item is a {type(kwargs).__name__}")
        return kwargs, frozenset(map(id, kwargs.values())) if made else frozenset()


def _mapped_over(value: Any, context: Mapping[str, Any]) -> Any:
    return value.resolve(context) if isinstance(value, Reference) else value


def _source(name: str, value: Any) -> MapSource:
    if isinstance(value, XComArg):
        while isinstance(value, MappedXComArg):
            value = value.sources[0]
        return MapSource(argument=name, task_id=value.operator.task_id, key=value.key)
    return MapSource(argument=name, length=len(value))


def check_mappable(where: AbstractOperator | str, name: str, value: Any) -> None:
    """Refuse what has no length that can be known, or is not meant to be taken apart."""
    reason = None
    base = value
    while isinstance(base, MappedXComArg):
        base = base.sources[0]
    if isinstance(base, ZippedXComArg | JoinedXComArg):
        reason = "the result of .zip() or .concat() cannot be mapped over yet; make the list in a task"
    elif not isinstance(base, XComArg | list | tuple | dict):
        reason = f"{name!r} cannot be mapped over: expand() takes a list, a dict or a task's output, not {value!r}"
    if reason:
        raise _refusal(where, reason)


def _refusal(where: AbstractOperator | str, reason: str) -> DagInvalid:
    if isinstance(where, AbstractOperator):
        return where.invalid(reason)
    dag = building.current_dag()
    file = dag.fileloc if dag else building.defining_file()
    return DagInvalid(dag.dag_id if dag else "?", file or None, f"task {where!r}: {reason}")


class OperatorPartial:
    """The fixed arguments of a task that still has to be told what it is mapped over."""

    def __init__(self, operator_class: Any, arguments: dict[str, Any]) -> None:
        self.operator_class, self.arguments = operator_class, arguments

    def expand(self, **mapped: Any) -> "MappedOperator":
        """One instance for each combination of the given lists."""
        return self._expanded(mapped, by_kwargs=False)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> "MappedOperator":
        """One instance for each dict of arguments in the list."""
        return self._expanded({"kwargs": kwargs}, by_kwargs=True)

    def _expanded(self, mapped: dict[str, Any], by_kwargs: bool) -> "MappedOperator":
        task_id = str(self.arguments.get("task_id"))
        if not mapped:
            raise _refusal(task_id, "expand() needs at least one argument to map over")
        for name, value in mapped.items():
            check_mappable(task_id, name, value)
            if not by_kwargs and name in COMMON_ARGUMENTS:
                raise _refusal(task_id, f"{name!r} is the same for all instances of a task; move it to partial()")
            if name in self.arguments:
                raise _refusal(task_id, f"{name!r} is given to both partial() and expand()")
        return MappedOperator(self.operator_class, self.arguments, ExpandInput(mapped, by_kwargs))


class MappedOperator(AbstractOperator):
    """A task with as many instances as the lists it is mapped over have items."""

    is_mapped = True

    def __init__(
        self, operator_class: Any, partial_kwargs: dict[str, Any], expand_input: ExpandInput, op_expand: bool = False
    ) -> None:
        self.operator_class = operator_class
        self.partial_kwargs = partial_kwargs
        self.expand_input = expand_input
        # A decorated function's own arguments are mapped inside `op_kwargs`.
        self.op_expand = op_expand
        self.template_fields: Sequence[str] = operator_class.template_fields
        self.custom_operator_name = operator_class.custom_operator_name or operator_class.__name__
        super().__init__({name: partial_kwargs[name] for name in COMMON_ARGUMENTS & partial_kwargs.keys()})
        for reference in [*references_in(partial_kwargs), *expand_input.references()]:
            for operator in reference.iter_operators():
                self.set_upstream(operator)

    def unmap(self, map_index: int, context: Mapping[str, Any]) -> Any:
        """The plain task of one instance. It stands outside the graph, where this one stays."""
        own, finished = self.expand_input.pick(map_index, context)
        if self.op_expand:
            own = {"op_kwargs": {**self.partial_kwargs.get("op_kwargs", {}), **own}}
        task = self.operator_class.detached({**self.partial_kwargs, **own})
        task.finished_values = finished
        task.task_id, task.label = self.task_id, self.label
        task.task_group, task._dag = self.task_group, self._dag
        task.upstream_task_ids, task.downstream_task_ids = self.upstream_task_ids, self.downstream_task_ids
        return task
