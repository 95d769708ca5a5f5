"""Every message a task process may send. The six terminal ones end the attempt; every one of them is answered."""

from datetime import timedelta
from typing import Any, Literal, TypeAlias

from msgspec import field

from stannel.protocol.data import AssetProfile, HITLUser, Instant, JsonMap, Message, TaskInstanceState


class SucceedTask(Message, frozen=True, kw_only=True):
    """The task is done; its outlets and their events travel along."""

    state: Literal["success"] | None = "success"
    end_date: Instant
    task_outlets: list[AssetProfile] | None = None
    outlet_events: list[JsonMap] | None = None
    rendered_map_index: str | None = None


class TaskState(Message, frozen=True, kw_only=True):
    """The task ended without success and without a wish to be retried."""

    state: Literal["failed", "skipped", "removed"]
    end_date: Instant | None = None
    rendered_map_index: str | None = None


class RetryTask(Message, frozen=True, kw_only=True):
    """The task failed and has tries left."""

    state: Literal["up_for_retry"] | None = "up_for_retry"
    end_date: Instant
    rendered_map_index: str | None = None
    retry_delay_seconds: float | None = None
    retry_reason: str | None = None


class DeferTask(Message, frozen=True, kw_only=True):
    """The task hands its waiting to a trigger and is resumed at `next_method`."""

    state: Literal["deferred"] | None = "deferred"
    classpath: str
    trigger_kwargs: JsonMap | str | None = None
    trigger_timeout: timedelta | None = None
    queue: str | None = None
    next_method: str
    next_kwargs: JsonMap | None = None
    rendered_map_index: str | None = None


class RescheduleTask(Message, frozen=True, kw_only=True):
    """The task asks to be started again at a given moment; this does not use up a try."""

    state: Literal["up_for_reschedule"] | None = "up_for_reschedule"
    reschedule_date: Instant
    end_date: Instant


class AwaitInputTask(Message, frozen=True, kw_only=True):
    """The task waits for people and is resumed at `next_method`."""

    state: Literal["awaiting_input"] | None = "awaiting_input"
    timeout: timedelta | None = None
    next_method: str
    next_kwargs: JsonMap | None = None
    rendered_map_index: str | None = None


class SkipDownstreamTasks(Message, frozen=True):
    """Marks downstream tasks skipped; not terminal, the task still has to succeed."""

    tasks: list[str | tuple[str, int]]


class GetConnection(Message, frozen=True):
    conn_id: str


class GetVariable(Message, frozen=True):
    key: str


class GetVariableKeys(Message, frozen=True, kw_only=True):
    prefix: str | None = None
    limit: int = 1000
    offset: int = 0


class PutVariable(Message, frozen=True):
    key: str
    value: str | None
    description: str | None

    def __repr__(self) -> str:
        return f"PutVariable(key={self.key!r}, ...)"


class DeleteVariable(Message, frozen=True):
    key: str


class GetXCom(Message, frozen=True, kw_only=True):
    key: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None = None
    include_prior_dates: bool = False


class SetXCom(Message, frozen=True, kw_only=True):
    key: str
    value: Any
    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None = None
    dag_result: bool = False
    mapped_length: int | None = None


class DeleteXCom(Message, frozen=True, kw_only=True):
    key: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None = None


class GetXComCount(Message, frozen=True, kw_only=True):
    key: str
    dag_id: str
    run_id: str
    task_id: str


class GetXComSequenceItem(Message, frozen=True, kw_only=True):
    key: str
    dag_id: str
    run_id: str
    task_id: str
    offset: int


class GetXComSequenceSlice(Message, frozen=True, kw_only=True):
    key: str
    dag_id: str
    run_id: str
    task_id: str
    start: int | None
    stop: int | None
    step: int | None
    include_prior_dates: bool = False


class GetTaskStateStore(Message, frozen=True):
    ti_id: str
    key: str


class SetTaskStateStore(Message, frozen=True, kw_only=True):
    ti_id: str
    key: str
    value: Any
    expires_at: Instant | None


class DeleteTaskStateStore(Message, frozen=True):
    ti_id: str
    key: str


class ClearTaskStateStore(Message, frozen=True):
    ti_id: str


class GetAssetStateStoreByName(Message, frozen=True):
    name: str
    key: str


class GetAssetStateStoreByUri(Message, frozen=True):
    uri: str
    key: str


class SetAssetStateStoreByName(Message, frozen=True):
    name: str
    key: str
    value: Any


class SetAssetStateStoreByUri(Message, frozen=True):
    uri: str
    key: str
    value: Any


class DeleteAssetStateStoreByName(Message, frozen=True):
    name: str
    key: str


class DeleteAssetStateStoreByUri(Message, frozen=True):
    uri: str
    key: str


class ClearAssetStateStoreByName(Message, frozen=True):
    name: str


class ClearAssetStateStoreByUri(Message, frozen=True):
    uri: str


class ChangeStateStore(Message, frozen=True, kw_only=True):
    """Stannel's own: changes to several keys of one task instance or asset, all or none, if all is as expected.

    A value of nil in `expect` says that there is no such key. If the `OKResponse` is not `ok`, nothing was done.
    """

    ti_id: str | None = None
    name: str | None = None
    uri: str | None = None
    put: JsonMap = field(default_factory=dict)
    expires_at: dict[str, Instant] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    expect: JsonMap = field(default_factory=dict)


class GetAssetByName(Message, frozen=True):
    name: str


class GetAssetByUri(Message, frozen=True):
    uri: str


