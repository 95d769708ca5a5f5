"""What brokers and authors meet of a shared stream: the producer they write, and the errors a subscriber may see."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Any, ClassVar

from stannel.errors import StannelError
from stannel.triggers.stream_entries import AdvanceItem


class AckTimeout(Exception):
    """This subscriber did not finish an event in time: it is still on it, or its results were not stored."""


class SubscriberOverflow(Exception):
    """This subscriber has read too slowly; what it has not read is not kept for it."""


class PollTerminated(Exception):
    """The stream ended without an error, though streams are to last as long as somebody reads them."""


class EventNotHandled(StannelError):
    """Somebody failed on an event and its producer has no other place for it; the stream ends, the broker repeats."""

    def __init__(self, item: AdvanceItem) -> None:
        super().__init__(
            f"the event at {item.broker_payload!r} was not handled ({item.outcome.failed} subscribers failed on it), "
            "and its producer has no dead_letter(); the stream ends before it, and the broker delivers it again"
        )
        self.item = item


class SharedStreamProducer(ABC):
    """The broker's side of a stream: it reads events, and tells the broker what has become of them.

    One object serves one poll.
    """

    commits_cumulatively: ClassVar[bool] = False
    """Whether telling the broker about an event covers all before it in the lane. An event that somebody failed on then
    comes alone, and only after `dead_letter` has taken it: no commit ever passes an event that was not handled."""

    @abstractmethod
    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Connect, and yield pairs: a raw event, and what is needed to advance past it. For ever, or raise."""

    @abstractmethod
    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Tell the broker about settled events: the next ones of one lane, in order, without a gap; never none.

        The next batch of the lane comes after this call has returned. When it raises, the stream ends, unless
        `may_retry_advance` says that the same events may be given again.
        """

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        """Events of equal lanes advance in the order they came; lanes do not wait for one another. Must be quick."""
        return None

    def may_retry_advance(self, error: Exception) -> bool:
        """Whether `advance` may be called again with these events after it has raised this error."""
        return False

    async def dead_letter(self, item: AdvanceItem) -> None:
        """Keep an event elsewhere that was not handled, so that a commit may pass it. Raising ends the stream."""
        raise EventNotHandled(item)

    def get_event_identity(self, broker_payload: Any) -> str | None:
        """A text that is equal whenever the broker delivers this event, and no other event has. None: it has none."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - a hook
        """Give back what `open_stream` took; called once, when the poll has ended and nothing is left to advance."""
