"""The ledger against a reference that keeps a set for every event: whatever happens, both say the same."""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stannel.triggers.ledger import Ledger, ledger_number
from stannel.triggers.stream_entries import AdvanceItem, AdvanceOutcome, Batch, Subscriber

TIMEOUT = 10.0
REDELIVERIES = 2
LANES = ("a", "b", "c")
PICK = st.integers(0, 5)


@dataclass(eq=False)
class Event:
    """An event as the reference sees it: who owes it, and what each that does not has said."""

    number: int
    lane: Hashable
    born: float
    owed_by: set[int]
    said: dict[int, str] = field(default_factory=dict)
    nobody: bool = False

    def say(self, who: int, word: str) -> None:
        self.owed_by.discard(who)
        assert who not in self.said, "each is counted once"
        self.said[who] = word

    @property
    def outcome(self) -> AdvanceOutcome:
        words = [*self.said.values()]
        return AdvanceOutcome(words.count("acked"), words.count("failed"), words.count("rejected"))


@dataclass(eq=False)
class Member:
    """A subscriber as the reference sees it: a queue of its own, and the numbers not confirmed for each event."""

    id: int
    queue: list[Event] = field(default_factory=list)
    on: Event | None = None
    unconfirmed: dict[Event, set[int]] = field(default_factory=dict)
    passed: set[Event] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    online: bool = True


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        # A small limit, so that the log is trimmed all the time.
        self.ledger = Ledger(number=7, limit=4)
        self.subscribers: dict[int, Subscriber] = {}
        self.members: dict[int, Member] = {}
        self.gone: list[Member] = []
        self.events = 0
        self.lanes: dict[Hashable, list[Event]] = {lane: [] for lane in LANES}
        self.in_flight: dict[Hashable, Batch] = {}
        self.numbers: list[int] = []

    # --- what can happen

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        for who in range(count):
            self.join(who)

    @rule(who=st.integers(0, 3))
    def join(self, who: int) -> None:
        member = self.members.get(who)
        if member is not None and member.online:
            return
        self.subscribers[who] = self.ledger.join(who, self.now)
        if member is None:
            self.members[who] = Member(who)
        else:
            member.online = True

    @rule(lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=4), known=st.sampled_from([False] * 6 + [True]))
    def admit(self, lanes: list[str], known: bool) -> None:
        for lane in lanes:
            self._admit(lane, known)

    def _admit(self, lane: str, known: bool) -> None:
        self.events += 1
        event = Event(self.events, lane, self.now, set() if known else set(self.members), nobody=not self.members)
        if known:
            event.said = dict.fromkeys(self.members or [-1], "acked")
        self.lanes[lane].append(event)
        for who in event.owed_by:
            self.members[who].queue.append(event)
        if len(self.ledger.items) >= self.ledger.attention:
            self.ledger.trim()
        self.ledger.admit(f"raw {self.events}", self.events, lane, self.now, known)

    @rule(pick=PICK, times=st.integers(1, 4))
    def take_next(self, pick: int, times: int) -> None:
        member = self._online(pick)
        if member is not None:
            for _ in range(times):
                self._take_next(member)

    @rule()
    def all_take_next(self) -> None:
        for member in self.members.values():
            if member.online:
                self._take_next(member)

    def _take_next(self, member: Member) -> None:
        entry = self.ledger.next(self.subscribers[member.id])
        self._pass(member)
        expected = member.queue.pop(0) if member.queue else None
        member.on = expected
        assert (entry and entry.raw) == (expected and f"raw {expected.number}")

    @rule(pick=PICK, times=st.integers(1, 3))
    def fire(self, pick: int, times: int) -> None:
        member = self._online(pick)
        if member is None:
            return
        for _ in range(times):
            number = self.ledger.bind(self.subscribers[member.id])
            assert (number is None) == (member.on is None)
            if number is not None and member.on is not None:
                assert ledger_number(number) == 7
                assert number not in self.numbers
                self.numbers.append(number)
                member.unconfirmed.setdefault(member.on, set()).add(number)

    @rule(pick=PICK, all_of_them=st.booleans())
    def confirm(self, pick: int, all_of_them: bool) -> None:
        if not self.numbers:
            return
        chosen = self.numbers if all_of_them else self.numbers[-1 - pick :: pick + 1]
        self.ledger.confirm([*chosen, 3, -1])
        for member in [*self.members.values(), *self.gone]:
            for event, numbers in [*member.unconfirmed.items()]:
                numbers.difference_update(chosen)
                if not numbers and event in member.passed:
                    self._accept(member, event)

    @rule(pick=PICK)
    def reject(self, pick: int) -> None:
        member = self._online(pick)
        if member is None:
            return
        assert self.ledger.reject(self.subscribers[member.id]) == (member.on is not None)
        if member.on is not None:
            self._forget(member, member.on)
            member.on.say(member.id, "rejected")
            member.on = None

    @rule(pick=PICK, blames=st.lists(st.booleans(), max_size=5))
    def stumble(self, pick: int, blames: list[bool]) -> None:
        """It breaks off again and again, and comes back each time."""
        member = self._online(pick)
        for blamed in blames if member is not None else ():
            self._lapse(member, blamed)
            self.join(member.id)
            self._take_next(member)

    @rule(pick=PICK, how=st.sampled_from(["leave", "drop", "fail"]))
    def go(self, pick: int, how: str) -> None:
        member = self._online(pick) if how == "leave" else self._anybody(pick)
        if member is not None:
            {"leave": self._leave, "drop": self._drop, "fail": self._fail}[how](member)

    def _leave(self, member: Member) -> None:
        self.ledger.leave(self.subscribers.pop(member.id))
        self._pass(member)
        self._fail_queue(member)
        self._away(member)

    @rule(pick=PICK, blamed=st.booleans())
    def lapse(self, pick: int, blamed: bool) -> None:
        member = self._online(pick)
        if member is not None:
            self._lapse(member, blamed)

    def _lapse(self, member: Member, blamed: bool) -> None:
        self.ledger.lapse(self.subscribers[member.id], blamed=blamed, redeliveries=REDELIVERIES)
        member.online = False
        event, member.on = member.on, None
        if event is None:
            return
        self._forget(member, event)
        attempts = member.attempts.get(event.number, 0) + blamed
        member.attempts = {event.number: attempts}
        if attempts > REDELIVERIES:
            event.say(member.id, "failed")
        else:
            member.queue.insert(0, event)

    def _drop(self, member: Member) -> None:
        self.ledger.drop(self.subscribers.pop(member.id))
        self._fail_on(member)
        self._fail_queue(member)
        self._away(member)

    def _fail(self, member: Member) -> None:
        self.ledger.fail(self.subscribers.pop(member.id))
        self._fail_all(member)
        del self.members[member.id]

    @rule(seconds=st.sampled_from([0.5, 0.5, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        late = {id(subscriber) for subscriber in self.ledger.expire(self.now, TIMEOUT)}
        for member in [*self.members.values()]:
            is_late = any(event.born <= self.now - TIMEOUT for event in self._owes(member))
            assert (id(self.subscribers[member.id]) in late) == is_late
            if is_late:
                self._fail_all(member)
                del self.members[member.id], self.subscribers[member.id]
        for member in self.gone:
            if any(event.born <= self.now - TIMEOUT for event in self._owes(member)):
                self._fail_all(member)

    @rule()
    def start_advance(self) -> None:
        batch = self.ledger.take()
        expected = {lane: self._prefix(lane) for lane in LANES if lane not in self.in_flight and self._prefix(lane)}
        assert (batch is None) == (not expected)
        if batch is not None:
            assert batch.items == expected[batch.lane.key]
            self.in_flight[batch.lane.key] = batch

    @rule(pick=PICK, works=st.booleans())
    def end_advance(self, pick: int, works: bool) -> None:
        if not self.in_flight:
            return
        lane = sorted(self.in_flight, key=str)[pick % len(self.in_flight)]
        batch = self.in_flight.pop(lane)
        if works:
            self.ledger.done(batch)
            del self.lanes[lane][: len(batch.items)]
        else:
            self.ledger.again(batch.lane)

    # --- what always holds

    @invariant()
    def nothing_is_forgotten_or_kept_for_nothing(self) -> None:
        assert self.ledger.outstanding == sum(map(len, self.lanes.values()))
        assert set(self.ledger.lanes) == {lane for lane, events in self.lanes.items() if events}
        assert set(self.ledger.readers) == set(self.members)

    @invariant()
    def both_agree_on_every_event(self) -> None:
        for key, events in self.lanes.items():
            entry = self.ledger.lanes[key].first if events else None
            for event in events:
                assert entry is not None
                outcome = event.outcome
                assert (entry.payload, entry.pending > 0) == (event.number, bool(event.owed_by))
                assert (entry.failed, entry.rejected) == (outcome.failed, outcome.rejected)
                entry = entry.next
            assert entry is None

    @invariant()
    def both_agree_on_the_oldest_debt(self) -> None:
        debts = {who: entry.payload for who, entry in self.ledger.oldest_debts().items()}
        owed = {member.id: [event.number for event in self._owes(member)] for member in self.members.values()}
        assert debts == {who: min(numbers) for who, numbers in owed.items() if numbers}

    # --- the reference

    def _prefix(self, lane: Hashable) -> list[AdvanceItem]:
        items: list[AdvanceItem] = []
        for event in self.lanes[lane]:
            if event.owed_by:
                break
            items.append(AdvanceItem(event.number, event.outcome))
        return items

    def _owes(self, member: Member) -> list[Event]:
        return [*member.passed, *member.queue, *([member.on] if member.on else [])]

    def _pass(self, member: Member) -> None:
        event, member.on = member.on, None
        if event is None:
            return
        member.passed.add(event)
        if not member.unconfirmed.get(event):
            self._accept(member, event)

    def _accept(self, member: Member, event: Event) -> None:
        self._forget(member, event)
        event.say(member.id, "acked")

    def _forget(self, member: Member, event: Event) -> None:
        member.passed.discard(event)
        member.unconfirmed.pop(event, None)

    def _fail_on(self, member: Member) -> None:
        event, member.on = member.on, None
        if event is not None:
            self._forget(member, event)
            event.say(member.id, "failed")

    def _fail_queue(self, member: Member) -> None:
        queue, member.queue = member.queue, []
        for event in queue:
            event.say(member.id, "failed")

    def _fail_all(self, member: Member) -> None:
        self._fail_on(member)
        self._fail_queue(member)
        for event in [*member.passed]:
            self._forget(member, event)
            event.say(member.id, "failed")

    def _away(self, member: Member) -> None:
        del self.members[member.id]
        if member.passed:
            self.gone.append(member)

    def _online(self, pick: int) -> Member | None:
        online = [member for member in self.members.values() if member.online]
        return online[pick % len(online)] if online else None

    def _anybody(self, pick: int) -> Member | None:
        return [*self.members.values()][pick % len(self.members)] if self.members else None


class TestLedgerAgainstAReference(LedgerMachine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=[*HealthCheck])


@pytest.mark.parametrize("seed", range(40))
def test_a_long_life_agrees_with_the_reference(seed: int) -> None:
    chance = random.Random(seed)
    life = LedgerMachine()
    life.begin(2)
    # Lives differ in what is common in them: some have many that leave, some never confirm, some hardly read.
    weights = [chance.choice([1, 5, 25]) for _ in range(13)]

    def pick() -> int:
        return chance.randrange(6)

    def flip() -> bool:
        return chance.random() < 0.5

    steps: list[Callable[[], None]] = [
        lambda: life.join(chance.randrange(4)),
        lambda: life.admit(chance.choices(LANES, k=chance.randint(1, 4)), chance.random() < 0.1),
        lambda: life.take_next(pick(), chance.randint(1, 4)),
        life.all_take_next,
        lambda: life.fire(pick(), chance.randint(1, 3)),
        lambda: life.confirm(pick(), flip()),
        lambda: life.reject(pick()),
        lambda: life.go(pick(), chance.choice(["leave", "leave", "drop", "fail"])),
        lambda: life.lapse(pick(), flip()),
        lambda: life.stumble(pick(), [flip() for _ in range(chance.randrange(8))]),
        life.start_advance,
        lambda: life.end_advance(pick(), flip()),
        lambda: life.time_passes(chance.choice([0.5, 3.0])),
    ]
    for _ in range(1000):
        chance.choices(steps, weights)[0]()
        life.nothing_is_forgotten_or_kept_for_nothing()
        life.both_agree_on_every_event()
        life.both_agree_on_the_oldest_debt()


# --- what the reference does not know --------------------------------------------------------------------------------


def advance_all(ledger: Ledger) -> dict[Any, tuple[int, int, int]]:
    """Everything that is settled, told to the broker."""
    told = {}
    while (batch := ledger.take()) is not None:
        for payload, outcome in batch.items:
            told[payload] = (outcome.acked, outcome.failed, outcome.rejected)
        ledger.done(batch)
    return told


def test_an_expected_subscriber_owes_events_that_came_while_it_was_away() -> None:
    ledger = Ledger()
    ledger.expect(1, now=0.0)
    ledger.admit("raw", "a", None, 0.0)
    assert advance_all(ledger) == {}
    back = ledger.join(1, now=1.0)
    entry = ledger.next(back)
    assert entry is not None
    assert entry.raw == "raw"
    ledger.next(back)
    assert advance_all(ledger) == {"a": (1, 0, 0)}


def test_a_durable_subscriber_that_moves_is_not_late_though_its_events_are_old() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    one.durable = True
    for number in range(10):
        ledger.admit("raw", number, None, 0.0)
    for second in range(10):
        ledger.next(one)
        assert ledger.expire(now=6.0 * second, timeout=TIMEOUT) == []
    assert ledger.failed == 0


def test_a_durable_subscriber_that_is_stuck_fails_on_that_event_alone() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    one.durable = True
    for number in range(3):
        ledger.admit("raw", number, None, 0.0)
    ledger.next(one)
    ledger.expire(now=1.0, timeout=TIMEOUT)
    assert ledger.expire(now=10.9, timeout=TIMEOUT) == []
    assert ledger.expire(now=11.0, timeout=TIMEOUT) == [one]
    assert advance_all(ledger) == {0: (0, 1, 0)}
    back = ledger.join(1, now=11.0)
    assert [ledger.next(back) is not None for _ in range(3)] == [True, True, False]
    assert advance_all(ledger) == {1: (1, 0, 0), 2: (1, 0, 0)}


def test_a_durable_subscriber_whose_results_are_not_stored_fails_on_those_alone() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    one.durable = True
    ledger.admit("raw", "unstored", "lane", 0.0)
    ledger.next(one)
    assert ledger.bind(one) is not None
    ledger.next(one)
    ledger.expire(now=1.0, timeout=TIMEOUT)
    ledger.admit("raw", "later", "lane", 8.0)
    ledger.next(one)
    number = ledger.bind(one)
    assert number is not None
    ledger.next(one)
    assert ledger.expire(now=11.0, timeout=TIMEOUT) == []
    assert advance_all(ledger) == {"unstored": (0, 1, 0)}
    ledger.confirm([number])
    assert advance_all(ledger) == {"later": (1, 0, 0)}


def test_a_durable_subscriber_keeps_the_results_of_the_event_it_is_on_though_older_ones_are_late() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    one.durable = True
    for payload in ("late", "current"):
        ledger.admit("raw", payload, "lane", 0.0)
    ledger.next(one)
    ledger.bind(one)
    ledger.expire(now=1.0, timeout=TIMEOUT)
    ledger.next(one)
    number = ledger.bind(one)
    assert number is not None
    ledger.expire(now=5.0, timeout=TIMEOUT)
    assert ledger.expire(now=11.0, timeout=TIMEOUT) == []
    assert advance_all(ledger) == {"late": (0, 1, 0)}
    ledger.next(one)
    assert advance_all(ledger) == {}
    ledger.confirm([number])
    assert advance_all(ledger) == {"current": (1, 0, 0)}


def test_one_who_is_away_fails_on_what_is_too_old_and_keeps_its_place() -> None:
    ledger = Ledger()
    ledger.expect(1, now=0.0)
    ledger.admit("raw", "old", None, 0.0)
    ledger.admit("raw", "new", None, 5.0)
    assert ledger.expire(now=10.0, timeout=TIMEOUT) == []
    assert advance_all(ledger) == {"old": (0, 1, 0)}
    back = ledger.join(1, now=11.0)
    assert ledger.next(back) is not None
    ledger.next(back)
    assert advance_all(ledger) == {"new": (1, 0, 0)}


def test_a_durable_subscriber_that_fails_owes_what_comes_later() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    one.durable = True
    ledger.admit("raw", "before", None, 0.0)
    ledger.fail(one)
    ledger.admit("raw", "after", None, 0.0)
    assert advance_all(ledger) == {"before": (0, 1, 0)}
    assert [*ledger.oldest_debts()] == [1]


def test_where_commits_are_cumulative_an_unhandled_event_comes_alone() -> None:
    ledger = Ledger()
    ledger.cuts_at_failures = True
    ledger.admit("raw", "nobody there", None, 0.0)
    good, bad = ledger.join(1, now=0.0), ledger.join(2, now=0.0)
    for number in range(4):
        ledger.admit("raw", number, None, 0.0)
    for _ in range(5):
        ledger.next(good)
    ledger.next(bad)
    ledger.next(bad)
    ledger.lapse(bad, blamed=True, redeliveries=0)
    back = ledger.join(2, now=0.0)
    for _ in range(3):
        ledger.next(back)
    batches = []
    while (batch := ledger.take()) is not None:
        batches.append(([item.broker_payload for item in batch.items], batch.is_unhandled))
        ledger.done(batch)
    assert batches == [(["nobody there"], True), ([0], False), ([1], True), ([2, 3], False)]


def test_numbers_that_are_confirmed_are_not_kept() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    for number in range(1000):
        ledger.admit("raw", number, None, 0.0)
        ledger.next(one)
        bound = ledger.bind(one)
        assert bound is not None
        ledger.confirm([bound])
        advance_all(ledger)
    assert len(ledger._results) < 100
    assert len(ledger._makers) < 100
    ledger.trim()
    assert len(ledger.items) == 1


def test_an_event_whose_results_are_stored_already_is_settled_at_once() -> None:
    ledger = Ledger()
    one = ledger.join(1, now=0.0)
    ledger.admit("raw", "again", None, 0.0, True)
    assert advance_all(ledger) == {"again": (1, 0, 0)}
    assert ledger.next(one) is None
    assert ledger.duplicates == 1
