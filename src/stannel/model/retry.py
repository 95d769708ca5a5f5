"""How long a failed task waits before it is tried again."""

from stannel.model.dag import Retry

_ONE_DAY = 86_400.0


def retry_delay(retry: Retry, try_number: int, jitter: float) -> float:
    """Seconds until the next try, given which try just failed (the first is 1) and a jitter from 0 up to 1.

    A growing delay is spread between once and twice its size, so that tasks that failed together do not all come back
    together, and never exceeds `max_delay` or a day. A fixed delay is kept as the author wrote it.
    """
    delay = max(retry.delay, 0.0)
    if not retry.exponential:
        return delay
    limit = _ONE_DAY if retry.max_delay is None else min(max(retry.max_delay, 0.0), _ONE_DAY)
    factor = retry.exponential if retry.exponential > 1 else 2.0
    high = min(2 * _grown(delay, factor, try_number - 1, limit), limit)
    # At the limit the spread goes downwards: there, too, simultaneous failures must not meet again.
    return max(high * (1 + jitter) / 2, min(delay, limit))


def _grown(delay: float, factor: float, times: int, limit: float) -> float:
    for _ in range(times):
        # Stopping at the limit keeps a large number of tries from overflowing.
        if not 0 < delay < limit:
            break
        delay *= factor
    return delay
