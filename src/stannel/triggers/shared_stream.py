"""One poll for many triggers: those with equal keys read one stream, and its broker advances once all have stored it.

A key is in `SharedStreamManager._groups` only while its poll lives and takes subscribers.
"""

import asyncio
import logging
import time
from asyncio import current_task
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any, Literal

from stannel.triggers.base import BaseEventTrigger
from stannel.triggers.ledger import ledger_number
from stannel.triggers.stream_acked import AckedGroup, window
from stannel.triggers.stream_entries import AdvanceItem, AdvanceOutcome
from stannel.triggers.stream_figures import StreamFigures
from stannel.triggers.stream_group import SharedStreamGroup, StreamOptions
from stannel.triggers.stream_log import PollFailure
from stannel.triggers.stream_log import Reader as _Reader
from stannel.triggers.stream_producer import (
    AckTimeout,
    EventNotHandled,
    PollTerminated,
    SharedStreamProducer,
    SubscriberOverflow,
)

__all__ = [
    "DEFAULT_ACK_TIMEOUT",
    "DEFAULT_SUBSCRIBER_QUEUE_MAX",
    "AckTimeout",
    "AdvanceItem",
    "AdvanceOutcome",
    "EventNotHandled",
    "SharedStreamManager",
    "SharedStreamProducer",
    "StreamFigures",
    "reject_shared_stream_event",
]

DEFAULT_SUBSCRIBER_QUEUE_MAX = 1024
DEFAULT_ACK_TIMEOUT = 300.0

# The names under which these are known to those who catch or inspect them.
_PollFailure = PollFailure
_PollTerminated = PollTerminated
_SharedStreamGroup = SharedStreamGroup
_SubscriberOverflow = SubscriberOverflow

_log = logging.getLogger(__name__)


def reject_shared_stream_event() -> None:
    """Refuse the raw event that the calling filter is on: it counts as rejected, at once, and nothing is stored first.

    It must be called in the task that reads the stream. Elsewhere, and where no broker is told, it only warns.
    """
    try:
        task = current_task()
    except RuntimeError:
        task = None
    mine = window.get()
    if mine is None or task is None or mine[2] is not task or not mine[0].ledger.reject(mine[1]):
        _log.warning("reject_shared_stream_event called outside an ack-mode binding window; ignored")


@dataclass(frozen=True)
class _Apart:
    """The key of a group whose mode differs from that of the group that has the plain key."""

    key: Hashable


