"""What makes a broker known to `MessageQueueTrigger`: a class of this kind, named as an entry point."""

import re
from abc import ABC, abstractmethod
from typing import Any

from stannel.triggers.base import BaseEventTrigger


class BaseMessageQueueProvider(ABC):
    """Says for which scheme a broker's trigger stands, and how it is made.

    It is found under the entry point group `stannel.brokers`.
    """

    scheme: str | None = None

    def scheme_matches(self, scheme: str) -> bool:
        """Whether this broker is meant by that scheme."""
        return self.scheme == scheme

    def queue_matches(self, queue: str) -> bool:
        """Whether this broker is meant by that URI of a queue."""
        return self.scheme is not None and re.match(rf"{re.escape(self.scheme)}://", queue) is not None

    @abstractmethod
    def trigger_class(self) -> type[BaseEventTrigger]:
        """The trigger of this broker."""

    def trigger_kwargs(self, queue: str | None, **kwargs: Any) -> dict[str, Any]:
        """What the trigger is given beside the arguments themselves: what the URI of the queue says."""
        return {}
