"""Which events make up which runs: a table for each policy, and what holds for all of them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.asset import AllOf, AnyOf, Condition, Consumption, Grouping, ThisAsset, Update, is_met
from stannel.scheduler.consume import Decision, Past, Waiting, consume

SECOND = 1_000_000
A, B = ThisAsset("a", "a"), ThisAsset("b", "b")
EACH = Consumption(grouping=Grouping.EACH)
WINDOW = Consumption(grouping=Grouping.WINDOW, seconds=10)
BURST = Consumption(grouping=Grouping.BURST, seconds=5)


def events(text: str) -> list[Waiting]:
    """`a0 b3 a7/k`: events of the assets a and b that arrived after so many seconds, the last one with the key k."""
    found = []
    for number, word in enumerate(text.split()):
        place, _, key = word.partition("/")
        asset, moment = place[0], float(place[1:])
        found.append(Waiting(number, int(moment * SECOND), Update(asset, asset), key or None))
    return found


def decide(
    text: str,
    policy: Consumption | None,
    *,
    now: float = 1000,
    condition: Condition = A,
    room: int = 100,
    recent: tuple[float, ...] = (),
    busy: frozenset[str | None] = frozenset(),
) -> Decision:
    past = Past(room=room, recent=[int(one * SECOND) for one in recent], busy_keys=busy)
    return consume(events(text), condition, policy, now=int(now * SECOND), past=past)


def runs(decision: Decision) -> list[list[int]]:
    return [[one.event for one in group.events] for group in decision.runs]


@pytest.mark.parametrize(
    ("text", "policy", "condition", "expected"),
    [
        # Airflow's rule: everything that waits, once the condition is met.
        ("a0 a1 a2", None, A, [[0, 1, 2]]),
        ("a0 a1", None, AllOf((A, B)), []),
        ("a0 a1 b2 a3", None, AllOf((A, B)), [[0, 1, 2, 3]]),
        ("b0", None, AnyOf((A, B)), [[0]]),
        ("", None, A, []),
        ("a0 a1 a2 a3 a4", Consumption(most=2), A, [[0, 1], [2, 3], [4]]),
        # A run for each event, or for as few as meet the condition.
        ("a0 a1 a2", EACH, A, [[0], [1], [2]]),
        ("a0 a1 b2 b3", EACH, AllOf((A, B)), [[0, 1, 2]]),
        ("a0 b1 b2 a3", EACH, AllOf((A, B)), [[0, 1], [2, 3]]),
        ("a0 b0", EACH, AnyOf((A, B)), [[0], [1]]),
        # Windows open with an event, not with a look.
        ("a0 a10 a10.1 a30", WINDOW, A, [[0, 1], [2], [3]]),
        ("a0 a50 b60 a61", WINDOW, AllOf((A, B)), [[0, 1, 2]]),
        ("a0 a1 a2 a3", Consumption(grouping=Grouping.WINDOW, seconds=10, most=3), A, [[0, 1, 2], [3]]),
        # A pause ends a burst.
        ("a0 a4 a8 a14 a15", BURST, A, [[0, 1, 2], [3, 4]]),
        ("a0 a4 a8 a12 a16", Consumption(grouping=Grouping.BURST, seconds=5, longest=9), A, [[0, 1, 2], [3, 4]]),
        # Keys have lanes of their own; of an ordered key only the first run may be made.
        ("a0/x a1/y a2/x", Consumption(grouping=Grouping.EACH, by_key=True, ordered=False), A, [[0], [1], [2]]),
        ("a0/x a1/y a2/x", Consumption(grouping=Grouping.EACH, by_key=True), A, [[0], [1]]),
        ("a0/x b1/y b2/x", Consumption(grouping=Grouping.EACH, by_key=True), AllOf((A, B)), [[0, 2]]),
        # The newest of each asset.
        ("a0 b1 a2 b3", Consumption(latest=True), AnyOf((A, B)), [[2, 3]]),
    ],
)
def test_the_runs_that_events_make(
    text: str, policy: Consumption | None, condition: Condition, expected: list[list[int]]
) -> None:
    assert runs(decide(text, policy, condition=condition)) == expected


def test_what_is_superseded_is_told() -> None:
    [group] = decide("a0 b1 a2", Consumption(latest=True), condition=AnyOf((A, B))).runs
    assert [one.event for one in group.superseded] == [0]
    assert sorted(one.event for one in group.everything) == [0, 1, 2]


def test_a_window_that_is_open_is_looked_at_when_it_closes() -> None:
    decision = decide("a0", WINDOW, now=9)
    assert (runs(decision), decision.look_at) == ([], 10 * SECOND + 1)
    assert decide("a0", WINDOW, now=10.000001).look_at is None


def test_a_window_whose_condition_is_not_met_waits_for_events_and_not_for_time() -> None:
    assert decide("a0", WINDOW, now=500, condition=AllOf((A, B))) == Decision([], None, False)


def test_without_room_events_wait_for_the_end_of_a_run() -> None:
    decision = decide("a0 a1 a2", EACH, room=1)
    assert (runs(decision), decision.at_end_of_run, decision.look_at) == ([[0]], True, None)


def test_a_busy_key_waits_and_the_others_do_not() -> None:
    policy = Consumption(grouping=Grouping.EACH, by_key=True)
    decision = decide("a0/x a1/y", policy, busy=frozenset({"x"}))
    assert (runs(decision), decision.at_end_of_run) == ([[1]], True)


@pytest.mark.parametrize(
    ("recent", "made", "look_at"),
    [((), 2, 1060), ((999.0,), 1, 1059), ((950.0, 970.0), 0, 1010), ((900.0, 930.0), 2, 1060), ((980.0,) * 5, 0, 1040)],
)
def test_a_rate_lets_only_so_many_runs_through(recent: tuple[float, ...], made: int, look_at: float) -> None:
    policy = Consumption(grouping=Grouping.EACH, rate_runs=2, rate_seconds=60)
    decision = decide("a0 a1 a2 a3", policy, recent=recent)
    assert (len(decision.runs), decision.look_at) == (made, look_at * SECOND)


def test_a_rate_that_is_not_used_up_needs_no_second_look() -> None:
    decision = decide("a0", Consumption(grouping=Grouping.EACH, rate_runs=2, rate_seconds=60))
    assert (len(decision.runs), decision.look_at) == (1, None)


_policies = st.builds(
    Consumption,
    grouping=st.sampled_from([Grouping.EACH, Grouping.WINDOW, Grouping.BURST]),
    most=st.none() | st.integers(1, 4),
    seconds=st.integers(0, 5),
    longest=st.none() | st.integers(0, 8),
    latest=st.booleans(),
    by_key=st.booleans(),
    ordered=st.just(False),
)
_conditions = st.sampled_from([A, AnyOf((A, B)), AllOf((A, B)), AllOf((A, AnyOf((A, B))))])
_waiting = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([None, "x", "y"])), max_size=25
).map(
    lambda rows: [
        Waiting(number, moment * SECOND, Update(asset, asset), key) for number, (asset, moment, key) in enumerate(rows)
    ]
)


@given(_waiting, _conditions, _policies, st.lists(st.integers(0, 60), max_size=8))
def test_runs_do_not_depend_on_when_somebody_looks(
    waiting: list[Waiting], condition: Condition, policy: Consumption, looks: list[int]
) -> None:
    at_once = consume(waiting, condition, policy, now=10**12, past=Past(room=10**6)).runs
    left, found = list(waiting), []
    for moment in [*sorted(one * SECOND + SECOND // 2 for one in looks), 10**12]:
        seen = [one for one in left if one.arrived <= moment]
        for group in consume(seen, condition, policy, now=moment, past=Past(room=10**6)).runs:
            found.append([one.event for one in group.everything])
            left = [one for one in left if one not in group.everything]
    assert sorted(map(sorted, found)) == sorted(sorted(one.event for one in group.everything) for group in at_once)


@given(_waiting, _conditions, _policies, st.integers(0, 5))
def test_every_run_meets_the_condition_and_no_event_is_used_twice(
    waiting: list[Waiting], condition: Condition, policy: Consumption, room: int
) -> None:
    decision = consume(waiting, condition, policy, now=10**12, past=Past(room=room))
    used = [one.event for group in decision.runs for one in group.everything]
    assert len(used) == len(set(used))
    assert len(decision.runs) <= room
    assert all(is_met(condition, [one.update for one in group.events]) for group in decision.runs)
    assert all(first.due <= second.due for first, second in pairwise(decision.runs))


@given(_waiting, _conditions, _policies, st.integers(0, 60))
def test_a_decision_that_names_a_moment_decides_more_at_that_moment(
    waiting: list[Waiting], condition: Condition, policy: Consumption, now: int
) -> None:
    decision = consume(waiting, condition, policy, now=now * SECOND, past=Past(room=10**6))
    if decision.look_at is not None:
        assert decision.look_at > now * SECOND
        later = consume(waiting, condition, policy, now=decision.look_at, past=Past(room=10**6))
        assert len(later.runs) > len(decision.runs)
