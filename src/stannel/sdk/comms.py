"""How SDK functions reach the engine: one channel per task process, none while a DAG file is parsed."""

from typing import Any, Protocol

from stannel.protocol.replies import ErrorResponse, Reply
from stannel.protocol.requests import Request
from stannel.sdk.exceptions import AirflowRuntimeError


class Channel(Protocol):
    """Sends a request and gives its answer. None: it was done, and there is nothing to say."""

    def request(self, body: Request) -> Reply | None: ...


_channel: Channel | None = None


def current_channel() -> Channel | None:
    """The running task's way to the engine. None: no task runs here."""
    return _channel


class use_channel:  # noqa: N801 - read as a verb, in a `with` statement
    """Let SDK functions use this channel while the block runs."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel

    def __enter__(self) -> None:
        global _channel
        self._outer, _channel = _channel, self._channel

    def __exit__(self, *error: object) -> None:
        global _channel
        _channel = self._outer


def ask(body: Request) -> Any:
    """The engine's answer; an `AirflowRuntimeError` with the engine's own words if it refused."""
    if _channel is None:
        raise AirflowRuntimeError(
            f"{type(body).__name__} needs the engine, but no task is running here. "
            "Use it inside task code, or set the value in the environment."
        )
    answer = _channel.request(body)
    if isinstance(answer, ErrorResponse):
        raise refusal(body, answer)
    return answer


def refusal(body: Request, answer: ErrorResponse) -> AirflowRuntimeError:
    """The error for a refused request: its code, and the reason the engine gave."""
    detail = answer.detail or {}
    code = str(getattr(answer.error, "value", answer.error))
    reason = detail.get("message") or detail.get("detail") or code
    return AirflowRuntimeError(f"The engine refused {type(body).__name__}: {reason}", code, detail)
