"""Tells hosts which DAGs had a run that ended, so that triggers which wait for one look at once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from stannel.errors import StannelError
from stannel.store.signals import Listener

log = logging.getLogger(__name__)

# Clocks of several machines differ a little, and an end is seen only after its commit.
_LOOK_BACK = timedelta(seconds=5)
_BREATH = 0.02
_PAUSE_AFTER_ERROR = 1.0

EndedSince = Callable[[datetime], Awaitable[Sequence[tuple[int, str]]]]


class RunNews:
    """Listens only while somebody is there to be told."""

    def __init__(
        self,
        listen: Callable[[], Awaitable[Listener]],
        ended_since: EndedSince,
        tell: Callable[[list[str]], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._listen, self._ended_since, self._tell, self._clock = listen, ended_since, tell, clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, if that is not so already."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._pass_on()
            except StannelError as error:
                log.error("Ends of runs cannot be heard; triggers that wait for them look now and then: %s", error)
            except Exception:
                log.exception("The triggerer met a bug while it listened for ends of runs and tries again")
            await asyncio.sleep(_PAUSE_AFTER_ERROR)

    async def _pass_on(self) -> None:
        loop, since = asyncio.get_running_loop(), self._clock()
        listener, woken = await self._listen(), asyncio.Event()
        loop.add_reader(listener.fileno(), woken.set)
        told: set[int] = set()
        try:
            while True:
                await woken.wait()
                # Many runs that end together make one look.
                await asyncio.sleep(_BREATH)
                listener.drain()
                woken.clear()
                now = self._clock()
                ended = await self._ended_since(since - _LOOK_BACK)
                since = now
                fresh = {dag_id for pk, dag_id in ended if pk not in told}
                told = {pk for pk, _ in ended}
                if fresh:
                    self._tell(sorted(fresh))
        finally:
            loop.remove_reader(listener.fileno())
            listener.close()
