"""Triggers for tests of operators: one that fires at once, one that fails at once."""

from collections.abc import AsyncIterator
from typing import Any

from stannel.triggers.base import BaseTrigger, TriggerEvent


class SuccessTrigger(BaseTrigger):
    """Fires `True` at once."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stannel.triggers.testing.SuccessTrigger", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(True)


class FailureTrigger(BaseTrigger):
    """Raises an error at once."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stannel.triggers.testing.FailureTrigger", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield _fail()


def _fail() -> TriggerEvent:
    raise ValueError("This trigger fails on purpose.")
