"""An engine in a dict: answers the real messages from memory, and remembers what it was asked."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec

from stannel.model.run import RunType
from stannel.model.states import RunState
from stannel.model.trigger import FAIL_METHOD
from stannel.protocol.data import BundleInfo, DagRun, TaskInstance, TIRunContext
from stannel.protocol.replies import (
    AssetStateStoreResult,
    ConnectionResult,
    ErrorResponse,
    OKResponse,
    PrevSuccessfulDagRunResult,
    Reply,
    StartupDetails,
    TaskStateStoreResult,
    TICount,
    VariableKeysResult,
    VariableResult,
    XComCountResponse,
    XComResult,
    XComSequenceIndexResult,
    XComSequenceSliceResult,
)
from stannel.protocol.requests import (
    ChangeStateStore,
    ClearAssetStateStoreByName,
    ClearTaskStateStore,
    DeferTask,
    DeleteAssetStateStoreByName,
    DeleteTaskStateStore,
    DeleteVariable,
    DeleteXCom,
    GetAssetStateStoreByName,
    GetConnection,
    GetPrevSuccessfulDagRun,
    GetTaskStateStore,
    GetTICount,
    GetVariable,
    GetVariableKeys,
    GetXCom,
    GetXComCount,
    GetXComSequenceItem,
    GetXComSequenceSlice,
    PutVariable,
    Request,
    SetAssetStateStoreByName,
    SetTaskStateStore,
    SetXCom,
)
from stannel.protocol.schema import ErrorCode
from stannel.runner.execute import execute
from stannel.sdk import DAG, serde

MOMENT = datetime(2026, 11, 15, 6, 30, tzinfo=UTC)
_wire = msgspec.msgpack.Encoder()


class MemoryChannel:
    """Every message passes through the wire's encoding, so what could not travel fails here too."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.xcoms: dict[tuple[str, str, int], Any] = {}
        self.lengths: dict[tuple[str, str, int], int | None] = {}
        self.variables: dict[str, str] = {}
        self.connections: dict[str, ConnectionResult] = {}
        # Of one task instance, and by name those of assets.
        self.task_state: dict[str, Any] = {}
        self.asset_state: dict[str, dict[str, Any]] = {}
        self.previous = PrevSuccessfulDagRunResult()
        # By kind of request: the answers to give one after the other, the last one for ever.
        self.prepared: dict[type[Any], list[Reply]] = {}
        self.largest = 1_000_000

    def sent(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind, in order."""
        return [body for body in self.asked if isinstance(body, kind)]

    def returned(self, task_id: str, map_index: int = -1) -> Any:
        return self.xcoms[task_id, "return_value", map_index]

    def request(self, body: Request) -> Reply | None:
        size = len(_wire.encode(body))
        self.asked.append(body)
        prepared = self.prepared.get(type(body))
        if prepared:
            return prepared.pop(0) if len(prepared) > 1 else prepared[0]
        match body:
            case SetXCom():
                return self._set_xcom(body, size)
            case GetXCom():
                index = -1 if body.map_index is None else body.map_index
                return XComResult(body.key, self.xcoms.get((body.task_id, body.key, index)))
            case DeleteXCom():
                self.xcoms.pop((body.task_id, body.key, -1 if body.map_index is None else body.map_index), None)
                return None
            case GetXComCount() | GetXComSequenceItem() | GetXComSequenceSlice():
                return self._sequence(body)
            case GetVariable() | PutVariable() | DeleteVariable() | GetVariableKeys():
                return self._variable(body)
            case GetConnection(conn_id):
                missing = ErrorResponse(ErrorCode.CONNECTION_NOT_FOUND, {"conn_id": conn_id})
                return self.connections.get(conn_id, missing)
            case (
                GetTaskStateStore()
                | SetTaskStateStore()
                | DeleteTaskStateStore()
                | ClearTaskStateStore()
                | GetAssetStateStoreByName()
                | SetAssetStateStoreByName()
                | DeleteAssetStateStoreByName()
                | ClearAssetStateStoreByName()
                | ChangeStateStore()
            ):
                return self._state(body)
            case GetPrevSuccessfulDagRun():
                return self.previous
            case GetTICount():
                return TICount(3)
        return None

    def _state(self, body: Any) -> Reply | None:
        name = getattr(body, "name", None)
        held = self.task_state if name is None else self.asset_state.setdefault(name, {})
        match body:
            case GetTaskStateStore(key=key) if key in held:
                return TaskStateStoreResult(held[key])
            case GetAssetStateStoreByName(key=key) if key in held:
                return AssetStateStoreResult(held[key])
            case GetTaskStateStore(key=key):
                return ErrorResponse(ErrorCode.TASK_STORE_NOT_FOUND, {"key": key})
            case GetAssetStateStoreByName(key=key):
                return ErrorResponse(ErrorCode.ASSET_STORE_NOT_FOUND, {"key": key})
            case SetTaskStateStore(key=key, value=value) | SetAssetStateStoreByName(key=key, value=value):
                held[key] = value
            case DeleteTaskStateStore(key=key) | DeleteAssetStateStoreByName(key=key):
                held.pop(key, None)
            case ChangeStateStore():
                if any(held.get(key) != value for key, value in body.expect.items()):
                    return OKResponse(ok=False)
                held.update(body.put)
                for key in body.remove:
                    held.pop(key, None)
            case _:
                held.clear()
        return OKResponse()

    def _set_xcom(self, body: SetXCom, size: int) -> Reply | None:
        if size > self.largest:
            return ErrorResponse(ErrorCode.API_SERVER_ERROR, {"message": f"{body.key} has {size} bytes, too many"})
        place = (body.task_id, body.key, -1 if body.map_index is None else body.map_index)
        self.xcoms[place], self.lengths[place] = body.value, body.mapped_length
        return None

    def _sequence(self, body: GetXComCount | GetXComSequenceItem | GetXComSequenceSlice) -> Reply:
        places = sorted(place for place in self.xcoms if place[:2] == (body.task_id, body.key) and place[2] >= 0)
        values = [self.xcoms[place] for place in places]
        match body:
            case GetXComCount():
                return XComCountResponse(len(values))
            case GetXComSequenceItem():
                if not -len(values) <= body.offset < len(values):
                    return ErrorResponse(ErrorCode.XCOM_NOT_FOUND, {"offset": body.offset})
                return XComSequenceIndexResult(values[body.offset])
            case GetXComSequenceSlice():
                return XComSequenceSliceResult(values[body.start : body.stop : body.step])

    def _variable(self, body: GetVariable | PutVariable | DeleteVariable | GetVariableKeys) -> Reply | None:
        match body:
            case GetVariable(key) if key in self.variables:
                return VariableResult(key, self.variables[key])
            case GetVariable(key):
                return ErrorResponse(ErrorCode.VARIABLE_NOT_FOUND, {"key": key})
            case PutVariable():
                self.variables[body.key] = body.value or ""
                return None
            case DeleteVariable():
                self.variables.pop(body.key, None)
                return OKResponse()
            case GetVariableKeys():
                keys = sorted(key for key in self.variables if key.startswith(body.prefix or ""))
                return VariableKeysResult(keys[body.offset : body.offset + body.limit], len(keys))


def startup(
    dag_id: str,
    task_id: str,
    *,
    map_index: int = -1,
    should_retry: bool = False,
    conf: dict[str, Any] | None = None,
    logical_date: datetime | None = MOMENT,
    xcom_keys_to_clear: list[str] | None = None,
    try_number: int = 1,
    first_start: datetime | None = None,
    reschedules: int = 0,
    next_method: str | None = None,
    next_kwargs: dict[str, Any] | None = None,
) -> StartupDetails:
    """The greeting for one attempt."""
    run = DagRun(
        dag_id=dag_id,
        run_id="manual__2026-11-15T06:30:00+00:00",
        logical_date=logical_date,
        data_interval_start=logical_date,
        data_interval_end=logical_date,
        run_after=MOMENT,
        start_date=MOMENT,
        end_date=None,
        run_type=RunType.MANUAL,
        state=RunState.RUNNING,
        conf=conf,
        consumed_asset_events=[],
        partition_key=None,
    )
    ti = TaskInstance(
        id="0198f2c4-7c1e-7a55-9a3e-1d2f3a4b5c6d",
        task_id=task_id,
        dag_id=dag_id,
        run_id=run.run_id,
        try_number=try_number,
        dag_version_id="0198f2c4-0000-7000-8000-000000000001",
        map_index=map_index,
    )
    context = TIRunContext(
        dag_run=run,
        max_tries=2,
        should_retry=should_retry,
        xcom_keys_to_clear=xcom_keys_to_clear or [],
        start_date=first_start,
        task_reschedule_count=reschedules,
        next_method=next_method,
        next_kwargs=next_kwargs,
    )
    return StartupDetails(
        ti=ti,
        dag_rel_path="dags/example.py",
        bundle_info=BundleInfo(name="dags-folder"),
        start_date=MOMENT,
        ti_context=context,
    )


def run(dag: DAG, task_id: str, channel: MemoryChannel, **options: Any) -> Any:
    """One attempt; the message that ends it."""
    return execute(startup(dag.dag_id, task_id, **options), {dag.dag_id: dag}, channel)


def run_beside(dag: DAG, task_id: str, channel: MemoryChannel, **options: Any) -> Any:
    """One attempt in a thread of its own: the test runner keeps an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, dag, task_id, channel, **options).result()


def resumed(deferred: DeferTask, event: Any = None) -> dict[str, Any]:
    """What the next attempt is started with when the trigger of this one has fired."""
    stored = _stored(deferred)
    return {"next_method": deferred.next_method, "next_kwargs": {**stored, "event": serde.encode(event)}}


def failed(deferred: DeferTask, error: str, traceback: list[str] | None = None) -> dict[str, Any]:
    """What the next attempt is started with when the wait of this one has failed."""
    stored = _stored(deferred)
    return {"next_method": FAIL_METHOD, "next_kwargs": {**stored, "error": error, "traceback": traceback}}


def _stored(deferred: DeferTask) -> dict[str, Any]:
    # The message crosses a wire and its arguments are kept as JSON, so what would not survive that fails here too.
    arrived = msgspec.msgpack.decode(_wire.encode(deferred))["next_kwargs"] or {}
    kept: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(arrived))
    return kept
