"""`MessageQueueTrigger`: a trigger for any broker, chosen by its scheme among those that are installed."""

import inspect
import warnings
from collections.abc import AsyncIterator, Hashable
from typing import Any

from stannel.errors import StannelError
from stannel.messaging.broker import GROUP
from stannel.messaging.provider import BaseMessageQueueProvider
from stannel.plugins import load_plugin, plugin_names
from stannel.triggers.base import BaseEventTrigger, TriggerEvent


class NoSuchBroker(StannelError, ValueError):
    """No broker, or more than one, is meant by a scheme or a queue; the trigger was not made."""


class MessageQueueTrigger(BaseEventTrigger):
    """Fires for the messages of the broker that `scheme` names; the other arguments are those of its trigger.

    It is stored as that trigger. `trigger_queue` says which triggerers may run it. `queue`, the URI of a queue, is the
    old way to say what scheme and arguments say.
    """

    def __init__(
        self,
        *,
        queue: str | None = None,
        scheme: str | None = None,
        trigger_queue: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=trigger_queue)
        if queue is not None:
            warnings.warn("MessageQueueTrigger(queue=...) is deprecated; give scheme=...", DeprecationWarning, 2)
        self.scheme = scheme
        provider = _provider(scheme, queue)
        self.trigger = provider.trigger_class()(**{**provider.trigger_kwargs(queue, **kwargs), **kwargs})
        if trigger_queue is not None:
            self.trigger.queue = trigger_queue

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return self.trigger.serialize()

    def shared_stream_key(self) -> Hashable | None:
        return self.trigger.shared_stream_key()

    def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        return self.trigger.filter_shared_stream(shared_stream)

    def run(self) -> AsyncIterator[TriggerEvent]:
        return self.trigger.run()


def _provider(scheme: str | None, queue: str | None) -> BaseMessageQueueProvider:
    """The one provider that is meant."""
    if scheme is None and queue is None:
        raise NoSuchBroker(f"A MessageQueueTrigger needs a scheme; {_installed()}.")
    if scheme in plugin_names(GROUP):
        return _load(str(scheme))
    found = {
        name: provider
        for name, provider in ((name, _load(name)) for name in plugin_names(GROUP))
        if (provider.scheme_matches(scheme) if scheme is not None else provider.queue_matches(str(queue)))
    }
    wanted = f"the scheme {scheme!r}" if scheme is not None else f"the queue {queue!r}"
    if not found:
        raise NoSuchBroker(f"No broker is installed for {wanted}; {_installed()}.")
    if len(found) > 1:
        raise NoSuchBroker(f"Several brokers claim {wanted}: {', '.join(found)}. Uninstall all but one of them.")
    return next(iter(found.values()))


def _load(name: str) -> BaseMessageQueueProvider:
    provider = load_plugin(GROUP, name)
    if inspect.isclass(provider):
        provider = provider()
    if not isinstance(provider, BaseMessageQueueProvider):
        raise NoSuchBroker(f"The plug-in {name!r} of {GROUP} is no BaseMessageQueueProvider; correct or remove it.")
    return provider


def _installed() -> str:
    return f"installed are: {', '.join(plugin_names(GROUP)) or 'none'}"
