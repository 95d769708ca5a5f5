"""`@task` and its relatives: a function becomes a task each time it is called while a DAG is written."""

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from stannel.sdk import building
from stannel.sdk.abstract_operator import AbstractOperator, placement
from stannel.sdk.context import CONTEXT_KEYS
from stannel.sdk.exceptions import AirflowSkipException
from stannel.sdk.groups import unused_id
from stannel.sdk.mapped import ExpandInput, MappedOperator, check_mappable
from stannel.sdk.operator import BaseOperator, with_default_args
from stannel.sdk.operators.bash import BashOperator
from stannel.sdk.operators.python import (
    BranchPythonOperator,
    FunctionOperator,
    PythonOperator,
    ShortCircuitOperator,
    call_shape,
)
from stannel.sdk.references import XComArg
from stannel.sdk.sensors.python import PythonSensor
from stannel.sdk.template_marks import needs_rendering


class DecoratedOperator(BaseOperator):
    """A task made from a function: the operator it is combined with decides what calling it means."""

    template_fields: Sequence[str] = ("op_args", "op_kwargs")
    custom_operator_name = "@task"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if issubclass(type(self), PythonOperator | PythonSensor):
            kwargs["python_callable"] = python_callable
        super().__init__(**kwargs)
        self.python_callable = python_callable
        self.op_args: Collection[Any] = op_args or ()
        self.op_kwargs: Mapping[str, Any] = op_kwargs or {}


class PythonDecoratedOperator(DecoratedOperator, PythonOperator):
    """`@task`."""

    template_fields = ("templates_dict", "op_args", "op_kwargs")


class BranchDecoratedOperator(DecoratedOperator, BranchPythonOperator):
    """`@task.branch`."""

    custom_operator_name = "@task.branch"
    template_fields = ("templates_dict", "op_args", "op_kwargs")


class ShortCircuitDecoratedOperator(DecoratedOperator, ShortCircuitOperator):
    """`@task.short_circuit`."""

    custom_operator_name = "@task.short_circuit"
    template_fields = ("templates_dict", "op_args", "op_kwargs")


class BashDecoratedOperator(DecoratedOperator, FunctionOperator, BashOperator):
    """`@task.bash`: the function returns the command."""

    custom_operator_name = "@task.bash"
    template_fields = ("op_args", "op_kwargs", "env", "cwd")

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("bash_command", "")
        super().__init__(**kwargs)

    def execute(self, context: Any) -> Any:
        command = self.execute_callable(context)
        if not isinstance(command, str) or not command.strip():
            raise TypeError(f"a @task.bash function must return a command, not {command!r}")
        # The returned text may itself hold templates, as a literal `bash_command` may.
        needs_jinja = needs_rendering(command, tuple(self.template_ext))
        self.bash_command = self.render_template(command, context) if needs_jinja else command
        return super().execute(context)


class SensorDecoratedOperator(DecoratedOperator, PythonSensor):
    """`@task.sensor`: the function is called until it returns something true."""

    custom_operator_name = "@task.sensor"
    template_fields = ("templates_dict", "op_args", "op_kwargs")


