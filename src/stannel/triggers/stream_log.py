"""One log that many read at their own pace, so that giving an event to a thousand subscribers is one append."""

import sys
from typing import Generic, TypeVar

from stannel.triggers.stream_bell import Waiter

# Below this many items a log is not worth trimming.
_FEW = 64


class PollFailure:
    """What a subscriber finds instead of further events: the error that ended it."""

    __slots__ = ("_traceback", "exc")

    def __init__(self, exc: BaseException) -> None:
        self.exc = exc
        self._traceback = exc.__traceback__

    def error(self) -> BaseException:
        """To be raised. Many raise the same error, and each would add its lines to the traceback of all."""
        return self.exc.with_traceback(self._traceback)


class Reader:
    """How far one subscriber has read. `at` is the place in the log of what it reads next."""

    __slots__ = ("at", "failure", "id", "waiter")

    def __init__(self, id: int, at: int) -> None:  # noqa: A002 - a subscriber has an id
        self.id = id
        self.at = at
        self.waiter: Waiter | None = None
        self.failure: PollFailure | None = None

    @property
    def floor(self) -> int:
        """The oldest place that this reader may still ask for."""
        return self.at


T = TypeVar("T")
R = TypeVar("R", bound=Reader)


class Log(Generic[T, R]):
    """Items from `base` on; what every reader has read is dropped.

    Delivery is the hottest path of a stream, so its loops use `items` and `base` themselves. `items` is always the same
    list. Nobody has more to read than it holds: while it is shorter than `attention`, it may grow without another look.
    Nobody reads: that is always worth a look.
    """

    __slots__ = ("attention", "base", "items", "limit", "readers")

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.items: list[T] = []
        self.base = 0
        self.limit = limit
        self.readers: dict[int, R] = {}
        self.attention = 0

    @property
    def end(self) -> int:
        """Where the next item will be."""
        return self.base + len(self.items)

    def add(self, reader: R) -> None:
        self.readers[reader.id] = reader
        self._attend()

    def remove(self, reader: R) -> None:
        """Nothing is kept for this reader any more, and there is nothing left that it could read."""
        if self.readers.get(reader.id) is reader:
            del self.readers[reader.id]
            self._attend()
        reader.at = sys.maxsize

    def clear(self) -> None:
        """Drop everything. Only when all have read it."""
        self.base += len(self.items)
        self.items.clear()

    def trim(self) -> None:
        """Drop what every reader has read."""
        read = min((reader.floor for reader in self.readers.values()), default=self.end) - self.base
        if read > 0:
            del self.items[:read]
            self.base += read
        self._attend()

    def _attend(self) -> None:
        # Twice what is left: a slow reader then costs each append only a share of a walk over all.
        self.attention = min(max(_FEW, 2 * len(self.items)), self.limit) if self.readers else 0

    def unread(self, reader: R) -> list[T]:
        return self.items[max(0, reader.at - self.base) :]

    def lagging(self, limit: int) -> list[R]:
        """Readers that have `limit` items or more still to read."""
        last = self.end - limit
        return [reader for reader in self.readers.values() if reader.at <= last]
