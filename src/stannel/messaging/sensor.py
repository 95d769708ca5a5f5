"""`MessageQueueSensor`: a task that waits for one message, without a process of its own."""

from collections.abc import Sequence
from typing import Any

from stannel.messaging.queue import MessageQueueTrigger
from stannel.sdk.sensors.base import DeferrableSensor
from stannel.sdk.task_arguments import COMMON_ARGUMENTS
from stannel.triggers.base import BaseTrigger

_OF_SENSORS = frozenset(
    {"deferrable", "exponential_backoff", "max_wait", "mode", "never_fail", "poke_interval", "silent_fail"}
    | {"soft_fail", "timeout"}
)


class MessageQueueSensor(DeferrableSensor):
    """Waits for the first message that its trigger wants, and leaves it as its XCom.

    Arguments that no task has are those of `MessageQueueTrigger`. The message is done with once it is stored, for this
    task; every other sensor and watcher of the same queue is given it too.
    """

    trigger_module = "base"
    template_fields: Sequence[str] = ("trigger_kwargs",)

    def __init__(self, *, scheme: str, trigger_queue: str | None = None, **kwargs: Any) -> None:
        own = {name: value for name, value in kwargs.items() if name in COMMON_ARGUMENTS | _OF_SENSORS}
        super().__init__(**{**own, "deferrable": True})
        self.scheme, self.trigger_queue = scheme, trigger_queue
        self.trigger_kwargs = {name: value for name, value in kwargs.items() if name not in own}
        # A wrong argument is found while the file is read, and not when the task runs.
        self._trigger()

    def _trigger(self) -> MessageQueueTrigger:
        return MessageQueueTrigger(scheme=self.scheme, trigger_queue=self.trigger_queue, **self.trigger_kwargs)

    def poke(self, context: Any) -> bool:
        """Nothing is looked at here: only a trigger can let the broker wait until the message is stored."""
        return False

    def trigger_for(self, context: Any) -> BaseTrigger:
        return self._trigger()

    def execute_complete(self, context: Any, event: Any = None) -> Any:
        """The message, or what the function of the trigger made of it."""
        return event
