import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.dag import Retry
from stannel.model.retry import retry_delay

DAY = 86_400.0


@pytest.mark.parametrize(
    ("retry", "try_number", "jitter", "expected"),
    [
        (Retry(delay=300), 1, 0.0, 300),
        (Retry(delay=300), 7, 0.9, 300),
        (Retry(delay=300, max_delay=10), 1, 0.0, 300),
        (Retry(delay=2 * DAY), 1, 0.5, 2 * DAY),
        (Retry(delay=10, exponential=1), 1, 0.0, 10),
        (Retry(delay=10, exponential=1), 1, 0.5, 15),
        (Retry(delay=10, exponential=1), 2, 0.0, 20),
        (Retry(delay=10, exponential=1), 4, 0.25, 100),
        (Retry(delay=10, exponential=3), 3, 0.0, 90),
        (Retry(delay=10, exponential=1.5), 2, 0.0, 15),
        (Retry(delay=10, exponential=2, max_delay=60), 9, 0.0, 30),
        (Retry(delay=10, exponential=2, max_delay=60), 9, 0.5, 45),
        (Retry(delay=60, exponential=2, max_delay=60), 1, 0.0, 60),
        (Retry(delay=60, exponential=2, max_delay=0), 1, 0.5, 0),
        (Retry(delay=3600, exponential=2), 1_000_000, 0.5, 0.75 * DAY),
        (Retry(delay=0, exponential=2), 1_000_000, 0.5, 0),
        (Retry(delay=-5), 1, 0.0, 0),
    ],
)
def test_the_delay_is_what_the_author_asked_for(retry: Retry, try_number: int, jitter: float, expected: float) -> None:
    assert retry_delay(retry, try_number, jitter) == pytest.approx(expected)


growing = st.builds(
    Retry,
    delay=st.floats(0.1, 100_000),
    exponential=st.floats(1, 10),
    max_delay=st.none() | st.floats(1, 200_000),
)
tries = st.integers(1, 500)
jitters = st.floats(0, 1, exclude_max=True)


@given(growing, tries, jitters)
def test_a_growing_delay_stays_within_its_limits(retry: Retry, try_number: int, jitter: float) -> None:
    limit = min(retry.max_delay or DAY, DAY)
    assert min(retry.delay, limit) <= retry_delay(retry, try_number, jitter) <= limit


@given(growing, tries, jitters)
def test_a_later_try_never_waits_less(retry: Retry, try_number: int, jitter: float) -> None:
    assert retry_delay(retry, try_number, jitter) <= retry_delay(retry, try_number + 1, jitter)


@given(growing, tries)
def test_simultaneous_failures_spread_unless_the_delay_is_already_the_limit(retry: Retry, try_number: int) -> None:
    limit = min(retry.max_delay or DAY, DAY)
    spread = retry_delay(retry, try_number, 0.99) - retry_delay(retry, try_number, 0.0)
    assert spread > 0 or retry.delay >= 0.99 * limit


@given(growing, tries, jitters)
def test_equal_arguments_give_equal_delays(retry: Retry, try_number: int, jitter: float) -> None:
    assert retry_delay(retry, try_number, jitter) == retry_delay(retry, try_number, jitter)
