"""All triggers of the host: starts them a few at a time, stops them, and knows when the last is gone."""

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from stannel.model.trigger import CancelReason
from stannel.protocol.triggering import Finished, HostSetup, TriggerStart
from stannel.triggerer.host.imports import Imports
from stannel.triggerer.host.life import Around, Life
from stannel.triggerer.host.loglines import Output
from stannel.triggerer.host.streams import HostStreams
from stannel.triggerer.host.wire import Wire

# So few that the loop turns, and news of the first arrive, while the last still wait for their start.
_STARTS_PER_TURN = 100


class Lives:
    """The triggers by id. One that stopped listening is no longer in here, though it may still run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wire: Wire,
        imports: Imports,
        output: Output,
        streams: HostStreams,
        setup: HostSetup,
    ) -> None:
        self._around = Around(loop, wire, imports, output, streams, setup, self._on_gone)
        self._loop, self._wire, self._output = loop, wire, output
        self._lives: dict[int, Life] = {}
        self._waiting: dict[int, TriggerStart] = {}
        self._order: deque[int] = deque()
        self._is_closed = False
        self._on_empty: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._lives)

    def start(self, starts: Iterable[TriggerStart]) -> None:
        """Run these, unless they run already."""
        if self._is_closed:
            return
        was_waiting = bool(self._order)
        for start in starts:
            self._enqueue(start)
        if self._order and not was_waiting:
            self._loop.call_soon(self._start_some)

    def cancel(self, trigger_id: int, reason: CancelReason) -> None:
        """Stop one. Unknown ids are those of triggers that ended meanwhile."""
        start = self._waiting.get(trigger_id)
        if start is None:
            life = self._lives.get(trigger_id)
            if life is not None:
                life.cancel(reason)
        elif reason is CancelReason.KILLED:
            self._waiting[trigger_id] = msgspec.structs.replace(start, only_kill=True)
        else:
            del self._waiting[trigger_id]
            self._wire.report(Finished(trigger_id, start.epoch))

    async def end_all(self, *, seconds: float, kill_seconds: float) -> None:
        """Stop all within `seconds`; a kill that is under way keeps the time it was promised."""
        self._is_closed = True
        for trigger_id in list(self._waiting):
            self.cancel(trigger_id, CancelReason.SHUTDOWN)
        for life in list(self._lives.values()):
            life.cancel(CancelReason.SHUTDOWN)
        await self._emptied(seconds)
        if any(life.is_killing for life in self._lives.values()):
            await self._emptied(kill_seconds)

    async def _emptied(self, seconds: float) -> None:
        self._on_empty = asyncio.Event()
        if self._lives:
            try:
                await asyncio.wait_for(self._on_empty.wait(), seconds)
            except TimeoutError:
                return

    def _enqueue(self, start: TriggerStart) -> None:
        known = self._waiting.get(start.id) or self._lives.get(start.id)
        if known is not None and known.epoch >= start.epoch:
            self._output.say(start.id, "warning", f"Trigger {start.id} had insertion attempted twice; it runs once")
            return
        if isinstance(known, Life):
            # Handed out anew: the earlier run has lost its claim, and the new one begins when it is gone.
            known.cancel(CancelReason.MOVED)
        self._waiting[start.id] = start
        self._order.append(start.id)

    def _start_some(self) -> None:
        for _ in range(min(len(self._order), _STARTS_PER_TURN)):
            self._start_one(self._order.popleft())
        if self._order:
            self._loop.call_soon(self._start_some)

    def _start_one(self, trigger_id: int) -> None:
        before = self._lives.get(trigger_id)
        if before is not None and not before.is_stuck:
            return
        start = self._waiting.pop(trigger_id, None)
        if start is not None:
            self._lives[trigger_id] = Life(self._around, start)

    def _on_gone(self, life: Life) -> None:
        if self._lives.get(life.id) is life:
            del self._lives[life.id]
        if life.id in self._waiting:
            self._order.append(life.id)
            if len(self._order) == 1:
                self._loop.call_soon(self._start_some)
        if not self._lives and self._on_empty is not None:
            self._on_empty.set()
