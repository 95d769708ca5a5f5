"""What triggers may ask the engine, from coroutines, from threads, and from plain calls inside a coroutine."""

import asyncio
import concurrent.futures
import itertools
from collections.abc import Callable, Collection

import msgspec
from msgspec import Raw

from stannel.protocol.decoding import NIL, Unreadable, decode_reply
from stannel.protocol.replies import ErrorResponse, Reply
from stannel.protocol.requests import Request
from stannel.protocol.schema import ErrorCode
from stannel.protocol.triggering import Answer, Ask
from stannel.triggerer.host.scope import owner_id
from stannel.triggerer.host.wire import Wire

# While a plain call waits, no other trigger runs; a thread that waits is in nobody's way.
_LOOP_PATIENCE = 10.0
_THREAD_PATIENCE = 60.0

_encode = msgspec.msgpack.Encoder().encode


class Services:
    """The asker of triggers and the channel of SDK functions, both over the host's socket."""

    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop, beat: Callable[[], None]) -> None:
        self._wire, self._loop, self._beat = wire, loop, beat
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Answer] | concurrent.futures.Future[Answer]] = {}
        self._listening: dict[str, set[asyncio.Future[bool]]] = {}
        self.is_pumping = False

    async def ask(self, request: Request) -> Reply | None:
        """The engine's answer, an `ErrorResponse` included."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        number = self._send(request, future)
        try:
            return _reply(await future)
        finally:
            self._asked.pop(number, None)

    async def run_ended(self, dag_ids: Collection[str], timeout: float) -> bool:  # noqa: ASYNC109 - it is no limit but an answer
        """True as soon as a run of one of these DAGs ends; False when `timeout` seconds have passed."""
        heard: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(timeout, _settle, heard, False)
        for dag_id in dag_ids:
            self._listening.setdefault(dag_id, set()).add(heard)
        try:
            return await heard
        finally:
            timer.cancel()
            for dag_id in dag_ids:
                listening = self._listening.get(dag_id, set())
                listening.discard(heard)
                if not listening:
                    self._listening.pop(dag_id, None)

    def request(self, body: Request) -> Reply | None:
        """The answer to a plain call. On the loop's thread everything else stands until it comes."""
        future: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        number = self._send(body, future)
        try:
            if not self._wire.is_on_main_thread:
                return _reply(future.result(_THREAD_PATIENCE))
            self.is_pumping = True
            self._wire.pump(future.done, _LOOP_PATIENCE, self._beat)
            return _reply(future.result(0))
        except TimeoutError:
            return _unanswered(f"the engine did not answer {type(body).__name__} in time")
        finally:
            self.is_pumping = self.is_pumping and not self._wire.is_on_main_thread
            self._asked.pop(number, None)

    def answered(self, answer: Answer) -> None:
        """An answer came. One that nobody waits for any more is dropped."""
        future = self._asked.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def news(self, dag_ids: Collection[str]) -> None:
        """Runs of these DAGs ended."""
        for dag_id in dag_ids:
            for heard in self._listening.get(dag_id, ()):
                _settle(heard, True)

    def _send(self, request: Request, future: asyncio.Future[Answer] | concurrent.futures.Future[Answer]) -> int:
        number = next(self._numbers)
        ask = Ask(number, owner_id(), Raw(_encode(request)))
        self._asked[number] = future
        try:
            self._wire.report(ask)
        except BaseException:
            del self._asked[number]
            raise
        return number


def _settle(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


def _reply(answer: Answer) -> Reply | None:
    try:
        if answer.error != NIL:
            return decode_reply(answer.error)
        return None if answer.body == NIL else decode_reply(answer.body)
    except Unreadable as error:
        return _unanswered(f"the answer cannot be used: {error}")


def _unanswered(reason: str) -> ErrorResponse:
    return ErrorResponse(ErrorCode.GENERIC_ERROR, {"message": reason})
