"""A trigger that calls an author's coroutine function and tells how that went."""

import inspect
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from stannel.triggers.base import BaseTrigger, TriggerEvent
from stannel.triggers.loading import CodeNotFound, find_object


class CallbackTrigger(BaseTrigger):
    """Awaits the callable of that dotted path; fires "running" first, then "success" or "failed" with the result."""

    trigger_queue_inherited_from_task = False

    def __init__(
        self, callback_path: str, callback_kwargs: dict[str, Any] | None = None, *, queue: str | None = None
    ) -> None:
        super().__init__()
        self.callback_path, self.callback_kwargs = callback_path, callback_kwargs or {}
        if queue is not None:
            self.queue = queue

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "stannel.triggers.callback.CallbackTrigger",
            {"callback_path": self.callback_path, "callback_kwargs": self.callback_kwargs},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent({"state": "running"})
        try:
            callback = find_object(self.callback_path)
            result = callback(**_accepted(callback, self.callback_kwargs))
            if not inspect.isawaitable(result):
                raise _NotAwaitable
            result = await result
        except CodeNotFound:
            yield self._failed("The callback could not be imported")
        except _NotAwaitable:
            yield self._failed("The callback is not awaitable; write it with async def")
        # Whatever the author's code raises, whoever waits is told.
        except Exception:  # noqa: BLE001
            yield self._failed("The callback raised an error")
        else:
            yield TriggerEvent({"state": "success", "body": result})

    def _failed(self, message: str) -> TriggerEvent:
        body = f"{message}: {traceback.format_exc()}"
        self.log.error("%s: %s", self.callback_path, body)
        return TriggerEvent({"state": "failed", "body": body})


class _NotAwaitable(TypeError):
    """The callable gave something that cannot be awaited."""


def _accepted(callback: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments, without a context that the callable does not take."""
    if "context" not in kwargs:
        return kwargs
    parameters = inspect.signature(callback).parameters
    takes = "context" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return kwargs if takes else {name: value for name, value in kwargs.items() if name != "context"}
