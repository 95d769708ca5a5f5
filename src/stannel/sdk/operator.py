"""`BaseOperator`: a task as its author configures it, and the hooks that run inside the task process."""

import copy
import importlib
import inspect
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar, NoReturn, Self, Unpack

from stannel.errors import closest, did_you_mean
from stannel.model.trigger import FAIL_METHOD
from stannel.sdk.abstract_operator import AbstractOperator, default_args_for
from stannel.sdk.deferral import check_deferral, raise_failure, tell_failure
from stannel.sdk.exceptions import TaskDeferralError, TaskDeferred
from stannel.sdk.mapped import OperatorPartial
from stannel.sdk.references import XCOM_RETURN_KEY, references_in
from stannel.sdk.task_arguments import COMMON_ARGUMENTS, TaskArguments
from stannel.triggers.base import BaseTrigger, StartTriggerArgs

_PLACE = frozenset({"dag", "task_group"})


@cache
def accepted_arguments(operator_class: type) -> frozenset[str]:
    """Every keyword the operator's constructors take, its own and those it passes on."""
    names = set(COMMON_ARGUMENTS)
    for base in operator_class.__mro__:
        if base is BaseOperator:
            break
        constructor = base.__dict__.get("__init__")
        if constructor is not None:
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            names.update(name for name, one in inspect.signature(constructor).parameters.items() if one.kind in kinds)
    names.update(getattr(operator_class, "mixin_arguments", ()))
    names.discard("self")
    return frozenset(names)


