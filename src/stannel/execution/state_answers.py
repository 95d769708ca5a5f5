"""Answers what running tasks and triggers ask of state stores: each task its own keys, and those of its assets."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from stannel.model.asset import AnyOfAlias, AssetAt, AssetNamed, Reference, ThisAsset
from stannel.model.run import Attempt
from stannel.model.state_store import AssetScope, Change, Put, StateRefused, TaskScope, check_key, check_size
from stannel.protocol import replies, requests
from stannel.protocol.refusal import Refused
from stannel.protocol.schema import ErrorCode
from stannel.store import Store
from stannel.store.assets import StoredAsset
from stannel.store.state_stores import AssetKeeper, Keeper, TaskKeeper

TaskRequest: TypeAlias = (
    requests.GetTaskStateStore
    | requests.SetTaskStateStore
    | requests.DeleteTaskStateStore
    | requests.ClearTaskStateStore
)
AssetRequest: TypeAlias = (
    requests.GetAssetStateStoreByName
    | requests.GetAssetStateStoreByUri
    | requests.SetAssetStateStoreByName
    | requests.SetAssetStateStoreByUri
    | requests.DeleteAssetStateStoreByName
    | requests.DeleteAssetStateStoreByUri
    | requests.ClearAssetStateStoreByName
    | requests.ClearAssetStateStoreByUri
)
StateRequest: TypeAlias = TaskRequest | AssetRequest | requests.ChangeStateStore

_json = msgspec.json.Encoder()


def answer_about_state(store: Store, attempt: Attempt, request: StateRequest) -> replies.Reply:
    """The reply; a key that is not there is refused in the body, everything that cannot be kept with an error."""
    try:
        return _answer(store, _keeper(store, attempt, request), request)
    except StateRefused as error:
        raise _refused(error.status, str(error)) from error
    except (TypeError, ValueError) as error:
        raise _refused(422, f"{error}; nothing was stored.") from error


def _answer(store: Store, keeper: Keeper, request: StateRequest) -> replies.Reply:
    now = datetime.now(UTC)
    match request:
        case requests.GetTaskStateStore(key=key):
            return replies.TaskStateStoreResult(_value(store, keeper, key, now, ErrorCode.TASK_STORE_NOT_FOUND))
        case requests.GetAssetStateStoreByName(key=key) | requests.GetAssetStateStoreByUri(key=key):
            return replies.AssetStateStoreResult(_value(store, keeper, key, now, ErrorCode.ASSET_STORE_NOT_FOUND))
        case (
            requests.ClearTaskStateStore()
            | requests.ClearAssetStateStoreByName()
            | requests.ClearAssetStateStoreByUri()
        ):
            store.states.clear(keeper)
            return replies.OKResponse()
        case requests.ChangeStateStore():
            return replies.OKResponse(ok=store.states.change(keeper, _several(store, request), now=now))
        case requests.SetTaskStateStore(key=key, value=value, expires_at=expires_at):
            change = Change(put={check_key(key): _put(store, key, value, expires_at)})
        case (
            requests.SetAssetStateStoreByName(key=key, value=value)
            | requests.SetAssetStateStoreByUri(key=key, value=value)
        ):
            change = Change(put={check_key(key): _put(store, key, value)})
        case (
            requests.DeleteTaskStateStore(key=key)
            | requests.DeleteAssetStateStoreByName(key=key)
            | requests.DeleteAssetStateStoreByUri(key=key)
        ):
            change = Change(remove=(key,))
    store.states.change(keeper, change, now=now)
    return replies.OKResponse()


def _value(store: Store, keeper: Keeper, key: str, now: datetime, missing: ErrorCode) -> Any:
    found = store.states.get(keeper, key, now=now)
    if found is None:
        raise Refused(missing, {"key": key}, in_body=True)
    return msgspec.json.decode(found)


def _put(store: Store, key: str, value: Any, expires_at: datetime | None = None) -> Put:
    if value is None:
        raise ValueError(f"the value of {key!r} is None, which stands for a key that is not there")
    text = _json.encode(value)
    check_size(key, text, store.largest_state)
    return Put(text.decode(), expires_at)


def _several(store: Store, request: requests.ChangeStateStore) -> Change:
    unknown = request.expires_at.keys() - request.put.keys()
    if unknown:
        raise ValueError(f"{min(unknown)!r} is to expire but is not stored")
    if both := request.put.keys() & set(request.remove):
        raise ValueError(f"{min(both)!r} is both stored and removed")
    for key in request.expect:
        check_key(key)
    return Change(
        put={
            check_key(key): _put(store, key, value, request.expires_at.get(key)) for key, value in request.put.items()
        },
        remove=tuple(request.remove),
        expect=request.expect,
    )


# --- whose keys ------------------------------------------------------------------------------------------------------


def _keeper(store: Store, attempt: Attempt, request: StateRequest) -> Keeper:
    ti_id, name, uri = (getattr(request, field, None) for field in ("ti_id", "name", "uri"))
    match ti_id, name, uri:
        case str(), None, None:
            return _task(attempt, ti_id)
        case None, str(), None:
            return _asset(store, attempt, AssetNamed(name))
        case None, None, str():
            return _asset(store, attempt, AssetAt(uri))
        case _:
            raise ValueError(f"{type(request).__name__} is about one task instance or one asset: ti_id, name or uri")


def task_keeper(attempt: Attempt) -> TaskKeeper:
    """The owner of the keys of an attempt's task instance."""
    scope = TaskScope(attempt.dag_id, attempt.run_id, attempt.task_id, attempt.map_index)
    return TaskKeeper(attempt.run.pk, scope, attempt.ti_pk, attempt.attempt_id)


