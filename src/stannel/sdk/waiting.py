"""Waiting from plain functions: `wait_for`, `any_of`, `all_of` and `keep`, for the functions of tasks.

In an `async def` they are awaited; in a plain function `.result()` does the same.
"""

import importlib
import inspect
import logging
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any

from stannel.sdk import serde
from stannel.sdk.deferral import built_in
from stannel.sdk.log import TASK_LOGGER
from stannel.sdk.replay import Kind, Replay, current_replay, error_kept
from stannel.triggers.base import BaseTrigger

_log = logging.getLogger(TASK_LOGGER)


class Pending:
    """A wait or a step that begins when it is awaited, or asked for its `result()`; not before."""

    # Until it is made, there is nothing that could have been forgotten.
    _is_used = True

    def __init__(self, replay: Replay, what: str) -> None:
        self._replay, self._what, self._is_used = replay, what, False

    def result(self) -> Any:
        """What it gives. A wait that is not over ends the process here."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.result()

    def __del__(self) -> None:
        # A forgotten `await` would otherwise go unnoticed: nothing is waited for, and the function goes on.
        if not self._is_used:
            _log.warning("%s was neither awaited nor asked for its result(), so nothing was waited for", self._what)

    def __repr__(self) -> str:
        return f"<{self._what}>"


class PendingWait(Pending):
    """A wait for a trigger."""

    def __init__(
        self, what: str, trigger: BaseTrigger, timeout: timedelta | float | None, read: Callable[[Any], Any]
    ) -> None:
        super().__init__(current_replay(what), what)
        self._trigger, self._timeout, self._read = trigger, timeout, read

    def result(self) -> Any:
        self._is_used = True
        step = self._replay.met(self._what)
        if step is None:
            self._replay.defer(self._what, self._trigger, self._timeout)
        return self._read(step.outcome())


class PendingStep(Pending):
    """A call that is made once."""

    def __init__(self, what: str, call: Callable[[], Any]) -> None:
        super().__init__(current_replay(what), what)
        self._call = call

    def result(self) -> Any:
        self._is_used = True
        if (step := self._replay.met(self._what)) is not None:
            return step.outcome()
        with self._replay.inside(self._what):
            try:
                value = self._call()
                if inspect.isawaitable(value):
                    value = importlib.import_module("asyncio").run(_awaited(value))
            except Exception as error:
                self._failed(error)
                raise
        return self._kept(value)

    def __await__(self) -> Generator[Any, None, Any]:
        self._is_used = True
        if (step := self._replay.met(self._what)) is not None:
            return step.outcome()
        with self._replay.inside(self._what):
            try:
                value = self._call()
                if inspect.isawaitable(value):
                    value = yield from value.__await__()
            except Exception as error:
                self._failed(error)
                raise
        return self._kept(value)

    def _failed(self, error: Exception) -> None:
        self._replay.add(self._what, Kind.ERROR, error_kept(error))

    def _kept(self, value: Any) -> Any:
        # What is given now is what later runs will be given: not the object itself, but what can be kept of it.
        kept = serde.decode(serde.encode(value, f"what {self._what} returned"))
        return self._replay.add(self._what, Kind.VALUE, kept).outcome()


async def _awaited(value: Any) -> Any:
    return await value


def wait_for(trigger: BaseTrigger, timeout: timedelta | float | None = None) -> Pending:
    """The payload of the trigger's event. Until it fires, the task has no process and holds no slot.

    `TaskDeferralTimeout` is raised here once `timeout` is over, `TaskDeferralError` if the trigger fails.
    """
    what = f"wait_for({_name(trigger)})"
    return PendingWait(what, trigger, timeout, lambda event: event)


def any_of(*triggers: BaseTrigger, timeout: timedelta | float | None = None, **named: BaseTrigger) -> Pending:
    """Which of the triggers fired first, by its place or its name, and its payload; the others are stopped."""
    what, parts = _parts("any_of", triggers, named)
    trigger = built_in("combined", "AnyOf")(parts)
    return PendingWait(what, trigger, timeout, lambda event: (event["which"], event["event"]))


def all_of(*triggers: BaseTrigger, timeout: timedelta | float | None = None, **named: BaseTrigger) -> Pending:
    """The payloads of all the triggers once each has fired: a list, or a dict for triggers with names."""
    what, parts = _parts("all_of", triggers, named)
    trigger = built_in("combined", "AllOf")(parts)
    return PendingWait(what, trigger, timeout, lambda event: event)


def keep(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Pending:
    """What the function gives, which may be async; it is called once, however often the task's function runs again.

    An error that it raises is kept as well.
    """
    if not callable(function):
        raise TypeError(f"keep() takes a function and its arguments, as in keep(charge, order), not {function!r}.")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return PendingStep(f"keep({name})", lambda: function(*args, **kwargs))


def _parts(
    which: str, triggers: tuple[BaseTrigger, ...], named: dict[str, BaseTrigger]
) -> tuple[str, list[BaseTrigger] | dict[str, BaseTrigger]]:
    if bool(triggers) == bool(named):
        raise TypeError(f"{which}() takes triggers, or triggers with names, but not both and not none.")
    shown = [_name(one) for one in triggers] or [f"{name}={_name(one)}" for name, one in named.items()]
    return f"{which}({', '.join(shown)})", list(triggers) or named


def _name(trigger: BaseTrigger) -> str:
    if not isinstance(trigger, BaseTrigger):
        raise TypeError(f"A trigger is needed to wait for, an instance of BaseTrigger, not {trigger!r}.")
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"
