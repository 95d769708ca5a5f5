"""The rules of deferring that authors meet: what can be waited for, where to go on, what a failed wait raises."""

import importlib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from typing import Any, NoReturn

from stannel.errors import closest, did_you_mean
from stannel.model.trigger import FailureReason
from stannel.sdk import environment, serde
from stannel.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError, TaskDeferralTimeout
from stannel.triggers.base import BaseTrigger

# The `error` of a wait that ended because the try as a whole had used up its execution_timeout.
EXECUTION_TIMEOUT = FailureReason.EXECUTION_TIMEOUT.value

_YES = frozenset({"1", "on", "t", "true", "y", "yes"})


def built_in(module: str, name: str) -> Any:
    """A class of `stannel.triggers`; its module is loaded on first use."""
    # Triggers bring asyncio along, which makes every fork of every task dearer; most tasks never wait.
    return getattr(importlib.import_module(f"stannel.triggers.{module}"), name)


def load_triggers_of(tasks: Iterable[Any]) -> None:
    """Load what these tasks will wait with, as far as they say so, for every process that is forked from this one."""
    for task in tasks:
        kind = task.operator_class if task.is_mapped else type(task)
        module = getattr(kind, "trigger_module", None)
        if task.is_mapped:
            is_wanted = task.partial_kwargs.get("deferrable", is_deferrable_by_default())
        else:
            is_wanted = getattr(task, "deferrable", False)
        if module is not None and is_wanted:
            importlib.import_module(f"stannel.triggers.{module}")


def is_deferrable_by_default() -> bool:
    """`[operators] default_deferrable`."""
    return environment.setting("OPERATORS__DEFAULT_DEFERRABLE", "false").strip().lower() in _YES


def are_queues_enabled() -> bool:
    """`[triggerer] queues_enabled`."""
    return environment.setting("TRIGGERER__QUEUES_ENABLED", "false").strip().lower() in _YES


def check_deferral(task: Any, trigger: Any, method_name: str | None) -> None:
    """Refuse a wait that could not end well, while the author's line is still on the stack."""
    if not isinstance(trigger, BaseTrigger):
        shown = f"the class {trigger.__name__}; make an instance of it" if isinstance(trigger, type) else repr(trigger)
        raise TypeError(f"{task.task_id!r} cannot defer to {shown}: a trigger is an instance of BaseTrigger.")
    if method_name is None:
        return
    method = getattr(task, method_name, None)
    if not callable(method):
        methods = [name for name in dir(type(task)) if not name.startswith("_") and callable(getattr(type(task), name))]
        hint = did_you_mean(closest(method_name, methods)) or "."
        raise AttributeError(
            f"{task.task_id!r} cannot go on at {method_name!r}: {type(task).__name__} has no such method{hint}"
        )
    if not _takes_event(method):
        raise TypeError(
            f"{task.task_id!r} cannot go on at {method_name!r}: it must take the keyword argument `event`, "
            f"as in `def {method_name}(self, context, event=None)`."
        )


def _takes_event(method: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return True
    named = parameters.get("event")
    if named is not None:
        return named.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def serialized(trigger: Any) -> tuple[str, dict[str, Any]]:
    """What `serialize()` gave, checked: the trigger's class path and the arguments that make it again."""
    given = trigger.serialize()
    try:
        classpath, kwargs = given
        fits = isinstance(classpath, str) and "." in classpath and all(isinstance(name, str) for name in kwargs)
        arguments = dict(kwargs)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise TypeError(
            f"{type(trigger).__name__}.serialize() must give the path of its class and a dict of its arguments, "
            f"but it gave a {type(given).__name__} that is not such a pair."
        )
    return classpath, arguments


def encoded(arguments: Mapping[str, Any], of: str) -> dict[str, Any]:
    """The arguments as JSON, each on its own, so that one can be added; the error names the one that cannot travel."""
    return {name: serde.encode(value, f"the argument {name!r} of {of}") for name, value in arguments.items()}


def shown(classpath: str, arguments: Mapping[str, Any]) -> str:
    """A trigger as logs may show it: arguments by name only, for any may be a secret, unless it is a date."""
    parts = [f"{name}={value}" if isinstance(value, date | timedelta) else name for name, value in arguments.items()]
    return f"<{classpath} {', '.join(parts)}>" if parts else f"<{classpath}>"


def in_words(value: Any) -> str:
    """A value as people read it; `datetime.datetime(2026, ...)` is not how they read a date."""
    return str(value) if isinstance(value, date | timedelta) else repr(value)


def tell_failure(log: logging.Logger, kwargs: Mapping[str, Any]) -> None:
    """Put the traceback of a failed trigger into the task's log, if there is one."""
    if kwargs.get("traceback"):
        log.error("Trigger failed:\n%s", "\n".join(str(line).rstrip("\n") for line in kwargs["traceback"]))


def raise_failure(error: Any, limit: timedelta | None = None) -> NoReturn:
    """Raise what a wait that ended with this `error` means for its task, whose execution_timeout is `limit`."""
    if error == EXECUTION_TIMEOUT:
        whole = f" of {limit.total_seconds():g} s" if limit is not None else ""
        raise AirflowTaskTimeout(f"the task, its waits included, took longer than its execution_timeout{whole}")
    if error == FailureReason.TIMEOUT:
        raise TaskDeferralTimeout(str(error))
    raise TaskDeferralError(str(error))