class SharedStreamManager:
    """Lets triggers with equal keys read one stream. It belongs to one event loop."""

    def __init__(
        self,
        *,
        log: Any = None,
        max_subscriber_queue: int = DEFAULT_SUBSCRIBER_QUEUE_MAX,
        ack_timeout: float = DEFAULT_ACK_TIMEOUT,
        cohort_grace_period: float = 0.0,
        overflow: Literal["fail", "block"] = "fail",
        advance_concurrency: int = 1,
        max_in_flight: int | None = None,
        linger: float = 0.0,
        redeliveries: int = 5,
        redelivery_backoff: float = 1.0,
        cohort: Callable[[Hashable], Collection[int]] | None = None,
        already_stored: Callable[[Hashable, str], bool] | None = None,
        _now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log = log if log is not None else _log
        self.now = _now
        self.options = StreamOptions(
            max_subscriber_queue=max_subscriber_queue,
            ack_timeout=ack_timeout,
            cohort_grace_period=cohort_grace_period,
            overflow=overflow,
            advance_concurrency=advance_concurrency,
            max_in_flight=max_in_flight,
            linger=linger,
            redeliveries=redeliveries,
            redelivery_backoff=redelivery_backoff,
            cohort=cohort,
            already_stored=already_stored,
        )
        self._groups: dict[Hashable, SharedStreamGroup[Any]] = {}
        self._numbered: dict[int, AckedGroup] = {}
        self._numbers = count(1)
        self._stops: set[asyncio.Task[None]] = set()

    # --- for those who run triggers ----------------------------------------------------------------------------------

    def subscribe(self, *, trigger_id: int, trigger: BaseEventTrigger, key: Hashable) -> AsyncIterator[Any]:
        """The raw events of the stream with this key, for the trigger's filter. The first subscriber opens it.

        Classes that tell a broker and classes that do not never share one, though their keys be equal.
        """
        if key is None:
            raise ValueError("The key of a shared stream must not be None; a trigger without one runs alone.")
        is_acked = _is_acked(type(trigger))
        place = self._place(key, is_acked)
        group = self._groups.get(place)
        if group is not None:
            return group.subscribe(trigger_id)
        group = self._new_group(key, trigger, is_acked)
        events = group.subscribe(trigger_id)
        self._groups[place] = group
        group.start()
        self.log.info("Shared stream group started key=%r", key)
        return events

    def bind_pending_event(self, *, trigger_id: int, key: Hashable) -> int | None:
        """The number to confirm once the event that the trigger just gave is stored. None: nobody waits for that.

        To be called before the trigger goes on.
        """
        group = self._groups.get(key)
        if group is not None:
            reader = group.subscriptions.get(trigger_id)
            if reader is not None:
                return group.bind(reader)
        group = self._group_of(trigger_id, key)
        return None if group is None else group.bind(group.subscriptions[trigger_id])

    def pending_identity(self, *, trigger_id: int, key: Hashable) -> str | None:
        """The identity of the event bound last: equal when the broker repeats its source. None: there is none."""
        group = self._group_of(trigger_id, key)
        return group.identity(trigger_id) if isinstance(group, AckedGroup) else None

    def confirm_persisted(self, seqs: Iterable[int]) -> None:
        """These events are stored. Numbers that nobody waits for are passed over."""
        if len(self._numbered) == 1:
            for group in self._numbered.values():
                group.confirm(seqs)
            return
        for number, sequences in groupby(seqs, key=ledger_number):
            owner = self._numbered.get(number)
            if owner is not None:
                owner.confirm(sequences)

    async def unsubscribe(self, trigger_id: int, key: Hashable) -> None:
        """The trigger is done with what it was given, and takes no more. With the last one the stream ends."""
        group = self._group_of(trigger_id, key)
        if group is not None:
            group.unsubscribe(trigger_id)
            await self._stop_if_deserted(group)

    async def finished(self, trigger_id: int, key: Hashable) -> None:
        """The trigger's filter came to its end: it is done with the event it was on, and owes nothing that it has not
        read. What it alone should have read is left to the broker."""
        group = self._group_of(trigger_id, key)
        if group is not None:
            group.finish(trigger_id)
            await self._stop_if_deserted(group)

    async def left(self, trigger_id: int, key: Hashable, *, error: BaseException | None = None) -> None:
        """The trigger's filter ended by this error, or was cancelled: it has not handled the event it was on.

        It is given that event again when it comes back, a bounded number of times if an error was to blame; if nobody
        waits for it to come back, the event counts as failed.
        """
        group = self._group_of(trigger_id, key)
        if group is not None:
            group.lapse(trigger_id, blamed=error is not None)
            await self._stop_if_deserted(group)

    def cohort_changed(self) -> None:
        """Ask again who is registered for each stream."""
        for group in self._acked():
            group.refresh_cohort()

    def figures(self) -> list[StreamFigures]:
        """How every stream that tells its broker stands."""
        return [group.figures() for group in self._acked()]

    async def stop(self, key: Hashable) -> None:
        """End one stream as `stop_all` ends all of them."""
        groups = [group for place in (key, _Apart(key)) if (group := self._groups.pop(place, None)) is not None]
        for group in groups:
            await group.stop()

    async def stop_all(self) -> None:
        """End every stream. What is settled is advanced, the rest is left to the brokers; no subscriber is told."""
        groups, self._groups = [*self._groups.values()], {}
        winding_up = [group for group in self._numbered.values() if group not in groups]
        for group in [*groups, *winding_up]:
            await group.stop()
        if self._stops:
            await asyncio.wait(self._stops)

    # --- for groups --------------------------------------------------------------------------------------------------

    def ended(self, group: SharedStreamGroup[Any]) -> None:
        for place in (group.key, _Apart(group.key)):
            if self._groups.get(place) is group:
                del self._groups[place]

    def deserted(self, group: SharedStreamGroup[Any]) -> None:
        if not group.subscriptions:
            self.ended(group)
            task = asyncio.get_running_loop().create_task(group.stop())
            self._stops.add(task)
            task.add_done_callback(self._stops.discard)

    def gone(self, group: SharedStreamGroup[Any]) -> None:
        if isinstance(group, AckedGroup):
            self._numbered.pop(group.number, None)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _place(self, key: Hashable, is_acked: bool) -> Hashable:
        group = self._groups.get(key)
        return key if group is None or group.is_acked == is_acked else _Apart(key)

    def _new_group(self, key: Hashable, trigger: BaseEventTrigger, is_acked: bool) -> SharedStreamGroup[Any]:
        if not is_acked:
            return SharedStreamGroup[_Reader](key, trigger, self)
        number = next(self._numbers)
        group = AckedGroup(key, trigger, self, number)
        self._numbered[number] = group
        return group

    def _group_of(self, trigger_id: int, key: Hashable) -> SharedStreamGroup[Any] | None:
        for place in (key, _Apart(key)):
            group = self._groups.get(place)
            if group is not None and trigger_id in group.subscriptions:
                return group
        return None

    def _acked(self) -> list[AckedGroup]:
        return [group for group in self._groups.values() if isinstance(group, AckedGroup)]

    async def _stop_if_deserted(self, group: SharedStreamGroup[Any]) -> None:
        if group.may_stop:
            # Before the first await: who subscribes from here on opens the stream anew.
            self.ended(group)
            await group.stop()


def _is_acked(trigger_class: type[BaseEventTrigger]) -> bool:
    """Whether a class between the trigger's and BaseEventTrigger says how its producer is made."""
    factory = getattr(trigger_class.create_shared_stream_producer, "__func__", None)
    return factory is not BaseEventTrigger.create_shared_stream_producer.__func__  # type: ignore[attr-defined]
