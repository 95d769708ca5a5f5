"""When a watcher that ended begins again: at once, unless it failed, or fires without end. Nothing here has a clock."""

_FIRST_PAUSE = 0.5
# Whoever fires sooner than this after its start found its condition met when it came.
_AT_ONCE = 1.0


def pause_after_failure(attempts: int, chance: float, longest: float) -> float:
    """Seconds until the next attempt: twice as long each time, and shortened by chance so that many do not meet."""
    return float(min(longest, _FIRST_PAUSE * 2 ** min(attempts, 30))) * (0.5 + chance / 2)


class Pace:
    """Tells a condition that is still true from news: the same event, each time as soon as somebody looks."""

    __slots__ = ("_last", "_longest", "_patience", "_repeats")

    def __init__(self, patience: int, longest: float) -> None:
        self._patience, self._longest = patience, longest
        self._last: bytes | None = None
        self._repeats = 0

    def fired(self, event: bytes, after: float) -> None:
        """The first event of a run, so many seconds after its start."""
        is_repeated = event == self._last and after < _AT_ONCE
        self._repeats = self._repeats + 1 if is_repeated else 0
        self._last = event

    @property
    def is_held_back(self) -> bool:
        return self._repeats >= self._patience

    @property
    def pause(self) -> float:
        """Seconds until it may begin again."""
        if not self.is_held_back:
            return 0.0
        return float(min(self._longest, 2 ** min(self._repeats - self._patience, 30)))