class TaskDecorator:
    """A function waiting to be called: each call adds a task to the open DAG and gives a reference to its result."""

    def __init__(self, function: Callable[..., Any], operator_class: type, settings: dict[str, Any]) -> None:
        self.function, self.operator_class, self.settings = function, operator_class, settings
        self.is_setup = self.is_teardown = False
        self.on_failure_fail_dagrun = False
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> XComArg:
        self._check_call(args, kwargs, complete=True)
        task = self.operator_class(
            python_callable=self.function, op_args=args, op_kwargs=kwargs, **self._task_settings()
        )
        return self._marked(task)

    def override(self, **settings: Any) -> "TaskDecorator":
        """The same function with other task settings."""
        return self._copy({**self.settings, **settings})

    def partial(self, **kwargs: Any) -> "TaskDecorator":
        """The same function with some arguments fixed; follow it with `.expand(...)`."""
        self._check_call((), kwargs, complete=False)
        return self._copy({**self.settings, "op_kwargs": {**self.settings.get("op_kwargs", {}), **kwargs}})

    def expand(self, **mapped: Any) -> XComArg:
        """One task instance for each combination of the given lists."""
        return self._expanded(mapped, by_kwargs=False)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> XComArg:
        """One task instance for each dict of arguments in the list."""
        return self._expanded({"kwargs": kwargs}, by_kwargs=True)

    def _expanded(self, mapped: dict[str, Any], by_kwargs: bool) -> XComArg:
        settings = self._task_settings()
        settings["op_kwargs"] = self.settings.get("op_kwargs", {})
        if not mapped:
            raise TypeError(f"Task {settings['task_id']!r}: expand() needs at least one argument to map over.")
        if not by_kwargs:
            self._check_call((), {**settings["op_kwargs"], **mapped}, complete=True)
            both = settings["op_kwargs"].keys() & mapped.keys()
            if both:
                name = min(both)
                raise TypeError(f"Task {settings['task_id']!r}: {name!r} is given to both partial() and expand().")
        for name, value in mapped.items():
            check_mappable(settings["task_id"], name, value)
        arguments = with_default_args(self.operator_class, {"python_callable": self.function, **settings})
        task = MappedOperator(self.operator_class, arguments, ExpandInput(mapped, by_kwargs), op_expand=True)
        return self._marked(task)

    def _task_settings(self) -> dict[str, Any]:
        settings = {name: value for name, value in self.settings.items() if name != "op_kwargs"}
        task_id = settings.setdefault("task_id", self.function.__name__)
        settings["task_id"] = get_unique_task_id(task_id, *placement(settings))
        if settings.get("multiple_outputs") is None:
            settings["multiple_outputs"] = returns_dict(self.function)
        if self.function.__doc__ and not any(name in settings for name in ("doc", "doc_md", "doc_rst")):
            settings["doc_md"] = inspect.cleandoc(self.function.__doc__)
        return settings

    def _marked(self, task: AbstractOperator) -> XComArg:
        if self.is_setup:
            task.as_setup()
        if self.is_teardown:
            task.as_teardown(on_failure_fail_dagrun=self.on_failure_fail_dagrun)
        return task.output

    def _copy(self, settings: dict[str, Any]) -> "TaskDecorator":
        copy = TaskDecorator(self.function, self.operator_class, settings)
        copy.is_setup, copy.is_teardown = self.is_setup, self.is_teardown
        copy.on_failure_fail_dagrun = self.on_failure_fail_dagrun
        return copy

    def _check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], complete: bool) -> None:
        """Refuse a call that could not work in the task, while the author still sees the line that made it."""
        shape = call_shape(self.function)
        given = {*shape.positional(len(args)), *kwargs, *self.settings.get("op_kwargs", {})}
        where = f"Task {self.settings.get('task_id', self.function.__name__)!r}: {self.function.__name__}()"
        if not shape.takes_any_position and len(args) > len(shape.positional(len(args))):
            raise TypeError(f"{where} takes fewer than {len(args)} positional arguments.")
        unknown = sorted(kwargs.keys() - shape.names.keys())
        if unknown and not shape.takes_all:
            raise TypeError(f"{where} has no argument {unknown[0]!r}.")
        for name, parameter in shape.names.items():
            required = parameter.default is inspect.Parameter.empty and name not in CONTEXT_KEYS
            if complete and required and name not in given:
                raise TypeError(f"{where} needs the argument {name!r}.")


def get_unique_task_id(task_id: str, dag: Any = None, task_group: Any = None) -> str:
    """The id, with `__1`, `__2` ... appended if the DAG has it already."""
    dag = dag or building.current_dag()
    if dag is None:
        return task_id
    prefix = task_group.child_id("") if task_group is not None else ""
    taken = {name[len(prefix) :] for name in dag.taken_ids() if name.startswith(prefix)}
    return unused_id(task_id, taken)


