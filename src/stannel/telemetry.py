"""Counters and spans: handed to whoever listens in this process, and to OpenTelemetry where it is installed."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

Listener = Callable[[str, Mapping[str, str]], None]

_SCOPE = "stannel"
_listeners: list[Listener] = []


class Span(Protocol):
    """Something that takes time and has attributes."""

    def set_attribute(self, key: str, value: Any, /) -> Any: ...


class _Unseen:
    def set_attribute(self, key: str, value: Any, /) -> None:
        """Nobody looks."""


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell this function of every count, with its tags, while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def count(name: str, tags: Mapping[str, str]) -> None:
    """One more of what the name says."""
    for listener in _listeners:
        listener(name, tags)
    if (meter := _meter()) is not None:
        meter(name).add(1, attributes=dict(tags))


@contextmanager
def span(name: str, attributes: Mapping[str, str]) -> Iterator[Span]:
    """Something that begins and ends; attributes may be added meanwhile."""
    tracing = _library("opentelemetry.trace")
    if tracing is None:
        yield _Unseen()
        return
    with tracing.get_tracer(_SCOPE).start_as_current_span(name, attributes=dict(attributes)) as current:
        yield current


@cache
def _meter() -> Callable[[str], Any] | None:
    metrics = _library("opentelemetry.metrics")
    return None if metrics is None else cache(metrics.get_meter(_SCOPE).create_counter)


@cache
def _library(name: str) -> Any:
    """A module of OpenTelemetry. None: it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec("opentelemetry") else None
