"""The producer of the guide "Write a producer in 60 lines" passes the suite, as the page shows it, and has 60 lines."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stannel.testing.producer_conformance import ProducerConformance

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "write-a-producer.md"
PROMISES = [name for name in dir(ProducerConformance) if name.startswith("test_")]


def shown() -> list[str]:
    """The blocks of Python on the page."""
    return [part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]


def module(name: str, source: str) -> ModuleType:
    made = ModuleType(name)
    exec(compile(source, name, "exec"), made.__dict__)
    return made


@pytest.fixture
def suite() -> Iterator[Any]:
    producer, check, *_ = shown()
    sys.modules["table_queue"] = module("table_queue", producer)
    yield module("test_table_queue", check).TestTableProducer()
    del sys.modules["table_queue"]


def test_the_producer_has_at_most_60_lines() -> None:
    assert len(shown()[0].splitlines()) <= 60


@pytest.mark.parametrize("promise", PROMISES)
def test_the_producer_keeps_every_promise(promise: str, suite: Any) -> None:
    getattr(suite, promise)()


def test_the_suite_is_not_empty() -> None:
    assert len(PROMISES) > 12