def with_default_args(operator_class: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, completed from `default_args` where the author gave none and the operator takes them."""
    defaults = default_args_for(arguments)
    if not defaults:
        return arguments
    # A task's own id and place are never a matter of defaults.
    accepted = accepted_arguments(operator_class) - _PLACE - {"task_id", "default_args"}
    params = {**(defaults.get("params") or {}), **(arguments.get("params") or {})}
    merged = {**{name: defaults[name] for name in accepted & defaults.keys()}, **arguments}
    return {**merged, "params": params} if params else merged


class OperatorMeta(type):
    """Completes a new task from `default_args` and connects it to the tasks whose outputs it uses."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args:
            raise TypeError(f"{cls.__name__} takes keyword arguments only, as in {cls.__name__}(task_id=...)")
        task = super().__call__(**with_default_args(cls, kwargs))
        task.connect_references()
        return task


class BaseOperator(AbstractOperator, metaclass=OperatorMeta):
    """Subclass it, take your own arguments, pass the rest to `super().__init__(**kwargs)`, and implement `execute`."""

    template_fields: Sequence[str] = ()
    template_ext: Sequence[str] = ()
    template_fields_renderers: ClassVar[dict[str, str]] = {}
    ui_color: str = "#fff"
    ui_fgcolor: str = "#000"
    shallow_copy_attrs: Sequence[str] = ()
    # True for an operator that does nothing at all: it needs no process.
    does_nothing: ClassVar[bool] = False
    # True: the task begins by waiting for the trigger of `start_trigger_args`, before it is given a process.
    start_from_trigger: bool = False
    start_trigger_args: StartTriggerArgs | None = None

    def __init__(self, **kwargs: Unpack[TaskArguments]) -> None:
        arguments: dict[str, Any] = {**kwargs}
        # A mixin that stands behind BaseOperator among the bases has no constructor of its own that is called.
        for name in getattr(self, "mixin_arguments", ()):
            if name in arguments:
                setattr(self, name, arguments.pop(name))
        unknown = arguments.keys() - COMMON_ARGUMENTS
        if unknown:
            name = min(unknown)
            hint = did_you_mean(closest(name, accepted_arguments(type(self)))) or "."
            raise TypeError(
                f"Task {arguments.get('task_id')!r}: {type(self).__name__} does not know the argument {name!r}{hint}"
            )
        super().__init__(arguments)
        if self.start_trigger_args is not None:
            # Constructors change their task's arguments in place; those of the class belong to all its tasks.
            self.start_trigger_args = copy.copy(self.start_trigger_args)

    def connect_references(self) -> None:
        """Wait for every task whose output is used in a template field."""
        for field in self.template_fields:
            for reference in references_in(getattr(self, field, None)):
                for operator in reference.iter_operators():
                    if operator is not self:
                        self.set_upstream(operator)

    @classmethod
    def partial(cls, *, task_id: str, **kwargs: Any) -> OperatorPartial:
        """The arguments all instances share; follow it with `.expand(...)`."""
        unknown = kwargs.keys() - accepted_arguments(cls)
        if unknown:
            raise TypeError(f"Task {task_id!r}: {cls.__name__} does not know the argument {min(unknown)!r}.")
        return OperatorPartial(cls, with_default_args(cls, {"task_id": task_id, **kwargs}))

    @classmethod
    def detached(cls, arguments: Mapping[str, Any]) -> Self:
        """A task that stands in no graph: one instance of a mapped task, about to run."""
        kept = {name: value for name, value in arguments.items() if name not in _PLACE}
        task: Self = type.__call__(cls, **kept)
        return task

    # --- in the task process ---------------------------------------------------------------------------------------

    def execute(self, context: Any) -> Any:
        """Do the work; what is returned becomes the task's XCom. May be `async def`."""
        raise NotImplementedError(f"{type(self).__name__} has no execute() method")

    def pre_execute(self, context: Any) -> None:
        """Called right before `execute`."""

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Called right after `execute`, with what it returned."""

    def defer(
        self,
        trigger: BaseTrigger,
        method_name: str | None,
        kwargs: dict[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> NoReturn:
        """End this process and let the trigger wait; its event resumes the task at `method_name`, in a new process.

        Nothing of this object is kept but `kwargs`, which the method is given beside `event`. `method_name` None: the
        trigger ends the task itself.
        """
        check_deferral(self, trigger, method_name)
        raise TaskDeferred(trigger=trigger, method_name=method_name, kwargs=kwargs, timeout=timeout)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Go on where the task deferred; raise what went wrong if its wait failed."""
        kwargs = dict(next_kwargs or {})
        if next_method == FAIL_METHOD:
            tell_failure(self.log, kwargs)
            raise_failure(kwargs.get("error", "Unknown"), self.execution_timeout)
        method = getattr(self, next_method, None) if next_method else None
        if method is None:
            raise TaskDeferralError(
                f"The task cannot go on at {next_method!r}: {type(self).__name__} has no such method. "
                "It had when the task deferred, or its trigger was to end the task and did not."
            )
        return method(context, **kwargs)

    def on_kill(self) -> None:
        """Clean up when the attempt is told to stop: end processes and remote jobs that `execute` started."""

    @staticmethod
    def xcom_push(context: Mapping[str, Any], key: str, value: Any) -> None:
        """Leave a value for later tasks."""
        context["ti"].xcom_push(key=key, value=value)

    @staticmethod
    def xcom_pull(
        context: Mapping[str, Any],
        task_ids: str | list[str] | None = None,
        dag_id: str | None = None,
        key: str = XCOM_RETURN_KEY,
        include_prior_dates: bool | None = None,
    ) -> Any:
        """A value an earlier task left."""
        return context["ti"].xcom_pull(
            task_ids=task_ids, dag_id=dag_id, key=key, include_prior_dates=bool(include_prior_dates)
        )

    def get_template_env(self, dag: Any = None) -> Any:
        """The Jinja environment in which this task's fields are rendered."""
        return template_engine().environment_of(dag or self._dag, self)

    def render_template(self, content: Any, context: Mapping[str, Any], jinja_env: Any = None) -> Any:
        """The content with every template inside it rendered and every reference resolved."""
        return template_engine().Renderer(self, context, jinja_env).render(content)

    def render_template_fields(self, context: Mapping[str, Any], jinja_env: Any = None) -> None:
        """Replace this task's template fields by their rendered values."""
        renderer = template_engine().Renderer(self, context, jinja_env)
        for field in self.template_fields:
            setattr(self, field, renderer.render(getattr(self, field)))


def template_engine() -> Any:
    """The module that renders templates; it is loaded on first use."""
    # Jinja2 costs more than the rest of the SDK together, and most tasks have no templates.
    return importlib.import_module("stannel.sdk.templates")


class SkipMixin:
    """For operators that decide at run time which tasks are not needed."""

    def skip_ids_of(self, task: Any, chosen: str | Collection[str] | None) -> list[str]:
        """Direct downstream tasks to be skipped when only `chosen` (task or group ids) are to run."""
        names = [] if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
        wanted = {task_id for name in names for task_id in self._task_ids(task, name)}
        kept = set(wanted)
        for task_id in wanted:
            kept |= task.dag.get_task(task_id).get_flat_relative_ids()
        return sorted(one.task_id for one in task.downstream_list if one.task_id not in kept and not one.is_teardown)

    @staticmethod
    def _task_ids(task: Any, name: Any) -> list[str]:
        if not isinstance(name, str):
            raise TypeError(f"a branch is chosen by task ids, but {task.task_id!r} returned {name!r}")
        dag = task.dag
        if name in dag.task_groups:
            return [root.task_id for root in dag.task_groups[name].roots]
        if name in dag.task_dict:
            return [name]
        hint = did_you_mean(closest(name, dag.taken_ids())) or "."
        raise ValueError(f"The branch {task.task_id!r} chose {name!r}, which DAG {dag.dag_id!r} does not have{hint}")
