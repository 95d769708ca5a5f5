"""No end of a wait is lost, whatever the store says, and one that cannot be stored harms no other."""

import asyncio
from collections.abc import Sequence

import pytest

from stannel.errors import StoreUnavailable
from stannel.model.trigger import Event, Failure, Firing
from stannel.triggerer.ends import End, Ends


def firing(number: int, payload: object = None) -> Firing:
    return Firing(id=number, epoch=1, what=Event(payload=payload))


class Shelf:
    """A store that writes down what it is given, and refuses what a test says it refuses."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.kept: dict[int, Firing] = {}
        self.owners: list[str] = []
        self.poison: set[int] = set()
        self.hopeless: set[int] = set()
        self.away = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.results: dict[int, bool | None] = {}
        self.ends = Ends(self.settle, self.stored)

    async def settle(self, owner: str, firings: Sequence[Firing]) -> list[bool]:
        await self.gate.wait()
        self.batches.append([one.id for one in firings])
        if self.away:
            self.away -= 1
            raise StoreUnavailable("sqlite:///x", "it is restarted")
        bad = {one.id for one in firings if one.id in self.poison and isinstance(one.what, Event)}
        if bad or self.hopeless.intersection(one.id for one in firings):
            raise ValueError("a lone surrogate")
        self.owners.append(owner)
        fresh = [one.id not in self.kept for one in firings]
        for one in firings:
            self.kept.setdefault(one.id, one)
        return fresh

    def stored(self, results: Sequence[tuple[End, bool | None]]) -> None:
        self.results.update({end.firing.id: ok for end, ok in results})


@pytest.fixture
async def shelf() -> Shelf:
    return Shelf()


async def test_what_arrives_while_a_batch_is_stored_makes_up_the_next(shelf: Shelf) -> None:
    shelf.gate.clear()
    shelf.ends.add("me", firing(1))
    await asyncio.sleep(0)
    for number in range(2, 6):
        shelf.ends.add("me", firing(number))
    assert shelf.ends.pending == 5
    shelf.gate.set()
    await shelf.ends.drained()
    assert shelf.batches == [[1], [2, 3, 4, 5]]
    assert shelf.ends.pending == 0
    assert shelf.results == dict.fromkeys(range(1, 6), True)


async def test_a_refused_end_is_told_as_refused(shelf: Shelf) -> None:
    shelf.ends.add("me", firing(1))
    await shelf.ends.drained()
    shelf.ends.add("me", firing(1))
    await shelf.ends.drained()
    assert shelf.results == {1: False}


async def test_ends_outlast_a_store_that_is_away(shelf: Shelf) -> None:
    shelf.away = 3
    shelf.ends.add("me", firing(1))
    shelf.ends.add("me", firing(2))
    await shelf.ends.drained()
    assert sorted(shelf.kept) == [1, 2]
    assert shelf.ends.trouble is None


async def test_an_end_that_spoils_its_batch_fails_alone(shelf: Shelf) -> None:
    shelf.poison = {7}
    for number in range(1, 17):
        shelf.ends.add("me", firing(number))
    await shelf.ends.drained()
    assert sorted(shelf.kept) == list(range(1, 17))
    assert all(isinstance(one.what, Event) for one in shelf.kept.values() if one.id != 7)
    failure = shelf.kept[7].what
    assert isinstance(failure, Failure)
    assert "could not be stored (ValueError: a lone surrogate)" in failure.error


async def test_an_end_that_cannot_be_stored_in_any_form_is_told_so(shelf: Shelf) -> None:
    shelf.hopeless = {2}
    for number in (1, 2, 3):
        shelf.ends.add("me", firing(number))
    await shelf.ends.drained()
    assert shelf.results == {1: True, 2: None, 3: True}


async def test_each_end_is_stored_under_the_name_it_came_with(shelf: Shelf) -> None:
    shelf.gate.clear()
    for owner, number in (("old", 1), ("old", 2), ("new", 3), ("old", 4)):
        shelf.ends.add(owner, firing(number))
    shelf.gate.set()
    await shelf.ends.drained()
    assert shelf.batches == [[1, 2], [3], [4]]
    assert shelf.owners == ["old", "new", "old"]
