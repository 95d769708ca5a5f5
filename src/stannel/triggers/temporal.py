"""Triggers that wait for a moment. The engine keeps plain ones as timers; these run where one is part of another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from stannel.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

# The wall clock can be set while we sleep; nobody notices later than this.
_LONGEST_SLEEP = 60.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def sleep_until(moment: datetime, now: Callable[[], datetime] = _utc_now) -> None:
    """Return when the wall clock has reached the moment, even if the clock is set meanwhile."""
    while (left := (moment - now()).total_seconds()) > 0:  # noqa: ASYNC110 - clocks tell nobody
        await asyncio.sleep(min(left, _LONGEST_SLEEP))


class DateTimeTrigger(BaseTrigger):
    """Fires its moment when that has come, or ends the task then."""

    def __init__(self, moment: datetime, *, end_from_trigger: bool = False) -> None:
        super().__init__()
        if not isinstance(moment, datetime):
            raise TypeError(f"A trigger waits for a datetime, not for {moment!r} of type {type(moment).__name__}.")
        if moment.utcoffset() is None:
            raise ValueError(f"A trigger cannot wait for {moment.isoformat()}: it has no time zone.")
        self.moment = moment.astimezone(UTC)
        self.end_from_trigger = end_from_trigger

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "stannel.triggers.temporal.DateTimeTrigger",
            {"moment": self.moment, "end_from_trigger": self.end_from_trigger},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await sleep_until(self.moment)
        yield TaskSuccessEvent() if self.end_from_trigger else TriggerEvent(self.moment)


class TimeDeltaTrigger(DateTimeTrigger):
    """Fires a while after it was made. It is stored as a `DateTimeTrigger`, so moving it starts no new while."""

    def __init__(self, delta: timedelta, *, end_from_trigger: bool = False) -> None:
        super().__init__(_utc_now() + delta, end_from_trigger=end_from_trigger)
