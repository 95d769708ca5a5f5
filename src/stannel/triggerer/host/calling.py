"""Calls what authors wrote, in whatever form they wrote it."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from stannel.triggerer.host.outcome import RETURNED_EVENT, NotAnEvent
from stannel.triggerer.host.scope import AnyTask
from stannel.triggers.base import BaseTrigger, TriggerEvent

_NO_EVENTS: tuple[TriggerEvent, ...] = ()


def stream_of(trigger: BaseTrigger) -> AsyncIterator[TriggerEvent]:
    """What the trigger's `run` gives, whatever its author made of it."""
    made: Any = trigger.run()
    if hasattr(made, "__aiter__"):
        return made  # type: ignore[no-any-return]
    if inspect.isawaitable(made):
        return _awaited(made)
    raise NotAnEvent(
        f"run() is no async generator: it gave a {type(made).__name__}. Write it as `async def run(self)` with `yield`."
    )


async def _awaited(made: Any) -> AsyncIterator[TriggerEvent]:
    if isinstance(await made, TriggerEvent):
        raise NotAnEvent(f"{RETURNED_EVENT}. Write `yield` where it says `return`.")
    for nothing in _NO_EVENTS:
        yield nothing


async def close(stream: AsyncIterator[TriggerEvent]) -> None:
    """End the run, unless it is something that cannot be ended."""
    end = getattr(stream, "aclose", None)
    if end is not None:
        await end()


async def called(hook: Callable[[], Any]) -> None:
    """Call a hook that its author may have written with or without `async`."""
    made = hook()
    if inspect.isawaitable(made):
        await made


def name_of_task(task: AnyTask) -> str:
    """What its author calls the task."""
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))
