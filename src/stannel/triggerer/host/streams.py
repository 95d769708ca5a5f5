"""The shared streams of the host: whoever has a key reads through one of them, and brokers hear only of what is stored.

Their tasks belong to no trigger that reads them: it may end, and the stream goes on. But what they say and whom they
hold up is put down to the one that opened them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextvars import Context
from enum import Enum, auto
from typing import Any

import msgspec

from stannel.protocol.triggering import StreamEnded, StreamLimits
from stannel.triggerer.host.scope import Owner, owner
from stannel.triggerer.host.wire import Wire
from stannel.triggers.base import BaseEventTrigger, TriggerEvent
from stannel.triggers.shared_stream import SharedStreamManager
from stannel.triggers.stream_keys import key_in_words, key_of

# How long a stream is kept for those who left and may come back.
_LINGER_SECONDS = 30.0
# How many times the queue of one subscriber may be outstanding in a stream.
_IN_FLIGHT = 8

_log = logging.getLogger("stannel.triggerer")


class Parting(Enum):
    """How a trigger leaves a stream. Only one that is done has handled the event it was on."""

    DONE = auto()
    BROKEN = auto()
    STOPPED = auto()
    # It goes on elsewhere: nothing that it had not handled is settled here.
    MOVED = auto()


class Subscription:
    """One trigger's place in a stream, from its start to its end."""

    __slots__ = ("_key", "_streams", "_trigger_id", "events", "words")

    def __init__(self, streams: "HostStreams", trigger_id: int, key: Hashable, words: str) -> None:
        self._streams, self._trigger_id, self._key, self.words = streams, trigger_id, key, words
        self.events: AsyncIterator[TriggerEvent]

    def bind(self) -> tuple[int | None, str | None]:
        """The number under which the event that was just given has to be confirmed, and its place in the stream."""
        return self._streams.bind(self._trigger_id, self._key, self.words)

    def leave(self, parting: Parting) -> None:
        """The trigger reads no more."""
        self._streams.leave(self._trigger_id, self._key, self.words, parting)