def returns_dict(function: Callable[..., Any]) -> bool:
    """True if the function is annotated to return a dict with text keys: each key then becomes an XCom of its own."""
    if "return" not in getattr(function, "__annotations__", {}):
        return False
    try:
        hint = typing.get_type_hints(function)["return"]
    except Exception:  # noqa: BLE001 - a name that is only known to type checkers
        return False
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or not issubclass(kind, Mapping):
        return False
    keys = typing.get_args(hint)[:1]
    return not keys or keys[0] in (str, typing.Any)


def task_decorator_factory(
    python_callable: Callable[..., Any] | None = None,
    *,
    multiple_outputs: bool | None = None,
    decorated_operator_class: type = PythonDecoratedOperator,
    **settings: Any,
) -> Any:
    """The decorator for an operator class, usable with and without arguments."""
    if multiple_outputs is not None:
        settings["multiple_outputs"] = multiple_outputs
    if python_callable is None:
        return lambda function: TaskDecorator(function, decorated_operator_class, settings)
    if isinstance(python_callable, TaskDecorator):
        raise TypeError(f"{python_callable.function.__name__}() is a task already; use one @task decorator only")
    return TaskDecorator(python_callable, decorated_operator_class, settings)


_KINDS: dict[str, type] = {
    "python": PythonDecoratedOperator,
    "branch": BranchDecoratedOperator,
    "short_circuit": ShortCircuitDecoratedOperator,
    "bash": BashDecoratedOperator,
    "sensor": SensorDecoratedOperator,
}


class TaskDecoratorCollection:
    """`@task`, and every `@task.<kind>`."""

    def __call__(self, python_callable: Callable[..., Any] | None = None, **settings: Any) -> Any:
        return task_decorator_factory(python_callable, **settings)

    def __getattr__(self, name: str) -> Any:
        if name not in _KINDS:
            known = ", ".join(f"@task.{kind}" for kind in _KINDS)
            raise AttributeError(f"Stannel does not offer @task.{name} yet; it has @task, {known}")
        return functools.partial(task_decorator_factory, decorated_operator_class=_KINDS[name])

    def run_if(self, condition: Callable[[Any], bool], skip_message: str | None = None) -> Any:
        """Skip the task unless the condition holds in its context; write it above `@task`."""
        return _conditional(condition, True, skip_message)

    def skip_if(self, condition: Callable[[Any], bool], skip_message: str | None = None) -> Any:
        """Skip the task if the condition holds in its context; write it above `@task`."""
        return _conditional(condition, False, skip_message)


def _conditional(condition: Callable[[Any], bool], wanted: bool, message: str | None) -> Any:
    def decorate(decorated: TaskDecorator) -> TaskDecorator:
        if not isinstance(decorated, TaskDecorator):
            raise TypeError("write @task.run_if and @task.skip_if above @task")
        inner = decorated.settings.get("pre_execute")

        def pre_execute(context: Any) -> None:
            if bool(condition(context)) is not wanted:
                raise AirflowSkipException(message or "The condition of run_if or skip_if asks to skip this task.")
            if inner is not None:
                inner(context)

        return decorated.override(pre_execute=pre_execute)

    return decorate


task = TaskDecoratorCollection()


def setup(function: Any) -> TaskDecorator:
    """Mark a function's tasks as setups."""
    decorated = function if isinstance(function, TaskDecorator) else task_decorator_factory(function)
    decorated.is_setup = True
    return typing.cast(TaskDecorator, decorated)


def teardown(function: Any = None, *, on_failure_fail_dagrun: bool = False) -> Any:
    """Mark a function's tasks as teardowns."""
    if function is None:
        return functools.partial(teardown, on_failure_fail_dagrun=on_failure_fail_dagrun)
    decorated = function if isinstance(function, TaskDecorator) else task_decorator_factory(function)
    decorated.is_teardown, decorated.on_failure_fail_dagrun = True, on_failure_fail_dagrun
    return decorated