class GetAssetsByAlias(Message, frozen=True):
    alias_name: str


class GetAssetEventByAsset(Message, frozen=True, kw_only=True):
    name: str | None
    uri: str | None
    after: Instant | None = None
    before: Instant | None = None
    limit: int | None = None
    ascending: bool = True
    partition_key: str | None = None
    partition_key_regexp_pattern: str | None = None
    extra: dict[str, str] | None = None


class GetAssetEventByAssetAlias(Message, frozen=True, kw_only=True):
    alias_name: str
    after: Instant | None = None
    before: Instant | None = None
    limit: int | None = None
    ascending: bool = True
    partition_key: str | None = None
    partition_key_regexp_pattern: str | None = None
    extra: dict[str, str] | None = None


class ValidateInletsAndOutlets(Message, frozen=True):
    ti_id: str


class GetDag(Message, frozen=True):
    dag_id: str


class GetDagRun(Message, frozen=True):
    dag_id: str
    run_id: str


class GetDagRunState(Message, frozen=True):
    dag_id: str
    run_id: str


class GetPreviousDagRun(Message, frozen=True):
    dag_id: str
    logical_date: Instant
    state: str | None = None


class GetPrevSuccessfulDagRun(Message, frozen=True):
    ti_id: str


class GetPreviousTI(Message, frozen=True, kw_only=True):
    dag_id: str
    task_id: str
    logical_date: Instant | None = None
    map_index: int = -1
    state: TaskInstanceState | None = None


class GetDRCount(Message, frozen=True, kw_only=True):
    dag_id: str
    logical_dates: list[Instant] | None = None
    run_ids: list[str] | None = None
    states: list[str] | None = None


class GetTICount(Message, frozen=True, kw_only=True):
    dag_id: str
    map_index: int | None = None
    task_ids: list[str] | None = None
    task_group_id: str | None = None
    logical_dates: list[Instant] | None = None
    run_ids: list[str] | None = None
    states: list[str] | None = None


class GetTaskStates(Message, frozen=True, kw_only=True):
    dag_id: str
    map_index: int | None = None
    task_ids: list[str] | None = None
    task_group_id: str | None = None
    logical_dates: list[Instant] | None = None
    run_ids: list[str] | None = None


class GetTaskBreadcrumbs(Message, frozen=True):
    dag_id: str
    run_id: str


class GetTaskRescheduleStartDate(Message, frozen=True):
    ti_id: str
    try_number: int = 1


class TriggerDagRun(Message, frozen=True, kw_only=True):
    dag_id: str
    run_id: str
    logical_date: Instant | None = None
    run_after: Instant | None = None
    conf: JsonMap | None = None
    reset_dag_run: bool | None = False
    partition_key: str | None = None
    note: str | None = None


class SetRenderedFields(Message, frozen=True):
    rendered_fields: JsonMap


class SetRenderedMapIndex(Message, frozen=True):
    rendered_map_index: str


class MaskSecret(Message, frozen=True):
    """Adds a value to the redaction set; it must never be logged, so it has no readable form."""

    value: Any
    name: str | None = None

    def __repr__(self) -> str:
        return "MaskSecret(...)"


class ResendLoggingFD(Message, frozen=True):
    """Asks for the log descriptor again; only possible on Unix sockets."""


class CreateHITLDetailPayload(Message, frozen=True, kw_only=True):
    """A question to people. Also legal as a reply."""

    ti_id: str
    options: list[str]
    subject: str
    body: str | None = None
    defaults: list[str] | None = None
    multiple: bool | None = False
    params: JsonMap | None = None
    assigned_users: list[HITLUser] | None = None


class GetHITLDetailResponse(Message, frozen=True):
    ti_id: str


class UpdateHITLDetail(Message, frozen=True):
    ti_id: str
    chosen_options: list[str]
    params_input: JsonMap | None = None


Terminal: TypeAlias = SucceedTask | TaskState | RetryTask | DeferTask | RescheduleTask | AwaitInputTask

Request: TypeAlias = (
    Terminal
    | SkipDownstreamTasks
    | GetConnection
    | GetVariable
    | GetVariableKeys
    | PutVariable
    | DeleteVariable
    | GetXCom
    | SetXCom
    | DeleteXCom
    | GetXComCount
    | GetXComSequenceItem
    | GetXComSequenceSlice
    | GetTaskStateStore
    | SetTaskStateStore
    | DeleteTaskStateStore
    | ClearTaskStateStore
    | GetAssetStateStoreByName
    | GetAssetStateStoreByUri
    | SetAssetStateStoreByName
    | SetAssetStateStoreByUri
    | DeleteAssetStateStoreByName
    | DeleteAssetStateStoreByUri
    | ClearAssetStateStoreByName
    | ClearAssetStateStoreByUri
    | ChangeStateStore
    | GetAssetByName
    | GetAssetByUri
    | GetAssetsByAlias
    | GetAssetEventByAsset
    | GetAssetEventByAssetAlias
    | ValidateInletsAndOutlets
    | GetDag
    | GetDagRun
    | GetDagRunState
    | GetPreviousDagRun
    | GetPrevSuccessfulDagRun
    | GetPreviousTI
    | GetDRCount
    | GetTICount
    | GetTaskStates
    | GetTaskBreadcrumbs
    | GetTaskRescheduleStartDate
    | TriggerDagRun
    | SetRenderedFields
    | SetRenderedMapIndex
    | MaskSecret
    | ResendLoggingFD
    | CreateHITLDetailPayload
    | GetHITLDetailResponse
    | UpdateHITLDetail
)