def _task(attempt: Attempt, ti_id: str) -> TaskKeeper:
    if ti_id != attempt.attempt_id or not attempt.attempt_id:
        message = "A task may use its own keys only; those of another instance were left alone."
        raise Refused(ErrorCode.PERMISSION_DENIED, {"status_code": 403, "message": message, "detail": None})
    return task_keeper(attempt)


def _asset(store: Store, attempt: Attempt, wanted: AssetNamed | AssetAt) -> AssetKeeper:
    found = store.assets.find(wanted)
    if found is None or not found.is_active:
        raise _refused(
            404, f"There is no active asset {getattr(wanted, 'name', None) or getattr(wanted, 'uri', '')!r}."
        )
    writer: Mapping[str, Any] = {"kind": "watcher"}
    # Without an attempt it is a watcher that asks: it belongs to no task.
    if attempt.attempt_id:
        _check_access(store, attempt, found)
        writer = {
            "kind": "task",
            "dag_id": attempt.dag_id,
            "run_id": attempt.run_id,
            "task_id": attempt.task_id,
            "map_index": attempt.map_index,
        }
    return AssetKeeper(AssetScope(found.pk, found.name, found.uri), writer)


def _check_access(store: Store, attempt: Attempt, found: StoredAsset) -> None:
    task = store.dags.spec(attempt.run.version).task(attempt.task_id)
    named = () if task is None else (*task.inlets, *task.outlets)
    if not any(_means(store, one, found) for one in named):
        message = f"The asset {found.name!r} is neither an inlet nor an outlet of this task; add it to use its keys."
        raise Refused(ErrorCode.PERMISSION_DENIED, {"status_code": 403, "message": message, "detail": None})


def _means(store: Store, one: Reference, found: StoredAsset) -> bool:
    match one:
        case ThisAsset(name, uri):
            return (name, uri) == (found.name, found.uri)
        case AssetNamed(name):
            return name == found.name
        case AssetAt(uri):
            return uri == found.uri
        case AnyOfAlias(alias):
            return any(other.pk == found.pk for other in store.assets.of_alias(alias))


def _refused(status: int, message: str) -> Refused:
    return Refused(ErrorCode.API_SERVER_ERROR, {"status_code": status, "message": message, "detail": None})
