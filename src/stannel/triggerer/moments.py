"""Resumes tasks that only wait for a moment: nothing runs for them, a sleep until the next one is enough."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from stannel.errors import StannelError

log = logging.getLogger(__name__)

_BATCH = 2000
# A clock may be set, and a wake-up call be lost: nobody sleeps longer than this without another look.
_LONGEST_SLEEP = 10.0
_SHORTEST_SLEEP = 0.001
_PAUSE_AFTER_ERROR = 0.5

NextDue = Callable[[], Awaitable[datetime | None]]
FireDue = Callable[[datetime, int], Awaitable[int]]


class Moments:
    """Sleeps until the next moment, then resumes whoever waited for it. Several may race: each task resumes once."""

    def __init__(self, next_due: NextDue, fire_due: FireDue, clock: Callable[[], datetime]) -> None:
        self._next_due, self._fire_due, self._clock = next_due, fire_due, clock
        self._woken = asyncio.Event()
        self.fired = 0

    def wake(self) -> None:
        """A nearer moment may have been stored."""
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            try:
                pause = await self._look()
            except StannelError as error:
                log.error("Tasks that wait for a moment cannot be resumed yet; trying again: %s", error)
                pause = _PAUSE_AFTER_ERROR
            except Exception:
                log.exception("The triggerer met a bug while it looked for moments and tries again")
                pause = _PAUSE_AFTER_ERROR
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _look(self) -> float:
        """Fire what is due; the seconds until there is more."""
        while True:
            due = await self._next_due()
            now = self._clock()
            if due is None:
                return _LONGEST_SLEEP
            if due > now:
                return min(max((due - now).total_seconds(), _SHORTEST_SLEEP), _LONGEST_SLEEP)
            fired = await self._fire_due(now, _BATCH)
            self.fired += fired
            if not fired:
                # Others are at it; what they leave is seen at the next look.
                return _SHORTEST_SLEEP * 20
