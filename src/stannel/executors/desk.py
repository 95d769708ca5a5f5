"""The desk of a worker: answers its attempts from the store, on threads, and stores their ends in batches."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from stannel.errors import StannelError
from stannel.execution.answers import answer
from stannel.execution.retries import with_retry_time
from stannel.execution.state_answers import task_keeper
from stannel.model.run import Attempt, Outcome
from stannel.model.states import TaskState
from stannel.protocol.refusal import Refused
from stannel.protocol.replies import Reply
from stannel.protocol.requests import Request
from stannel.protocol.schema import ErrorCode
from stannel.store import Store

Result = TypeVar("Result")

# Apart, so that slow answers never hold up an end, a claim, or the renewal of the lease.
_ANSWERING_THREADS, _OWN_THREADS = 3, 2


class StoreDesk:
    """Answers for the engine. Ends that arrive while one batch is being stored make up the next."""

    def __init__(self, store: Store, *, xcom_limit: int) -> None:
        self._store, self._xcom_limit = store, xcom_limit
        self._answering = ThreadPoolExecutor(_ANSWERING_THREADS, thread_name_prefix="answer")
        self._threads = ThreadPoolExecutor(_OWN_THREADS, thread_name_prefix="store")
        self._ends: list[tuple[Attempt, Outcome, asyncio.Future[bool]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def in_thread(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
        """Call a verb of the store for the engine itself, without holding up the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))

    async def answer(self, attempt: Attempt, request: Request) -> Reply | None:
        """The reply to a request; trouble with the store becomes an error the task can read."""
        loop, limit = asyncio.get_running_loop(), self._xcom_limit
        try:
            return await loop.run_in_executor(
                self._answering, lambda: answer(self._store, attempt, request, xcom_limit=limit)
            )
        except Refused:
            raise
        except StannelError as error:
            detail = {"status_code": 500, "message": str(error), "detail": None}
            raise Refused(ErrorCode.API_SERVER_ERROR, detail) from error

    async def finish(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Store how an attempt ended. False: it is no longer ours, nothing was stored."""
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._ends.append((attempt, with_retry_time(self._store, attempt, outcome), stored))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_ends())
        return await stored

    def for_callback(self, pk: int) -> "CallbackDesk":
        """A desk for the process that runs this callback."""
        return CallbackDesk(self, self._store, pk)

    def close(self) -> None:
        self._answering.shutdown()
        self._threads.shutdown()

    async def _store_ends(self) -> None:
        while self._ends:
            batch, self._ends = self._ends, []
            try:
                accepted = await self.in_thread(self._finish, [(attempt, outcome) for attempt, outcome, _ in batch])
            except BaseException as error:
                for _, _, stored in batch:
                    if not stored.done():
                        stored.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                for (_, _, stored), ok in zip(batch, accepted, strict=True):
                    if not stored.done():
                        stored.set_result(ok)
        self._storing = None

    def _finish(self, ends: list[tuple[Attempt, Outcome]]) -> list[bool]:
        accepted = self._store.attempts.finish(ends)
        for (attempt, outcome), ok in zip(ends, accepted, strict=True):
            if ok and outcome.state is TaskState.SUCCESS:
                self._store.states.succeeded(task_keeper(attempt))
        return accepted


class CallbackDesk:
    """The desk of a process that runs a callback: it may ask like a task, but its end decides nothing."""

    def __init__(self, desk: StoreDesk, store: Store, pk: int) -> None:
        self._desk, self._store, self._pk = desk, store, pk

    async def answer(self, attempt: Attempt, request: Request) -> Reply | None:
        return await self._desk.answer(attempt, request)

    async def finish(self, attempt: Attempt, outcome: Outcome) -> bool:
        await self._desk.in_thread(self._store.callbacks.done, self._pk)
        return True
