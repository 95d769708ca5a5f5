"""Everybody gets an even share, reached step by step, and nothing is passed to and fro."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.triggerer.share import Peer, fair_share, is_left_over, slack, to_claim, to_release

NOBODY: list[Peer] = []


@pytest.mark.parametrize(
    ("load", "capacity", "peers", "share"),
    [
        (0, 1000, [], 0),
        (10, 1000, [], 10),
        (5000, 1000, [], 1000),
        (10, 1000, [Peer(1000, 0)], 5),
        (11, 1000, [Peer(1000, 0)], 6),
        (900, 1000, [Peer(500, 0)], 600),
        (5000, 1000, [Peer(500, 500)], 1000),
        (3000, 1000, [Peer(1000, 0), Peer(1000, 0)], 1000),
    ],
)
def test_a_share_is_in_proportion_to_capacity(load: int, capacity: int, peers: list[Peer], share: int) -> None:
    assert fair_share(load, capacity, peers) == share


@pytest.mark.parametrize(
    ("load", "mine", "left_over", "claim"),
    [
        (100, 0, False, 50),
        (100, 50, False, 0),
        (100, 60, False, 0),
        (100, 50, True, 950),
        (100, 1000, True, 0),
    ],
)
def test_one_takes_its_share_and_what_others_leave(load: int, mine: int, left_over: bool, claim: int) -> None:
    assert to_claim(load, mine, 1000, [Peer(1000, 0)], left_over=left_over) == claim


def test_alone_one_takes_what_fits() -> None:
    assert to_claim(7000, 10, 1000, NOBODY) == 990


def test_nothing_is_released_to_nobody() -> None:
    assert to_release(1000, 1000, 1000, NOBODY) == 0


def test_nothing_is_released_to_those_who_have_their_share() -> None:
    assert to_release(100, 60, 1000, [Peer(1000, 50)]) == 0


def test_a_newcomer_is_given_a_bounded_number_at_a_time() -> None:
    assert to_release(1000, 1000, 1000, [Peer(1000, 0)]) == 125
    assert to_release(60, 60, 1000, [Peer(1000, 0)]) == 25


@pytest.mark.parametrize(
    ("theirs", "mine", "can"),
    [
        (None, None, True),
        (None, ["a"], False),
        ({"a"}, None, False),
        ({"a"}, ["a"], True),
        ({"a", "b"}, ["a"], True),
        ({"a"}, ["a", "b"], False),
    ],
)
def test_only_one_that_serves_all_our_queues_can_take_our_triggers(
    theirs: set[str] | None, mine: list[str] | None, can: bool
) -> None:
    assert Peer(1, 0, None if theirs is None else frozenset(theirs)).can_replace(mine) is can


class Cluster:
    """Triggerers that take turns, as their heartbeats do; whoever releases something wakes the others."""

    def __init__(self, load: int, capacities: list[int], held: list[int]) -> None:
        self.load, self.capacities, self.held = load, capacities, held
        self.left_over = [0] * len(capacities)

    def beat(self) -> None:
        for index, capacity in enumerate(self.capacities):
            peers, mine = self.peers(index), self.held[index]
            is_left = is_left_over(self.load, mine, peers)
            self.left_over[index] = self.left_over[index] + 1 if is_left else 0
            self.claim(index, left_over=self.left_over[index] > 1)
            if not self.left_over[index]:
                self.held[index] -= to_release(self.load, self.held[index], capacity, peers)
                for other in range(len(self.capacities)):
                    self.claim(other)

    def claim(self, index: int, *, left_over: bool = False) -> None:
        room = to_claim(self.load, self.held[index], self.capacities[index], self.peers(index), left_over=left_over)
        self.held[index] += min(self.load - sum(self.held), room)

    def peers(self, index: int) -> list[Peer]:
        both = zip(self.capacities, self.held, strict=True)
        return [Peer(capacity, held) for place, (capacity, held) in enumerate(both) if place != index]


@given(
    capacities=st.lists(st.integers(1, 2000), min_size=1, max_size=6),
    load=st.integers(0, 6000),
    start=st.lists(st.integers(0, 2000), min_size=6, max_size=6),
)
def test_any_number_of_triggerers_comes_to_rest_near_its_shares(
    capacities: list[int], load: int, start: list[int]
) -> None:
    held, rest = [], load
    for capacity, wish in zip(capacities, start, strict=False):
        held.append(min(capacity, wish, rest))
        rest -= held[-1]
    cluster = Cluster(load, capacities, held)
    for _ in range(60):
        cluster.beat()
    at_rest = list(held)
    cluster.beat()
    # Nothing that could run is left lying, nobody has more than fits, and nobody moves any more.
    assert sum(held) == min(load, sum(capacities))
    assert all(mine <= capacity for mine, capacity in zip(held, capacities, strict=True))
    assert held == at_rest
    for index, capacity in enumerate(capacities):
        peers = [Peer(other, 0) for place, other in enumerate(capacities) if place != index]
        fair = fair_share(load, capacity, peers)
        assert held[index] <= fair + slack(fair) + len(capacities)
