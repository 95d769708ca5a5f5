"""A trigger chosen by its scheme."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from stannel import plugins
from stannel.messaging import BaseMessageQueueProvider, MessageQueueTrigger
from stannel.messaging.kafka import KafkaTrigger
from stannel.messaging.queue import NoSuchBroker
from stannel.messaging.redis import RedisStreamTrigger
from stannel.triggers.base import BaseEventTrigger


class Twins(BaseMessageQueueProvider):
    """Claims what others claim too."""

    scheme = "twins"

    def trigger_class(self) -> type[BaseEventTrigger]:
        return RedisStreamTrigger

    def scheme_matches(self, scheme: str) -> bool:
        return scheme in ("twins", "twin")


class OtherTwins(Twins):
    """So does this one."""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two more brokers, and one that is none."""
    real = plugins.entry_points

    def entry_points(group: str) -> Any:
        more = {"one": "Twins", "two": "OtherTwins", "none": "pytest"}
        return [*real(group=group), *(EntryPoint(name, f"{__name__}:{what}", group) for name, what in more.items())]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    plugins._offers.cache_clear()
    plugins.load_plugin.cache_clear()
    yield
    plugins._offers.cache_clear()
    plugins.load_plugin.cache_clear()


def test_a_scheme_makes_the_trigger_of_its_broker_which_is_what_is_stored() -> None:
    trigger = MessageQueueTrigger(scheme="kafka", url="h:1", topics="orders", where={"kind": "paid"})
    same = KafkaTrigger(url="h:1", topics="orders", where={"kind": "paid"})
    assert trigger.serialize() == same.serialize()
    assert trigger.shared_stream_key() == same.shared_stream_key()


def test_the_old_way_by_uri_still_works_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="give scheme"):
        trigger = MessageQueueTrigger(queue="kafka://broker:9092/orders")
    assert trigger.serialize() == KafkaTrigger(url="broker:9092", topics="orders").serialize()


def test_the_triggerers_that_may_run_it_are_chosen_beside() -> None:
    trigger = MessageQueueTrigger(scheme="redis", streams="orders", trigger_queue="brokers")
    assert (trigger.queue, trigger.trigger.queue) == ("brokers", "brokers")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs a scheme; installed are: .*kafka"),
        ({"scheme": "pigeon"}, "No broker is installed for the scheme 'pigeon'; installed are: .*redis"),
    ],
)
def test_without_a_broker_there_is_no_trigger(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MessageQueueTrigger(**arguments)


@pytest.mark.usefixtures("installed")
def test_two_brokers_for_one_scheme_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSuchBroker, match="is no BaseMessageQueueProvider"):
        MessageQueueTrigger(scheme="twin", streams="x")
    real = plugins.plugin_names
    monkeypatch.setattr("stannel.messaging.queue.plugin_names", lambda group: [n for n in real(group) if n != "none"])
    with pytest.raises(NoSuchBroker, match="Several brokers claim the scheme 'twin': one, two"):
        MessageQueueTrigger(scheme="twin", streams="x")


def test_every_installed_broker_has_a_trigger_that_says_its_scheme() -> None:
    names = plugins.plugin_names("stannel.brokers")
    assert len(names) >= 4
    for name in names:
        provider = plugins.load_plugin("stannel.brokers", name)()
        assert provider.scheme_matches(name)
        assert issubclass(provider.trigger_class(), BaseEventTrigger)
