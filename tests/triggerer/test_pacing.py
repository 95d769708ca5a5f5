"""A watcher that fails is tried again ever later, and one whose condition stays true is held back."""

import pytest

from stannel.triggerer.pacing import Pace, pause_after_failure


def test_pauses_double_up_to_the_longest_and_chance_only_shortens_them() -> None:
    assert [pause_after_failure(attempts, 1.0, 60.0) for attempts in (1, 2, 3, 7, 1000)] == [1.0, 2.0, 4.0, 60.0, 60.0]
    assert pause_after_failure(3, 0.0, 60.0) == 2.0
    assert 2.0 < pause_after_failure(3, 0.3, 60.0) < 4.0


def test_the_same_event_at_once_after_every_start_is_held_back_ever_longer() -> None:
    pace = Pace(patience=3, longest=10.0)
    pauses = []
    for _ in range(9):
        pace.fired(b"the file is there", 0.1)
        pauses.append(pace.pause)
    assert pauses == [0, 0, 0, 1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(("event", "after"), [(b"another", 0.1), (b"same", 5.0)])
def test_other_news_and_news_that_took_their_time_are_not(event: bytes, after: float) -> None:
    pace = Pace(patience=1, longest=10.0)
    for _ in range(5):
        pace.fired(b"same", 0.1)
    assert pace.is_held_back
    pace.fired(event, after)
    assert (pace.is_held_back, pace.pause) == (False, 0.0)
