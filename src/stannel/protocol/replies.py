"""Every message the supervisor may send. Nullable fields are always sent, as nil if need be: old schemas want them."""

from typing import Any, TypeAlias

from stannel.model.run import RunType
from stannel.model.states import RunState
from stannel.protocol.data import (
    AssetEventDagRunReference,
    AssetEventResponse,
    AssetProfile,
    BundleInfo,
    DagRun,
    HITLUser,
    Instant,
    JsonMap,
    Message,
    PreviousTIResponse,
    TaskInstance,
    TIRunContext,
)
from stannel.protocol.requests import CreateHITLDetailPayload
from stannel.protocol.schema import ErrorCode


class StartupDetails(Message, frozen=True, kw_only=True):
    """The greeting: everything a task process is told before it asks anything."""

    ti: TaskInstance
    dag_rel_path: str
    bundle_info: BundleInfo
    start_date: Instant
    ti_context: TIRunContext
    sentry_integration: str = ""


class ErrorResponse(Message, frozen=True):
    """The request was understood and could not be granted, or was not understood; the connection stays usable."""

    error: ErrorCode = ErrorCode.GENERIC_ERROR
    detail: JsonMap | None = None


class OKResponse(Message, frozen=True):
    ok: bool = True


class ConnectionResult(Message, frozen=True, kw_only=True):
    """A connection; `extra` is JSON text."""

    conn_id: str
    conn_type: str
    host: str | None
    schema: str | None
    login: str | None
    password: str | None
    port: int | None
    extra: str | None

    def __repr__(self) -> str:
        return f"ConnectionResult(conn_id={self.conn_id!r}, ...)"


class VariableResult(Message, frozen=True):
    key: str
    value: str | None

    def __repr__(self) -> str:
        return f"VariableResult(key={self.key!r}, ...)"


class VariableKeysResult(Message, frozen=True):
    keys: list[str]
    total_entries: int


class XComResult(Message, frozen=True):
    key: str
    value: Any


class XComCountResponse(Message, frozen=True):
    len: int


class XComSequenceIndexResult(Message, frozen=True):
    root: Any


class XComSequenceSliceResult(Message, frozen=True):
    root: list[Any]


class TaskStateStoreResult(Message, frozen=True):
    value: Any


class AssetStateStoreResult(Message, frozen=True):
    value: Any


class AssetResult(Message, frozen=True, kw_only=True):
    name: str
    uri: str
    group: str
    extra: JsonMap | None = None


class AssetsByAliasResult(Message, frozen=True):
    assets: list[AssetResult]


class AssetEventsResult(Message, frozen=True):
    asset_events: list[AssetEventResponse]


class InactiveAssetsResult(Message, frozen=True):
    inactive_assets: list[AssetProfile] | None = None


class DagResult(Message, frozen=True, kw_only=True):
    dag_id: str
    is_paused: bool
    bundle_name: str | None
    bundle_version: str | None
    relative_fileloc: str | None
    owners: str | None
    tags: list[str]
    next_dagrun: Instant | None


class DagRunResult(Message, frozen=True, kw_only=True):
    """A run, with the fields of `DagRun` and a type of its own."""

    dag_id: str
    run_id: str
    logical_date: Instant | None
    data_interval_start: Instant | None
    data_interval_end: Instant | None
    run_after: Instant
    start_date: Instant | None
    end_date: Instant | None
    clear_number: int | None = 0
    run_type: RunType
    state: RunState
    conf: JsonMap | None = None
    triggering_user_name: str | None = None
    consumed_asset_events: list[AssetEventDagRunReference]
    partition_key: str | None
    partition_date: Instant | None = None
    note: str | None = None
    team_name: str | None = None


class DagRunStateResult(Message, frozen=True):
    state: RunState


class PreviousDagRunResult(Message, frozen=True):
    dag_run: DagRun | None = None


class PrevSuccessfulDagRunResult(Message, frozen=True, kw_only=True):
    data_interval_start: Instant | None = None
    data_interval_end: Instant | None = None
    start_date: Instant | None = None
    end_date: Instant | None = None


class PreviousTIResult(Message, frozen=True):
    task_instance: PreviousTIResponse | None = None


class DRCount(Message, frozen=True):
    count: int


class TICount(Message, frozen=True):
    count: int


class TaskStatesResult(Message, frozen=True):
    task_states: JsonMap


class TaskBreadcrumbsResult(Message, frozen=True):
    breadcrumbs: list[JsonMap]


class TaskRescheduleStartDate(Message, frozen=True):
    start_date: Instant | None


class SentFDs(Message, frozen=True):
    fds: list[int]


class HITLDetailRequestResult(Message, frozen=True, kw_only=True):
    """A question to people, as it was stored."""

    ti_id: str
    options: list[str]
    subject: str
    body: str | None = None
    defaults: list[str] | None = None
    multiple: bool | None = False
    params: JsonMap | None = None
    assigned_users: list[HITLUser] | None = None


Reply: TypeAlias = (
    StartupDetails
    | ErrorResponse
    | OKResponse
    | ConnectionResult
    | VariableResult
    | VariableKeysResult
    | XComResult
    | XComCountResponse
    | XComSequenceIndexResult
    | XComSequenceSliceResult
    | TaskStateStoreResult
    | AssetStateStoreResult
    | AssetResult
    | AssetsByAliasResult
    | AssetEventsResult
    | InactiveAssetsResult
    | DagResult
    | DagRunResult
    | DagRunStateResult
    | PreviousDagRunResult
    | PrevSuccessfulDagRunResult
    | PreviousTIResult
    | DRCount
    | TICount
    | TaskStatesResult
    | TaskBreadcrumbsResult
    | TaskRescheduleStartDate
    | SentFDs
    | HITLDetailRequestResult
    | CreateHITLDetailPayload
)
