"""The seam through which triggers ask the engine; whoever runs triggers installs what answers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from stannel.errors import StannelError
from stannel.protocol.replies import ErrorResponse, Reply
from stannel.protocol.requests import Request

T = TypeVar("T")

# However impatient its author, a trigger leaves the engine this much air between two questions.
_LEAST_INTERVAL = 0.05


class Asker(Protocol):
    """Carries questions to the engine, and its news back."""

    async def ask(self, request: Request) -> Reply | None:
        """The engine's answer, which may be an `ErrorResponse`. None: it was done, and there is nothing to say."""

    async def run_ended(self, dag_ids: Collection[str], timeout: float) -> bool:  # noqa: ASYNC109 - as below
        """True as soon as a run of one of these DAGs ends after the call; False when `timeout` seconds have passed."""


class NoTriggerer(StannelError, RuntimeError):
    """A trigger asked the engine where no triggerer runs it; nothing was asked."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs the engine, which triggers can reach only while a triggerer runs them.")


class EngineRefused(StannelError):
    """The engine did not grant a request of a trigger. `error` is its code, `detail` what it said about it."""

    def __init__(self, request: str, error: str, detail: dict[str, Any]) -> None:
        about = ", ".join(f"{name} {value!r}" for name, value in detail.items())
        reason = detail.get("message") or detail.get("detail") or f"{error}{f' ({about})' if about else ''}"
        super().__init__(f"The engine refused {request}: {reason}")
        self.error, self.detail = error, detail

    @property
    def is_not_found(self) -> bool:
        """What was asked about does not exist."""
        return self.detail.get("status_code") == 404 or self.error.endswith("NOT_FOUND")


_asker: Asker | None = None


@contextmanager
def use_asker(asker: Asker | None) -> Iterator[None]:
    """Let triggers ask through this while the block runs."""
    global _asker
    outer, _asker = _asker, asker
    try:
        yield
    finally:
        _asker = outer


async def ask(request: Request) -> Any:
    """The engine's answer; `EngineRefused` with the engine's own words if it refused."""
    if _asker is None:
        raise NoTriggerer(type(request).__name__)
    answer = await _asker.ask(request)
    if isinstance(answer, ErrorResponse):
        raise EngineRefused(type(request).__name__, str(answer.error), answer.detail or {})
    return answer


async def run_ended(dag_ids: Collection[str], timeout: float) -> bool:  # noqa: ASYNC109 - it is no limit but an answer
    """True: a run of one of these DAGs has ended since, look again. False: `timeout` seconds have passed."""
    if _asker is None:
        raise NoTriggerer("Waiting for a run")
    return await _asker.run_ended(dag_ids, timeout)


async def look_until_seen(look: Callable[[], Awaitable[T | None]], dag_ids: Collection[str], interval: float) -> T:
    """What `look` sees, as soon as it sees something; it looks every `interval` seconds and whenever a run ends."""
    while True:
        # The wait begins before the look: a run that ends between the two must not be missed.
        news = asyncio.create_task(run_ended(dag_ids, max(interval, _LEAST_INTERVAL)))
        try:
            seen = await look()
            if seen is not None:
                return seen
            await news
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)
