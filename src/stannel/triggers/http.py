"""Triggers that wait for an HTTP server. They need the extra `http`."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

from stannel.protocol.requests import GetConnection
from stannel.triggers.asking import ask
from stannel.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from stannel.triggers.http_calls import (
    HttpFailed,
    HttpRequest,
    dump_response,
    http_request_of,
    read_response,
    send,
    send_now,
)
from stannel.triggers.loading import find_object

if TYPE_CHECKING:
    import httpx

__all__ = [
    "HttpEventTrigger",
    "HttpFailed",
    "HttpRequest",
    "HttpSensorTrigger",
    "HttpTrigger",
    "dump_response",
    "http_request_of",
    "read_response",
    "send",
    "send_now",
]

# A server that is restarted does not end a long wait; one that stays away does.
_FAILURES_IN_A_ROW = 3


class HttpTrigger(BaseTrigger):
    """Makes one call; fires `{"status": "success", "response": ...}` or `{"status": "error", "message": ...}`.

    The response is text; `read_response` gives it back.
    """

    _arguments: ClassVar[tuple[str, ...]] = (
        "http_conn_id",
        "auth_type",
        "method",
        "endpoint",
        "headers",
        "data",
        "extra_options",
    )

    def __init__(
        self,
        http_conn_id: str = "http_default",
        auth_type: Any = None,
        method: str = "POST",
        endpoint: str | None = None,
        headers: dict[str, str] | None = None,
        data: dict[str, Any] | str | None = None,
        extra_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.http_conn_id, self.auth_type, self.method = http_conn_id, _path_of(auth_type), method
        self.endpoint, self.headers, self.data = endpoint, headers, data
        self.extra_options = extra_options

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in self._arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            response = await send(await self._request())
        # Whatever went wrong, the waiting task is the one to tell.
        except Exception as error:  # noqa: BLE001
            yield TriggerEvent({"status": "error", "message": str(error)})
        else:
            yield TriggerEvent({"status": "success", "response": dump_response(response)})

    async def _request(self) -> HttpRequest:
        return http_request_of(
            await ask(GetConnection(self.http_conn_id)),
            self.endpoint,
            self.headers,
            method=self.method,
            data=self.data,
            extra_options=self.extra_options,
            auth_type=self.auth_type,
        )

    async def _poll(
        self, interval: float, is_wanted: Callable[["httpx.Response"], Awaitable[bool]]
    ) -> "httpx.Response":
        """The first answer that is wanted. 404 means not yet; so does a server that is away for a short while."""
        request, failures = await self._request(), 0
        while True:
            try:
                response = await send(request)
            except HttpFailed as failure:
                failures = failures + 1 if failure.status != 404 else 0
                if failures and (failures > _FAILURES_IN_A_ROW or not failure.may_pass):
                    raise
                self.log.info("%s Trying again in %g s.", failure, interval)
            else:
                failures = 0
                if await is_wanted(response):
                    return response
            await asyncio.sleep(interval)


class HttpSensorTrigger(HttpTrigger):
    """Fires `True` when the server gives an answer that is no error. 404 means not yet, other errors end the wait."""

    _arguments = ("endpoint", "http_conn_id", "method", "headers", "data", "extra_options", "poke_interval")

    def __init__(
        self,
        endpoint: str | None = None,
        http_conn_id: str = "http_default",
        method: str = "GET",
        headers: dict[str, str] | None = None,
        data: dict[str, Any] | str | None = None,
        extra_options: dict[str, Any] | None = None,
        poke_interval: float = 5.0,
    ) -> None:
        super().__init__(
            http_conn_id=http_conn_id,
            method=method,
            endpoint=endpoint,
            headers=headers,
            data=data,
            extra_options=extra_options,
        )
        self.poke_interval = poke_interval

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await self._poll(self.poke_interval, _any_answer)
        yield TriggerEvent(True)


class HttpEventTrigger(HttpTrigger, BaseEventTrigger):
    """Asks again and again; fires the text of the first answer that the function named `response_check_path` accepts.

    The function may be `async def`; a plain one is called in a thread.
    """

    _arguments = (*HttpTrigger._arguments, "response_check_path", "poll_interval")

    def __init__(
        self,
        http_conn_id: str = "http_default",
        auth_type: Any = None,
        method: str = "GET",
        endpoint: str | None = None,
        headers: dict[str, str] | None = None,
        data: dict[str, Any] | str | None = None,
        extra_options: dict[str, Any] | None = None,
        response_check_path: str | None = None,
        poll_interval: float = 60.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(http_conn_id, auth_type, method, endpoint, headers, data, extra_options, **kwargs)
        if response_check_path is None:
            raise ValueError("An HttpEventTrigger needs response_check_path, or every answer would be an event.")
        self.response_check_path, self.poll_interval = response_check_path, poll_interval

    async def run(self) -> AsyncIterator[TriggerEvent]:
        response = await self._poll(self.poll_interval, self._is_wanted)
        yield TriggerEvent(response.text)

    async def _is_wanted(self, response: "httpx.Response") -> bool:
        check = find_object(self.response_check_path)
        if inspect.iscoroutinefunction(check):
            return bool(await check(response))
        return bool(await asyncio.to_thread(check, response))


async def _any_answer(response: "httpx.Response") -> bool:
    return True


def _path_of(kind: Any) -> str | None:
    """A class as the text by which it can be stored."""
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind
