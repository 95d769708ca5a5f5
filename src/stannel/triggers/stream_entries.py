"""What the ledger of a stream is written in: events, lanes, those who owe answers, and what brokers are told."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from stannel.triggers.stream_log import Reader


@dataclass(frozen=True, slots=True)
class AdvanceOutcome:
    """How many subscribers accepted an event, failed on it and refused it; each is counted once."""

    acked: int
    failed: int
    rejected: int = 0

    @property
    def is_clean(self) -> bool:
        """Somebody accepted the event, and nobody failed on it or refused it."""
        return self.acked > 0 and self.failed == 0 and self.rejected == 0


class AdvanceItem(NamedTuple):
    """A settled event: what the producer gave with it, and how the subscribers took it."""

    broker_payload: Any
    outcome: AdvanceOutcome


class Entry(msgspec.Struct, eq=False):
    """An event the broker has not been told about yet. `size` subscribers owed it; `pending` is what is still owed."""

    raw: Any
    payload: Any
    lane: "Lane"
    born: float
    size: int
    pending: int
    failed: int = 0
    rejected: int = 0
    next: "Entry | None" = None

    @property
    def is_unhandled(self) -> bool:
        """A commit that covers this event would lose it for somebody: one failed on it, or nobody was there."""
        return self.failed > 0 or self.size == 0


class Lane:
    """Events that advance in the order they came. `busy`: it is queued, being advanced, or waits to be tried again."""

    __slots__ = ("busy", "first", "key", "last", "tries")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.busy = False
        self.tries = 0


@dataclass(slots=True)
class Batch:
    """Settled events from the head of one lane, in order, up to `last`."""

    lane: Lane
    items: list[AdvanceItem]
    last: Entry
    is_unhandled: bool


class Subscriber(Reader):
    """One who owes answers. `current` is the event it is on; `durable`: it owes them though it is away.

    Of the event `bound_to` it has `made` so many results; the first has the number `bound_from`. How long it has not
    moved, or nothing of it was stored, is told by `moved` and `stored`, and by what was `seen_` then.
    """

    __slots__ = (
        "attempts",
        "bound_from",
        "bound_to",
        "current",
        "durable",
        "has_made",
        "made",
        "moved",
        "online",
        "origin",
        "seen_at",
        "seen_result",
        "stored",
        "tried",
    )

    def __init__(self, id: int, at: int, now: float) -> None:  # noqa: A002 - a subscriber has an id
        super().__init__(id, at)
        self.current: Entry | None = None
        self.online = True
        self.durable = False
        # Whoever comes back is another object, and owes as this one does.
        self.origin = self
        self.bound_to: Entry | None = None
        self.bound_from = self.made = 0
        self.has_made = False
        self.attempts = 0
        self.tried = -1
        self.seen_at, self.moved = at, now
        self.seen_result: int | None = None
        self.stored = now

    @property
    def floor(self) -> int:
        return self.at if self.current is None else self.at - 1

    def return_as(self, now: float) -> "Subscriber":
        """The same debts in a new object, so that whoever still holds the old one reads nothing more."""
        back = Subscriber(self.id, self.at, now)
        back.origin, back.durable = self.origin, self.durable
        back.has_made = self.has_made
        back.attempts, back.tried = self.attempts, self.tried
        return back
