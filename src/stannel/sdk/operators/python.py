"""Tasks that call a Python function, and two that decide by it what runs next."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from stannel.model.trigger import FAIL_METHOD
from stannel.sdk.deferral import EXECUTION_TIMEOUT, tell_failure
from stannel.sdk.exceptions import DownstreamTasksSkipped
from stannel.sdk.operator import BaseOperator, SkipMixin
from stannel.sdk.replay import HISTORY, Replay, Step, answered

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CallShape:
    """Which keywords a function takes; `takes_all` if it has `**kwargs`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = inspect.signature(function).parameters
        self.names = {name: one for name, one in parameters.items() if one.kind not in _VARIABLE}
        self.takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        self.takes_any_position = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters.values())

    def positional(self, count: int) -> list[str]:
        """The names that `count` positional arguments go to."""
        return [name for name, one in self.names.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY][:count]


@cache
def call_shape(function: Callable[..., Any]) -> CallShape:
    return CallShape(function)


def determine_kwargs(
    function: Callable[..., Any], args: Collection[Any], kwargs: Mapping[str, Any], context: Any = None
) -> dict[str, Any]:
    """The keyword arguments for a call: the given ones, and those of the context that the function asks for.

    A function with `**kwargs` gets the whole context; any other gets the keys it names. Given arguments win.
    """
    shape = call_shape(function)
    if context is None:
        return dict(kwargs) if shape.takes_all else {name: kwargs[name] for name in shape.names if name in kwargs}
    if not shape.names and not shape.takes_all:
        return dict(kwargs)
    used = set(shape.positional(len(args)))
    if shape.takes_all:
        wanted = context.for_call(function)
    else:
        wanted = {name: context[name] for name in shape.names if name not in kwargs and name in context}
    return {name: value for name, value in wanted.items() if name not in used} | dict(kwargs)


class FunctionOperator(BaseOperator):
    """Calls a function that may wait: it ends there, and is called again from its beginning when the wait is over."""

    python_callable: Callable[..., Any]
    op_args: Collection[Any]
    op_kwargs: Mapping[str, Any]
    _history: Sequence[Step] = ()

    def execute_callable(self, context: Any) -> Any:
        """Call the function; given arguments win over the context's."""
        kwargs = determine_kwargs(self.python_callable, self.op_args, self.op_kwargs, context)
        history, self._history = self._history, ()
        return Replay(history).call(self.python_callable, tuple(self.op_args), kwargs)

    def replay_callable(self, context: Any, history: Sequence[Any], event: Any = None) -> Any:
        """Go on after a wait that the event has ended."""
        self._history = answered(history, event=event)
        return self.execute(context)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        kwargs = next_kwargs or {}
        error = kwargs.get("error")
        if next_method != FAIL_METHOD or HISTORY not in kwargs or error == EXECUTION_TIMEOUT:
            return super().resume_execution(next_method, next_kwargs, context)
        # The function may want to handle it, so it is raised where the function waited.
        tell_failure(self.log, kwargs)
        self._history = answered(kwargs[HISTORY], error=str(error))
        return self.execute(context)


class PythonOperator(FunctionOperator):
    """Calls `python_callable` with `op_args`, `op_kwargs` and what it asks for from the context."""

    template_fields: Sequence[str] = ("templates_dict", "op_args", "op_kwargs")
    ui_color = "#ffefeb"
    shallow_copy_attrs: Sequence[str] = ("python_callable", "op_kwargs")

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        templates_dict: dict[str, Any] | None = None,
        templates_exts: Sequence[str] | None = None,
        show_return_value_in_logs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(python_callable):
            raise self.invalid(f"python_callable must be a function, not {python_callable!r}")
        self.python_callable = python_callable
        self.op_args = op_args if op_args is not None else ()
        self.op_kwargs = op_kwargs if op_kwargs is not None else {}
        self.templates_dict = templates_dict
        if templates_exts:
            self.template_ext = templates_exts
        self.show_return_value_in_logs = show_return_value_in_logs

    def execute(self, context: Any) -> Any:
        if self.templates_dict is not None:
            context["templates_dict"] = self.templates_dict
        # An async function gives a coroutine here; the runner awaits it.
        return self.execute_callable(context)


class _Deciding(SkipMixin):
    """Turns what the function returned into tasks to skip; an async function is decided once it was awaited."""

    def decide(self, context: Any, answer: Any) -> Any:
        raise NotImplementedError

    def settle(self, context: Any, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return self._settle_later(context, answer)
        return self.decide(context, answer)

    async def _settle_later(self, context: Any, answer: Any) -> Any:
        return self.decide(context, await answer)


class BaseBranchOperator(BaseOperator, _Deciding):
    """Subclass it and return from `choose_branch` the ids of the tasks that follow; the others are skipped."""

    def choose_branch(self, context: Any) -> str | Collection[str] | None:
        raise NotImplementedError(f"{type(self).__name__} has no choose_branch() method")

    def execute(self, context: Any) -> Any:
        return self.settle(context, self.choose_branch(context))

    def decide(self, context: Any, answer: Any) -> Any:
        return skip_except(self, context, answer)


def skip_except(operator: Any, context: Any, chosen: Any) -> Any:
    """Have every direct downstream task skipped that was not chosen and does not follow a chosen one."""
    task = context["task"]
    skipped = operator.skip_ids_of(task, chosen)
    operator.log.info("Following %s; skipping %s", chosen, skipped or "nothing")
    if skipped:
        context["ti"].skip_downstream(skipped)
    return chosen


class BranchPythonOperator(PythonOperator, _Deciding):
    """Follows the task (or tasks, or task groups) whose id the function returns; None skips all."""

    def execute(self, context: Any) -> Any:
        return self.settle(context, super().execute(context))

    def decide(self, context: Any, answer: Any) -> Any:
        return skip_except(self, context, answer)


class ShortCircuitOperator(PythonOperator, _Deciding):
    """Skips what follows when the function returns something falsy."""

    def __init__(self, *, ignore_downstream_trigger_rules: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignore_downstream_trigger_rules = ignore_downstream_trigger_rules

    def execute(self, context: Any) -> Any:
        return self.settle(context, super().execute(context))

    def decide(self, context: Any, answer: Any) -> Any:
        if answer:
            return answer
        task = context["task"]
        # Without the trigger rules' say everything behind is skipped; with it, only the next tasks are.
        behind = task.get_flat_relatives() if self.ignore_downstream_trigger_rules else task.downstream_list
        skipped = sorted(one.task_id for one in behind if not one.is_teardown)
        self.log.info("The condition is %r; skipping %s", answer, skipped or "nothing")
        if skipped:
            context["ti"].skip_downstream(skipped)
        return answer


__all__ = [
    "BaseBranchOperator",
    "BranchPythonOperator",
    "DownstreamTasksSkipped",
    "PythonOperator",
    "ShortCircuitOperator",
    "determine_kwargs",
]
