"""Who still owes an answer to which event: the rules by which a stream's broker may advance, without a clock or a loop.

Every event is owed by those who subscribed when it came, or were expected then. What a subscriber owes is told by its
place in the shared log, the event it is on, and those of its results that are not stored yet; an event only counts how
many such debts are left. When none is it is settled, and the broker is told once all before it in its lane are.
"""

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache, partial
from math import inf
from typing import Any

from stannel.triggers.stream_entries import AdvanceItem, AdvanceOutcome, Batch, Entry, Lane, Subscriber
from stannel.triggers.stream_log import Log

# Sequence numbers of one ledger; the number of the ledger stands above them.
_SEQUENCE_BITS = 40
_FEW = 16
_NOBODY = AdvanceOutcome(0, 0)

_item: Callable[[tuple[Any, AdvanceOutcome]], AdvanceItem] = partial(tuple.__new__, AdvanceItem)


class Ledger(Log[Entry, Subscriber]):
    """The events of one stream that are still owed. `on_ready` is called when a lane has something to advance."""

    __slots__ = (
        "_first_number",
        "_forget_at",
        "_makers",
        "_on_ready",
        "_ready",
        "_results",
        "advanced",
        "cuts_at_failures",
        "duplicates",
        "failed",
        "lanes",
        "outstanding",
        "redelivered",
        "rejected",
    )

    def __init__(
        self, *, number: int = 0, limit: int = sys.maxsize, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(limit)
        self.lanes: dict[Hashable, Lane] = {}
        self.outstanding = 0
        self.advanced = self.failed = self.rejected = self.redelivered = self.duplicates = 0
        self.cuts_at_failures = False
        # For each number from the oldest that somebody may confirm: of which event it is a result, and who made it.
        self._first_number = number << _SEQUENCE_BITS
        self._results: list[Entry | None] = []
        self._makers: list[Subscriber] = []
        self._forget_at = _FEW
        self._ready: deque[Lane] = deque()
        self._on_ready = on_ready

    # --- subscribers -------------------------------------------------------------------------------------------------

    def join(self, subscriber_id: int, now: float) -> Subscriber:
        """A subscriber of every later event; one that was away goes on where it was."""
        away = self.readers.get(subscriber_id)
        subscriber = away.return_as(now) if away is not None else Subscriber(subscriber_id, self.end, now)
        if away is not None:
            self.remove(away)
        self.add(subscriber)
        return subscriber

    def expect(self, subscriber_id: int, now: float) -> Subscriber:
        """One who is away, and owes every later event all the same."""
        subscriber = self.join(subscriber_id, now)
        subscriber.online, subscriber.durable = False, True
        return subscriber

    def leave(self, subscriber: Subscriber, *, stays: bool = False) -> None:
        """It is done with the event it is on, and fails on what it has not read, unless it stays to read it later."""
        self._pass(subscriber)
        subscriber.online = False
        if not stays:
            self._fail_unread(subscriber)
            self.remove(subscriber)

    def lapse(self, subscriber: Subscriber, *, blamed: bool, redeliveries: int) -> None:
        """It left in the middle of an event, and gets it again; once it was blamed too often, it has failed on it."""
        subscriber.online = False
        entry = subscriber.current
        if entry is None:
            return
        self._void_results(subscriber)
        subscriber.current = None
        subscriber.at -= 1
        if subscriber.tried != subscriber.at:
            subscriber.tried, subscriber.attempts = subscriber.at, 0
        subscriber.attempts += blamed
        if subscriber.attempts > redeliveries:
            subscriber.at += 1
            self._fail(entry)
        else:
            self.redelivered += 1

    def drop(self, subscriber: Subscriber) -> None:
        """It never comes back: it fails on what it has not finished, and owes only what it has passed."""
        self._fail_current(subscriber)
        self._fail_unread(subscriber)
        self.remove(subscriber)

    def excuse(self, subscriber: Subscriber, *, keeps_results: bool = False) -> bool:
        """Nobody wants its answers any more: events that others owe, too, do not wait for it, and do not count it.

        False: it alone owed some. They are not settled, for nobody has handled them. `keeps_results`: those of events
        that it has passed are still waited for.
        """
        self._void_results(subscriber)
        current, subscriber.current = subscriber.current, None
        unread = self.unread(subscriber)
        subscriber.at += len(unread)
        entries = unread if current is None else [current, *unread]
        if not keeps_results:
            entries = [*self._take_results(subscriber.origin), *entries]
        shared = [entry for entry in entries if entry.size > 1]
        for entry in shared:
            entry.size -= 1
            self._count_down(entry)
        self.remove(subscriber)
        return len(shared) == len(entries)

    def fail(self, subscriber: Subscriber) -> None:
        """It fails on everything it owes. One that is durable owes later events nevertheless, the others do not."""
        self._fail_current(subscriber)
        self._fail_unread(subscriber)
        if subscriber.has_made:
            self._fail_results(subscriber.origin)
        if not subscriber.durable:
            self.remove(subscriber)

    # --- events ------------------------------------------------------------------------------------------------------

    def admit(self, raw: Any, payload: Any, lane_key: Hashable, now: float, known: bool = False) -> None:
        """An event that all who subscribe now, or are expected, owe. `known`: what comes of it is stored already."""
        lane = self.lanes.get(lane_key)
        if lane is None:
            lane = self.lanes[lane_key] = Lane(lane_key)
        size = len(self.readers)
        entry = Entry(raw, payload, lane, now, size, size)
        if lane.last is None:
            lane.first = entry
        else:
            lane.last.next = entry
        lane.last = entry
        self.outstanding += 1
        if size and not known:
            self.items.append(entry)
            return
        if known:
            self.duplicates += 1
            entry.size, entry.pending = max(1, size), 0
        self._settle(entry)

    def next(self, subscriber: Subscriber) -> Entry | None:
        """It is done with the event it was on, and is on the next one. None: there is none yet."""
        entry = subscriber.current
        if entry is not None:
            # As in `_count_down` and `_settle`; every event for every subscriber passes here.
            entry.pending -= 1
            if not entry.pending:
                entry.raw = None
                if entry.lane.first is entry:
                    self._make_ready(entry.lane)
        index = subscriber.at - self.base
        if index < len(self.items):
            subscriber.at += 1
            entry = subscriber.current = self.items[index]
            return entry
        subscriber.current = None
        return None

    def bind(self, subscriber: Subscriber) -> int | None:
        """The number by which a result of the event it is on will be confirmed. None: it is on none."""
        entry = subscriber.current
        if entry is None:
            return None
        results = self._results
        number = self._first_number + len(results)
        if subscriber.bound_to is entry:
            subscriber.made += 1
        else:
            subscriber.bound_to, subscriber.bound_from, subscriber.made = entry, number, 1
            subscriber.has_made = True
        entry.pending += 1
        results.append(entry)
        self._makers.append(subscriber.origin)
        return number

    def confirm(self, sequences: Iterable[int]) -> None:
        """These results are stored. Numbers that mean nothing any more are passed over."""
        if len(self._results) > self._forget_at:
            self._forget_numbers()
        results, first, count = self._results, self._first_number, len(self._results)
        for sequence in sequences:
            index = sequence - first
            if 0 <= index < count and (entry := results[index]) is not None:
                results[index] = None
                entry.pending -= 1
                if not entry.pending:
                    entry.raw = None
                    if entry.lane.first is entry:
                        self._make_ready(entry.lane)

    def _forget_numbers(self) -> None:
        """Drop the oldest numbers that nobody waits for."""
        dead = 0
        for entry in self._results:
            if entry is not None:
                break
            dead += 1
        del self._results[:dead], self._makers[:dead]
        self._first_number += dead
        self._forget_at = max(_FEW, 2 * len(self._results))

    def reject(self, subscriber: Subscriber) -> bool:
        """It refuses the event it is on, whatever it has made of it. False: it is on none."""
        entry = subscriber.current
        if entry is None:
            return False
        self._void_results(subscriber)
        subscriber.current = None
        entry.rejected += 1
        self.rejected += 1
        self._count_down(entry)
        return True

    def _pass(self, subscriber: Subscriber) -> None:
        entry, subscriber.current = subscriber.current, None
        if entry is not None:
            self._count_down(entry)

    def _count_down(self, entry: Entry) -> None:
        entry.pending -= 1
        if not entry.pending:
            self._settle(entry)

    def _fail(self, entry: Entry) -> None:
        entry.failed += 1
        self.failed += 1
        self._count_down(entry)

    def _fail_current(self, subscriber: Subscriber) -> None:
        self._void_results(subscriber)
        entry, subscriber.current = subscriber.current, None
        if entry is not None:
            self._fail(entry)

    def _fail_unread(self, subscriber: Subscriber, born_by: float | None = None) -> None:
        unread = self.unread(subscriber)
        if born_by is not None:
            unread = [entry for entry in unread if entry.born <= born_by]
        subscriber.at += len(unread)
        for entry in unread:
            self._fail(entry)

    @property
    def owes_results(self) -> bool:
        """Whether somebody, though it may have left, has results that are not stored yet."""
        return any(entry is not None for entry in self._results)

    def _take_results(self, maker: Subscriber) -> list[Entry]:
        """The events whose results this maker has not got stored. They wait for none of these, but for one answer."""
        taken: dict[Entry, None] = {}
        for index, entry in enumerate(self._results):
            if entry is not None and self._makers[index] is maker:
                self._results[index] = None
                entry.pending -= 1
                taken[entry] = None
        for entry in taken:
            entry.pending += 1
        return list(taken)

    def _fail_results(self, maker: Subscriber, current: Entry | None = None, born_by: float = inf) -> None:
        """Fail on the events, except this one, whose results this maker has not got stored; once on each."""
        failed: dict[Entry, None] = {}
        for index, entry in enumerate(self._results):
            if entry is None or self._makers[index] is not maker:
                continue
            if entry is not current and entry.born <= born_by:
                self._results[index] = None
                entry.pending -= 1
                failed[entry] = None
        for entry in failed:
            # One debt more, to be counted down as failed.
            entry.pending += 1
            self._fail(entry)

    def _void_results(self, subscriber: Subscriber) -> None:
        """What it has made of the event it is on is not waited for."""
        entry = subscriber.current
        if entry is None or subscriber.bound_to is not entry:
            return
        for index in range(max(0, subscriber.bound_from - self._first_number), len(self._results)):
            if self._results[index] is entry and self._makers[index] is subscriber.origin:
                self._results[index] = None
                entry.pending -= 1

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def expire(self, now: float, timeout: float) -> list[Subscriber]:
        """Fail those who have not answered in time; of these, the ones returned are to be told.

        A durable subscriber's time runs only while it makes no progress, and it fails only on what it is late with.
        """
        late, oldest = [], self._oldest_results()
        for subscriber in [*self.readers.values()]:
            number, result = oldest.pop(subscriber.origin, (None, None))
            if subscriber.durable:
                if self._fail_where_stuck(subscriber, number, now, timeout):
                    late.append(subscriber)
            elif (debt := result or self._oldest_unpassed(subscriber)) is not None and now - debt.born >= timeout:
                self.fail(subscriber)
                late.append(subscriber)
        for gone, (_, result) in oldest.items():
            if now - result.born >= timeout:
                self._fail_results(gone)
        self._forget_numbers()
        return late

    def oldest_debts(self) -> dict[int, Entry]:
        """The oldest event that each subscriber owes, of those who owe any."""
        oldest = self._oldest_results()
        debts = {}
        for subscriber in self.readers.values():
            result = oldest.get(subscriber.origin)
            debt = self._oldest_unpassed(subscriber) if result is None else result[1]
            if debt is not None:
                debts[subscriber.id] = debt
        return debts

    def _oldest_results(self) -> dict[Subscriber, tuple[int, Entry]]:
        """For each who has made results that are not stored: the oldest, and its number."""
        oldest: dict[Subscriber, tuple[int, Entry]] = {}
        for number, (entry, maker) in enumerate(zip(self._results, self._makers, strict=True), self._first_number):
            if entry is not None and maker not in oldest:
                oldest[maker] = number, entry
        return oldest

    def _oldest_unpassed(self, subscriber: Subscriber) -> Entry | None:
        if subscriber.current is not None:
            return subscriber.current
        index = subscriber.at - self.base
        return self.items[index] if 0 <= index < len(self.items) else None

    def _fail_where_stuck(self, subscriber: Subscriber, oldest: int | None, now: float, timeout: float) -> bool:
        if oldest != subscriber.seen_result:
            subscriber.seen_result, subscriber.stored = oldest, now
        if subscriber.at != subscriber.seen_at:
            subscriber.seen_at, subscriber.moved = subscriber.at, now
        if oldest is not None and now - subscriber.stored >= timeout:
            self._fail_results(subscriber.origin, subscriber.current, born_by=now - timeout)
        if not subscriber.online:
            self._fail_unread(subscriber, born_by=now - timeout)
        elif subscriber.current is not None and now - subscriber.moved >= timeout:
            self._fail_current(subscriber)
            return True
        return False

    # --- what the broker is told -------------------------------------------------------------------------------------

    def take(self) -> Batch | None:
        """The settled head of the lane that waited longest, to be ended by `done` or `again`. None: there is none."""
        if not self._ready:
            return None
        lane = self._ready.popleft()
        items: list[AdvanceItem] = []
        entry = last = lane.first
        cuts, size, outcome = self.cuts_at_failures, -1, _NOBODY
        while entry is not None and not entry.pending:
            if cuts and entry.is_unhandled:
                if not items:
                    return Batch(lane, [_item((entry.payload, _outcome(entry)))], entry, is_unhandled=True)
                break
            # Neighbours are mostly accepted by as many, and an outcome costs more than all the rest here.
            if entry.failed or entry.rejected:
                size, outcome = -1, _outcome(entry)
            elif entry.size != size:
                size, outcome = entry.size, _outcome(entry)
            items.append(_item((entry.payload, outcome)))
            last, entry = entry, entry.next
        assert last is not None
        return Batch(lane, items, last, is_unhandled=False)

    def done(self, batch: Batch) -> None:
        """The broker was told."""
        lane = batch.lane
        lane.first = batch.last.next
        lane.tries = 0
        lane.busy = False
        self.outstanding -= len(batch.items)
        self.advanced += len(batch.items)
        if lane.first is None:
            del self.lanes[lane.key]
        elif not lane.first.pending:
            self._make_ready(lane)

    def again(self, lane: Lane) -> None:
        """The broker was not told; the lane's head may be taken again."""
        self._make_ready(lane)

    def _settle(self, entry: Entry) -> None:
        entry.raw = None
        lane = entry.lane
        if lane.first is entry:
            self._make_ready(lane)

    def _make_ready(self, lane: Lane) -> None:
        lane.busy = True
        self._ready.append(lane)
        self._on_ready()


@lru_cache(maxsize=1024)
def _shared_outcome(size: int, failed: int, rejected: int) -> AdvanceOutcome:
    return AdvanceOutcome(size - failed - rejected, failed, rejected)


def _outcome(entry: Entry) -> AdvanceOutcome:
    return _shared_outcome(entry.size, entry.failed, entry.rejected)


def ledger_number(sequence: int) -> int:
    """Which ledger gave this sequence number."""
    return sequence >> _SEQUENCE_BITS
