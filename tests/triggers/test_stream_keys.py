"""A key as text is the same wherever it is made."""

import os
import subprocess
import sys
from collections.abc import Hashable
from typing import Any

import pytest

from stannel.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from stannel.triggers.stream_keys import key_in_words, key_of
from stannel.triggers.testing import SuccessTrigger

_SETS = "print(key_in_words(('k', frozenset({'a', 'b', 'c', 'd', 'e'}))))"


class Keyed(BaseEventTrigger):
    def __init__(self, key: Any) -> None:
        super().__init__()
        self.key = key

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "a.B", {}

    async def run(self):  # type: ignore[no-untyped-def]
        yield TriggerEvent()

    def shared_stream_key(self) -> Hashable | None:
        if isinstance(self.key, Exception):
            raise self.key
        return self.key


@pytest.mark.parametrize(
    ("key", "text"),
    [("topic", "'topic'"), (("kafka", 1), "('kafka', 1)"), (("one",), "('one',)"), (frozenset({2}), "frozenset({2})")],
)
def test_a_key_reads_like_what_its_author_wrote(key: Hashable, text: str) -> None:
    assert key_in_words(key) == text


@pytest.mark.parametrize("seed", ["1", "2"])
def test_sets_are_in_one_order_in_every_process(seed: str) -> None:
    code = f"from stannel.triggers.stream_keys import key_in_words; {_SETS}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "('k', frozenset({'a', 'b', 'c', 'd', 'e'}))"


def test_where_an_object_is_does_not_matter() -> None:
    assert key_in_words((object(),)) == key_in_words((object(),))


@pytest.mark.parametrize("key", [None, ValueError("no key"), ["not", "hashable"]])
def test_a_trigger_without_a_usable_key_reads_alone(key: Any) -> None:
    assert key_of(Keyed(key)) is None


def test_only_event_triggers_have_keys() -> None:
    trigger: BaseTrigger = SuccessTrigger()
    assert key_of(trigger) is None
    assert key_of(Keyed("k")) == "k"
