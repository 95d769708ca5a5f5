"""What tests of triggers need: virtual time, and an engine in memory that answers as the real one does."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, TypeVar

import looptime
import pytest

from stannel.model.states import RunState
from stannel.protocol.replies import (
    ConnectionResult,
    DagRunStateResult,
    DRCount,
    ErrorResponse,
    Reply,
    TaskStatesResult,
)
from stannel.protocol.requests import GetConnection, GetDagRunState, GetDRCount, GetTaskStates, Request
from stannel.protocol.schema import ErrorCode
from stannel.triggers.asking import use_asker

T = TypeVar("T")


class MemoryEngine:
    """Runs of one DAG, their tasks, and connections. `on_ask` is called before each answer."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        self.tasks: dict[str, dict[str, str | None]] = {}
        self.connections: dict[str, ConnectionResult] = {}
        self.asked: list[Request] = []
        self.on_ask: Callable[[], None] = lambda: None
        self._listeners: list[tuple[Collection[str], asyncio.Event]] = []

    def end(self, run_id: str, state: str, dag_id: str = "other") -> None:
        self.runs[run_id] = state
        for dag_ids, heard in self._listeners:
            if dag_id in dag_ids:
                heard.set()

    async def ask(self, request: Request) -> Reply | None:
        self.asked.append(request)
        # As over a socket: the answer is that of now, and arrives later.
        answer = self._answer(request)
        self.on_ask()
        await asyncio.sleep(0)
        return answer

    def _answer(self, request: Request) -> Reply:
        match request:
            case GetDRCount(run_ids=run_ids, states=states):
                wanted = self.runs if run_ids is None else run_ids
                return DRCount(sum(self.runs.get(run_id) in (states or ()) for run_id in wanted))
            case GetDagRunState(_, run_id):
                return DagRunStateResult(RunState(self.runs[run_id]))
            case GetTaskStates(dag_id="unknown"):
                return ErrorResponse(ErrorCode.API_SERVER_ERROR, {"status_code": 404, "message": "no such DAG"})
            case GetTaskStates():
                return TaskStatesResult(self.tasks)
            case GetConnection(conn_id) if conn_id in self.connections:
                return self.connections[conn_id]
            case GetConnection(conn_id):
                return ErrorResponse(ErrorCode.CONNECTION_NOT_FOUND, {"conn_id": conn_id})
            case _:
                raise AssertionError(request)

    async def run_ended(self, dag_ids: Collection[str], timeout: float) -> bool:
        listener = (dag_ids, asyncio.Event())
        self._listeners.append(listener)
        try:
            async with asyncio.timeout(timeout):
                return await listener[1].wait()
        except TimeoutError:
            return False
        finally:
            self._listeners.remove(listener)

    @property
    def listeners(self) -> int:
        return len(self._listeners)


@pytest.fixture
def engine() -> Iterator[MemoryEngine]:
    """The engine that triggers ask while the test runs."""
    engine = MemoryEngine()
    with use_asker(engine):
        yield engine


@pytest.fixture
def virtually() -> Callable[[Coroutine[Any, Any, T]], tuple[T, float]]:
    """Runs a coroutine where sleeping takes no time; gives its result and the seconds it believes to have taken."""

    def run(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
        with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=0)) as runner:
            result = runner.run(work)
            return result, runner.get_loop().time()

    return run
