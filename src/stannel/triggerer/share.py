"""How many triggers one triggerer should hold: an even share, reached gradually and without passing any to and fro.

A share follows from the load and from the capacities alone, never from what the others hold at the moment, so that two
triggerers cannot chase each other.
"""

from collections.abc import Collection, Sequence

import msgspec

from stannel.model.trigger import EVERY_QUEUE

# Below this distance from its share nobody is moved: a restart of triggers costs more than the imbalance.
_SLACK, _SLACK_PART = 4, 20
_FEWEST_MOVED, _PART_MOVED = 25, 4


class Peer(msgspec.Struct, frozen=True):
    """Another triggerer at work. `queues` None: it runs the triggers that have no queue."""

    capacity: int
    running: int
    queues: frozenset[str] | None = None

    def can_replace(self, queues: Collection[str] | None) -> bool:
        """Whether it runs everything that one with these queues runs."""
        if self.queues is not None and EVERY_QUEUE in self.queues:
            return True
        if self.queues is None or queues is None:
            return self.queues is None and queues is None
        return self.queues.issuperset(queues)


def fair_share(load: int, capacity: int, peers: Sequence[Peer]) -> int:
    """How many of `load` triggers belong here: in proportion to capacity, never more than it."""
    total = capacity + sum(peer.capacity for peer in peers)
    return min(capacity, -(-load * capacity // total))


def to_claim(load: int, mine: int, capacity: int, peers: Sequence[Peer], *, left_over: bool = False) -> int:
    """How many more may be taken now. `left_over`: the others had their chance, so what is there may be taken."""
    limit = capacity if left_over or not peers else fair_share(load, capacity, peers)
    return max(0, limit - mine)


def to_release(load: int, mine: int, capacity: int, peers: Sequence[Peer]) -> int:
    """How many should be given away now, so that a triggerer that has too few finds them."""
    fair = fair_share(load, capacity, peers)
    surplus = mine - fair
    if not peers or surplus <= slack(fair):
        return 0
    wanted = sum(max(0, fair_share_of(peer, load, capacity, peers) - peer.running) for peer in peers)
    return min(surplus, wanted, max(_FEWEST_MOVED, surplus // _PART_MOVED))


def fair_share_of(peer: Peer, load: int, capacity: int, peers: Sequence[Peer]) -> int:
    """The share of one of the peers."""
    total = capacity + sum(one.capacity for one in peers)
    return min(peer.capacity, -(-load * peer.capacity // total))


def is_left_over(load: int, mine: int, peers: Sequence[Peer]) -> bool:
    """Whether triggers are held by nobody, as far as the last words of the others tell."""
    return load > mine + sum(peer.running for peer in peers)


def slack(fair: int) -> int:
    return max(_SLACK, fair // _SLACK_PART)
