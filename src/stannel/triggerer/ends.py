"""Stores how waits ended, in batches: what is fired while one batch is being stored makes up the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from stannel.errors import DiskFull, StoreReadOnly, StoreUnavailable
from stannel.model.trigger import Failure, Firing

if TYPE_CHECKING:
    from stannel.triggerer.host_process import HostProcess

log = logging.getLogger(__name__)

# Errors of the store itself: they pass, and nothing that waits to be stored is to blame for them.
_PASSING = (StoreUnavailable, StoreReadOnly, DiskFull)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LARGEST_BATCH = 1000

Settle = Callable[[str, Sequence[Firing]], Awaitable[list[bool]]]


class End(msgspec.Struct, frozen=True):
    """A wait that ended, or an event of a watcher, and under which owner's name it is stored.

    `source` waits for a word that it is stored: a process, and the number by which that knows it.
    """

    owner: str
    firing: Firing
    source: "tuple[HostProcess, int] | None" = None


OnStored = Callable[[Sequence[tuple[End, bool | None]]], None]


class Ends:
    """Keeps every end until the store has it. `on_stored` hears whether each counted; None: it cannot be stored."""

    def __init__(self, settle: Settle, on_stored: OnStored) -> None:
        self._settle, self._on_stored = settle, on_stored
        self._waiting: list[End] = []
        self._in_hand = 0
        self._task: asyncio.Task[None] | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.trouble: str | None = None
        self.stored = self.refused = 0

    @property
    def pending(self) -> int:
        return len(self._waiting) + self._in_hand

    def add(self, owner: str, firing: Firing, source: "tuple[HostProcess, int] | None" = None) -> None:
        """Store it, soon and for certain."""
        self._waiting.append(End(owner, firing, source))
        self._quiet.clear()
        if self._task is None:
            self._task = asyncio.create_task(self._store_all())

    async def drained(self) -> None:
        """Returns when everything that was added is stored."""
        await self._quiet.wait()

    def close(self) -> None:
        """Give up what is not stored yet."""
        if self._task is not None:
            self._task.cancel()

    async def _store_all(self) -> None:
        try:
            while self._waiting:
                batch = _of_one_owner(self._waiting[:_LARGEST_BATCH])
                del self._waiting[: len(batch)]
                self._in_hand = len(batch)
                await self._store(batch)
                self._in_hand = 0
        finally:
            self._task, self._in_hand = None, 0
            if not self._waiting:
                self._quiet.set()

    async def _store(self, batch: list[End]) -> None:
        """Store these, however long the store is away; one that spoils its batch is found and fails alone."""
        try:
            accepted = await self._patiently(batch)
        except Exception as error:  # noqa: BLE001 - whatever it was, the others of the batch are not to blame
            if len(batch) > 1:
                half = len(batch) // 2
                await self._store(batch[:half])
                await self._store(batch[half:])
                return
            await self._store_failure(batch[0], error)
            return
        self.stored += sum(accepted)
        self.refused += accepted.count(False)
        self._on_stored(list(zip(batch, accepted, strict=True)))

    async def _store_failure(self, end: End, error: Exception) -> None:
        why = f"the event could not be stored ({type(error).__name__}: {error})"
        text = why if end.firing.is_watch else f"Could not resume the task: {why}"
        failed = End(end.owner, msgspec.structs.replace(end.firing, what=Failure(error=text)))
        log.error("What trigger %s fired cannot be stored; whoever waits for it is told: %r", end.firing.id, error)
        try:
            [ok] = await self._patiently([failed])
        except Exception:
            log.exception("The end of trigger %s cannot be stored at all; it is given back", end.firing.id)
            self._on_stored([(failed, None)])
        else:
            self._on_stored([(failed, ok)])

    async def _patiently(self, batch: Sequence[End]) -> list[bool]:
        pause = _FIRST_PAUSE
        while True:
            try:
                accepted = await self._settle(batch[0].owner, [end.firing for end in batch])
            except _PASSING as error:
                self.trouble = str(error)
                log.error("%d events cannot be stored yet and are kept; trying again: %s", len(batch), error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self.trouble = None
                return accepted


def _of_one_owner(ends: Sequence[End]) -> list[End]:
    """The first of these, as many as can be stored together."""
    return list(takewhile(lambda end: end.owner == ends[0].owner, ends))
