"""Answers one request of a running task from the store. Synchronous: whoever calls it chooses the thread."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from stannel.errors import RunExists, UnknownId, XComTooLarge
from stannel.execution.asset_answers import answer_about_assets
from stannel.execution.greeting import dag_run_of
from stannel.execution.state_answers import answer_about_state
from stannel.model.moments import to_micros
from stannel.model.run import Attempt, RunType
from stannel.model.schedule import Interval
from stannel.model.states import RunState, TaskState
from stannel.protocol import replies, requests
from stannel.protocol.data import PreviousTIResponse, unmapped
from stannel.protocol.refusal import Refused
from stannel.protocol.replies import Reply
from stannel.protocol.requests import Request
from stannel.protocol.schema import ErrorCode
from stannel.store import Store
from stannel.store.questions import Which
from stannel.store.runs import NewRun

_json = msgspec.json.Encoder()


def answer(store: Store, attempt: Attempt, request: Request, *, xcom_limit: int) -> Reply | None:
    """The reply to a request, None for a plain acknowledgement; `Refused` when there is none to give."""
    match request:
        case requests.GetConnection() | requests.GetVariable() | requests.GetVariableKeys():
            return _entry(store, request)
        case requests.PutVariable(key, value, description):
            store.variables.save(key, value or "", description)
            return None
        case requests.DeleteVariable(key):
            store.variables.delete(key)
            return replies.OKResponse(ok=True)
        case requests.SetXCom():
            _put_xcom(store, attempt, request, xcom_limit)
            return None
        case requests.DeleteXCom():
            run_pk = _run_pk(store, attempt, request.dag_id, request.run_id)
            if run_pk is not None:
                store.xcoms.delete(run_pk, request.task_id, unmapped(request.map_index), request.key)
            return None
        case (
            requests.GetXCom()
            | requests.GetXComCount()
            | requests.GetXComSequenceItem()
            | requests.GetXComSequenceSlice()
        ):
            return _xcom(store, attempt, request)
        case requests.SetRenderedFields(fields):
            store.questions.save_rendered(attempt.ti_pk, _json.encode(fields).decode())
            return None
        case requests.TriggerDagRun():
            return _trigger(store, request)
        case _:
            return _about_others(store, attempt, request)


def _entry(store: Store, request: requests.GetConnection | requests.GetVariable | requests.GetVariableKeys) -> Reply:
    match request:
        case requests.GetConnection(conn_id):
            found = store.connections.find(conn_id)
            if found is None:
                raise Refused(ErrorCode.CONNECTION_NOT_FOUND, {"conn_id": conn_id}, in_body=True)
            return replies.ConnectionResult(
                conn_id=found.conn_id,
                conn_type=found.conn_type,
                host=found.host,
                schema=found.schema,
                login=found.login,
                password=found.password,
                port=found.port,
                extra=found.extra,
            )
        case requests.GetVariable(key):
            variable = store.variables.find(key)
            if variable is None:
                raise Refused(ErrorCode.VARIABLE_NOT_FOUND, {"key": key}, in_body=True)
            return replies.VariableResult(key, variable.value)
        case requests.GetVariableKeys(prefix=prefix, limit=limit, offset=offset):
            keys = store.variables.keys(prefix or "")
            return replies.VariableKeysResult(keys[offset : offset + limit], len(keys))


def _put_xcom(store: Store, attempt: Attempt, request: requests.SetXCom, limit: int) -> None:
    text = _json.encode(request.value)
    if len(text) > limit:
        error = XComTooLarge(len(text), limit, request.key)
        raise Refused(ErrorCode.API_SERVER_ERROR, {"status_code": 413, "message": str(error), "detail": None})
    run_pk = _run_pk(store, attempt, request.dag_id, request.run_id)
    if run_pk is None:
        raise _not_found(f"There is no run {request.run_id!r} of {request.dag_id!r}.")
    store.xcoms.put(
        [
            {
                "run_pk": run_pk,
                "task_id": request.task_id,
                "map_index": unmapped(request.map_index),
                "key": request.key,
                "value": text.decode(),
                "length": _length(request),
                "created_at": to_micros(datetime.now(UTC)),
            }
        ]
    )


def _length(request: requests.SetXCom) -> int | None:
    if request.mapped_length is not None:
        return request.mapped_length
    # SDKs of other languages do not say how long their lists are.
    return len(request.value) if isinstance(request.value, list | dict) else None


def _xcom(
    store: Store,
    attempt: Attempt,
    request: requests.GetXCom | requests.GetXComCount | requests.GetXComSequenceItem | requests.GetXComSequenceSlice,
) -> Reply:
    run_pk = _run_pk(store, attempt, request.dag_id, request.run_id)
    match request:
        case requests.GetXCom(key=key, task_id=task_id, include_prior_dates=prior):
            if run_pk is None:
                return replies.XComResult(key, None)
            index = unmapped(request.map_index)
            if prior:
                text = store.xcoms.get_prior(request.dag_id, run_pk, task_id, index, key)
            else:
                text = store.xcoms.get(run_pk, task_id, index, key)
            return replies.XComResult(key, None if text is None else msgspec.json.decode(text))
        case requests.GetXComCount(key=key, task_id=task_id):
            return replies.XComCountResponse(0 if run_pk is None else store.xcoms.count(run_pk, task_id, key))
        case requests.GetXComSequenceItem(key=key, task_id=task_id, offset=offset):
            series = [] if run_pk is None else store.xcoms.series(run_pk, task_id, key)
            if not -len(series) <= offset < len(series):
                about = {"dag_id": request.dag_id, "run_id": request.run_id, "task_id": task_id, "key": key}
                raise Refused(ErrorCode.XCOM_NOT_FOUND, {**about, "offset": offset}, in_body=True)
            return replies.XComSequenceIndexResult(msgspec.json.decode(series[offset]))
        case requests.GetXComSequenceSlice(key=key, task_id=task_id, start=start, stop=stop, step=step):
            series = [] if run_pk is None else store.xcoms.series(run_pk, task_id, key)
            return replies.XComSequenceSliceResult([msgspec.json.decode(one) for one in series[start:stop:step]])


def _trigger(store: Store, request: requests.TriggerDagRun) -> Reply:
    status = _found(store.dags.get, request.dag_id)
    now = datetime.now(UTC)
    moment = request.logical_date
    new = NewRun(
        run_id=request.run_id,
        run_type=RunType.OPERATOR_TRIGGERED,
        run_after=request.run_after or now,
        logical_date=moment,
        interval=None if moment is None else Interval(moment, moment),
        conf=request.conf or {},
        note=request.note,
        partition_key=request.partition_key,
        triggered_by="operator",
    )
    spec = store.dags.spec(status.version)
    try:
        store.runs.create(status.version, spec, new, now=now)
    except RunExists:
        if not request.reset_dag_run:
            raise Refused(ErrorCode.DAGRUN_ALREADY_EXISTS, None, in_body=True) from None
        run = store.runs.get(request.dag_id, request.run_id)
        store.tasks.clear(run, [one.pk for one in store.tasks.of_run(run)], now=now)
    return replies.OKResponse(ok=True)


def _about_others(store: Store, attempt: Attempt, request: Request) -> Reply:
    match request:
        case requests.GetDag(dag_id):
            return _dag(store, dag_id)
        case requests.GetDagRun(dag_id, run_id):
            run = _found(store.runs.get, dag_id, run_id)
            return replies.DagRunResult(**_fields(dag_run_of(run, store.events.of_run(run.pk))))
        case requests.GetDagRunState(dag_id, run_id):
            return replies.DagRunStateResult(_found(store.runs.get, dag_id, run_id).state)
        case requests.GetPreviousDagRun(dag_id, logical_date, state):
            before = store.questions.previous_run(dag_id, logical_date, RunState(state) if state else None)
            return replies.PreviousDagRunResult(None if before is None else dag_run_of(before))
        case requests.GetPrevSuccessfulDagRun():
            return _previous_success(store, attempt)
        case requests.GetPreviousTI():
            return _previous_instance(store, request)
        case requests.GetDRCount():
            return replies.DRCount(store.questions.count_runs(_which(request)))
        case requests.GetTICount():
            return replies.TICount(store.questions.count_instances(_which(request, store)))
        case requests.GetTaskStates():
            return replies.TaskStatesResult(store.questions.instance_states(_which(request, store)))
        case requests.GetTaskBreadcrumbs(dag_id, run_id):
            return _breadcrumbs(store, dag_id, run_id)
        case requests.GetTaskRescheduleStartDate():
            return replies.TaskRescheduleStartDate(attempt.first_start_date)
        case (
            requests.GetAssetByName()
            | requests.GetAssetByUri()
            | requests.GetAssetsByAlias()
            | requests.GetAssetEventByAsset()
            | requests.GetAssetEventByAssetAlias()
            | requests.ValidateInletsAndOutlets()
        ):
            return answer_about_assets(store, attempt, request)
        case (
            requests.GetTaskStateStore()
            | requests.SetTaskStateStore()
            | requests.DeleteTaskStateStore()
            | requests.ClearTaskStateStore()
            | requests.GetAssetStateStoreByName()
            | requests.GetAssetStateStoreByUri()
            | requests.SetAssetStateStoreByName()
            | requests.SetAssetStateStoreByUri()
            | requests.DeleteAssetStateStoreByName()
            | requests.DeleteAssetStateStoreByUri()
            | requests.ClearAssetStateStoreByName()
            | requests.ClearAssetStateStoreByUri()
            | requests.ChangeStateStore()
        ):
            return answer_about_state(store, attempt, request)
        case _:
            message = f"{type(request).__name__} is not offered by this version of Stannel."
            raise Refused(ErrorCode.API_SERVER_ERROR, {"status_code": 501, "message": message, "detail": None})


def _dag(store: Store, dag_id: str) -> replies.DagResult:
    status = _found(store.dags.get, dag_id)
    spec = store.dags.spec(status.version)
    return replies.DagResult(
        dag_id=dag_id,
        is_paused=status.is_paused,
        bundle_name="dags-folder",
        bundle_version=None,
        relative_fileloc=status.fileloc,
        owners=", ".join(spec.owners),
        tags=list(spec.tags),
        next_dagrun=status.next_run.logical_date if status.next_run else None,
    )


def _previous_success(store: Store, attempt: Attempt) -> replies.PrevSuccessfulDagRunResult:
    moment = attempt.run.logical_date
    run = None if moment is None else store.questions.previous_run(attempt.dag_id, moment, RunState.SUCCESS)
    if run is None:
        return replies.PrevSuccessfulDagRunResult()
    return replies.PrevSuccessfulDagRunResult(
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        start_date=run.start_date,
        end_date=run.end_date,
    )


def _previous_instance(store: Store, request: requests.GetPreviousTI) -> replies.PreviousTIResult:
    which = Which(
        dag_id=request.dag_id,
        task_ids=[request.task_id],
        map_index=request.map_index,
        states=[request.state] if request.state else None,
    )
    found = store.questions.previous_instance(which, request.logical_date)
    if found is None:
        return replies.PreviousTIResult(None)
    took = (found.end_date - found.start_date).total_seconds() if found.end_date and found.start_date else None
    return replies.PreviousTIResult(
        PreviousTIResponse(
            task_id=found.task_id,
            dag_id=found.dag_id,
            run_id=found.run_id,
            start_date=found.start_date,
            end_date=found.end_date,
            state=None if found.state is TaskState.NONE else str(found.state),
            try_number=found.try_number,
            map_index=found.map_index,
            duration=took,
        )
    )


def _breadcrumbs(store: Store, dag_id: str, run_id: str) -> replies.TaskBreadcrumbsResult:
    run = _found(store.runs.get, dag_id, run_id)
    crumbs = [
        {"task_id": one.task_id, "map_index": one.map_index, "state": str(one.state), "operator": one.operator}
        for one in store.tasks.of_run(run)
        if one.end_date is not None
    ]
    return replies.TaskBreadcrumbsResult(crumbs)


def _which(
    request: requests.GetDRCount | requests.GetTICount | requests.GetTaskStates, store: Store | None = None
) -> Which:
    task_ids = getattr(request, "task_ids", None)
    group = getattr(request, "task_group_id", None)
    if group is not None and store is not None:
        spec = store.dags.spec(_found(store.dags.get, request.dag_id).version)
        inside = [task.task_id for task in spec.tasks if _is_inside(task.group_id, group)]
        task_ids = [*(task_ids or []), *inside]
    return Which(
        dag_id=request.dag_id,
        logical_dates=request.logical_dates,
        run_ids=request.run_ids,
        states=getattr(request, "states", None),
        task_ids=task_ids,
        map_index=getattr(request, "map_index", None),
    )


def _is_inside(group_id: str | None, wanted: str) -> bool:
    return group_id is not None and (group_id == wanted or group_id.startswith(f"{wanted}."))


def _run_pk(store: Store, attempt: Attempt, dag_id: str, run_id: str) -> int | None:
    if dag_id == attempt.dag_id and run_id == attempt.run_id:
        return attempt.run.pk
    return store.xcoms.run_pk(dag_id, run_id)


def _found(get: Any, *ids: str) -> Any:
    try:
        return get(*ids)
    except UnknownId as error:
        raise _not_found(str(error)) from error


def _not_found(message: str) -> Refused:
    return Refused(ErrorCode.API_SERVER_ERROR, {"status_code": 404, "message": message, "detail": None})


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