class HostStreams:
    """One manager of streams, and what the triggerer says about them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wire: Wire, limits: StreamLimits) -> None:
        self._loop, self._wire = loop, wire
        self._manager = SharedStreamManager(
            log=_log,
            max_subscriber_queue=limits.queue_size,
            ack_timeout=limits.ack_timeout,
            cohort_grace_period=limits.grace_period,
            overflow=limits.overflow,
            max_in_flight=_IN_FLIGHT * limits.queue_size,
            linger=_LINGER_SECONDS,
            cohort=self._cohort,
        )
        self._limits = limits
        self._registered: dict[str, frozenset[int]] = {}
        self._registered_next: dict[str, frozenset[int]] = {}
        self._keys: dict[str, set[Hashable]] = {}
        self._members: dict[str, set[int]] = {}
        self._away: dict[str, set[int]] = {}
        self._unconfirmed: dict[int, str] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._stirred: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._advanced: dict[str, tuple[float, int]] = {}

    # --- for triggers ----------------------------------------------------------------------------------------------

    async def join(self, trigger_id: int, trigger: Any) -> Subscription | None:
        """The trigger's place in the stream of its key. None: it has none, and runs alone."""
        key = key_of(trigger)
        if key is None:
            return None
        words = key_in_words(key)
        # A stream that was given up is not joined again: nobody will confirm what is outstanding in it.
        while (closing := self._closing.get(words)) is not None:
            await asyncio.wait({closing})
        found = Subscription(self, trigger_id, key, words)
        try:
            found.events = trigger.filter_shared_stream(self._opened(trigger_id, trigger, key, words))
        except BaseException:
            self.leave(trigger_id, key, words, Parting.BROKEN)
            raise
        return found

    def _opened(self, trigger_id: int, trigger: BaseEventTrigger, key: Hashable, words: str) -> AsyncIterator[Any]:
        self._keys.setdefault(words, set()).add(key)
        self._members.setdefault(words, set()).add(trigger_id)
        self._away.get(words, set()).discard(trigger_id)
        context = Context()
        context.run(owner.set, Owner(trigger_id))
        raw: AsyncIterator[Any] = context.run(
            lambda: self._manager.subscribe(trigger_id=trigger_id, trigger=trigger, key=key)
        )
        return raw

    def bind(self, trigger_id: int, key: Hashable, words: str) -> tuple[int | None, str | None]:
        number = self._manager.bind_pending_event(trigger_id=trigger_id, key=key)
        if number is None:
            return None, None
        self._unconfirmed[number] = words
        try:
            return number, self._manager.pending_identity(trigger_id=trigger_id, key=key)
        except Exception:  # noqa: BLE001 - authors' code; the event is worth more than its name
            _log.exception("The producer of %s cannot name an event; if its broker repeats it, it counts twice", words)
            return number, None

    def leave(self, trigger_id: int, key: Hashable, words: str, parting: Parting) -> None:
        self._members.get(words, set()).discard(trigger_id)
        if parting is Parting.MOVED:
            self._away.setdefault(words, set()).add(trigger_id)
        if parting is Parting.DONE:
            self._begin(self._manager.finished(trigger_id, key))
        else:
            error = RuntimeError("the trigger broke off") if parting is Parting.BROKEN else None
            self._begin(self._manager.left(trigger_id, key, error=error))
        if parting is Parting.MOVED and not self._members.get(words) and words not in self._registered:
            self.register(words, [])
        self._stir()

    # --- for the triggerer -----------------------------------------------------------------------------------------

    def confirm(self, numbers: list[int]) -> None:
        """These events are stored: what they came from may be advanced."""
        for number in numbers:
            self._unconfirmed.pop(number, None)
        self._manager.confirm_persisted(numbers)
        self._stir()

    def register(self, words: str, ids: list[int]) -> None:
        """These watchers read the stream, whether they run or not. None: it is closed."""
        if words in self._closing:
            # It is closed for those who were there, and they owe what they owe until then.
            self._registered_next[words] = frozenset(ids)
        elif ids:
            self._registered[words] = frozenset(ids)
            self._manager.cohort_changed()
        else:
            self._closing[words] = self._begin(self._close(words))

    def figures(self) -> list[dict[str, Any]]:
        """How every stream that tells its broker stands."""
        found = []
        words = {repr(key): name for name, keys in self._keys.items() for key in keys}
        for one in self._manager.figures():
            figures = msgspec.to_builtins(one)
            figures["key"] = words.get(one.key, one.key)
            figures["per_second"] = self._rate(one.key, one.advanced)
            found.append(figures)
        return found

    async def end(self, seconds: float) -> None:
        """Wait for the last confirmations, then close every stream."""
        await self._until(lambda: not self._unconfirmed, seconds)
        await self._manager.stop_all()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _cohort(self, key: Hashable) -> set[int]:
        """Who owes answers to the events of a stream: who reads it, and who will come back to it."""
        words = key_in_words(key)
        return {*self._registered.get(words, ()), *self._members.get(words, ()), *self._away.get(words, ())}

    async def _close(self, words: str) -> None:
        """Once nobody reads it and all that can be confirmed is, close the stream: what is left its broker repeats."""
        await self._until(lambda: not self._members.get(words), self._limits.close_seconds)
        await self._until(lambda: words not in self._unconfirmed.values(), self._limits.close_seconds)
        for key in self._keys.pop(words, ()):
            await self._manager.stop(key)
        self._members.pop(words, None)
        self._away.pop(words, None)
        self._registered.pop(words, None)
        if following := self._registered_next.pop(words, None):
            self._registered[words] = following
        self._unconfirmed = {number: name for number, name in self._unconfirmed.items() if name != words}
        del self._closing[words]
        self._wire.report(StreamEnded(words))

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait for the condition, but not longer than this."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    stirred = self._loop.create_future()
                    self._stirred.add(stirred)
                    await stirred
        except TimeoutError:
            return

    def _stir(self) -> None:
        stirred, self._stirred = self._stirred, set()
        for future in stirred:
            if not future.done():
                future.set_result(None)

    def _rate(self, key: str, advanced: int) -> float:
        now = self._loop.time()
        then, before = self._advanced.get(key, (now, advanced))
        self._advanced[key] = (now, advanced)
        return round((advanced - before) / (now - then), 1) if now > then else 0.0

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that is nobody's."""
        task = asyncio.Task(work, loop=self._loop, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
