"""The structures that travel inside messages: the task instance, its run, its context, assets."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from stannel.model.ids import UNMAPPED
from stannel.model.run import RunType
from stannel.model.states import RunState

Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
JsonMap: TypeAlias = dict[str, Any]
TaskInstanceState: TypeAlias = Literal[
    "removed",
    "scheduled",
    "queued",
    "running",
    "success",
    "restarting",
    "failed",
    "up_for_retry",
    "up_for_reschedule",
    "upstream_failed",
    "skipped",
    "deferred",
    "awaiting_input",
]


def unmapped(map_index: int | None) -> int:
    """The map index as the store knows it: nil, absent and every negative number mean "not mapped", -1."""
    return UNMAPPED if map_index is None or map_index < 0 else map_index


class Message(Struct, frozen=True, tag_field="type", tag=True):
    """Everything that has a `type` on the wire; the type is the class name. Unknown keys are ignored."""


class Nested(Struct, frozen=True, kw_only=True):
    """Everything that only travels inside a message. Unknown keys are ignored."""


class TaskInstance(Nested, frozen=True, kw_only=True):
    """Which task, in which run, for the how many-th time."""

    id: str
    task_id: str
    dag_id: str
    run_id: str
    try_number: int
    dag_version_id: str
    map_index: int = UNMAPPED
    hostname: str | None = None
    context_carrier: JsonMap | None = None
    queue: str = "default"


class BundleInfo(Nested, frozen=True, kw_only=True):
    """Where the DAG file came from."""

    name: str
    version: str | None = None
    version_data: JsonMap | None = None


class AssetReferenceAssetEventDagRun(Nested, frozen=True, kw_only=True):
    """The asset of a consumed event."""

    name: str
    uri: str
    extra: JsonMap


class AssetAliasReferenceAssetEventDagRun(Nested, frozen=True, kw_only=True):
    """An alias through which a consumed event was emitted."""

    name: str


class AssetEventDagRunReference(Nested, frozen=True, kw_only=True):
    """An asset event that a run consumed."""

    asset: AssetReferenceAssetEventDagRun
    extra: JsonMap
    source_task_id: str | None
    source_dag_id: str | None
    source_run_id: str | None
    source_map_index: int | None
    source_aliases: list[AssetAliasReferenceAssetEventDagRun]
    timestamp: Instant
    partition_key: str | None = None


class DagRun(Nested, frozen=True, kw_only=True):
    """The run a task belongs to."""

    dag_id: str
    run_id: str
    logical_date: Instant | None
    data_interval_start: Instant | None
    data_interval_end: Instant | None
    run_after: Instant
    start_date: Instant | None
    end_date: Instant | None
    clear_number: int = 0
    run_type: RunType
    state: RunState
    conf: JsonMap | None = None
    triggering_user_name: str | None = None
    consumed_asset_events: list[AssetEventDagRunReference]
    partition_key: str | None
    partition_date: Instant | None = None
    note: str | None = None
    team_name: str | None = None


class XComArgBinding(Nested, frozen=True, kw_only=True, tag_field="kind", tag="xcom"):
    """An argument that is the return value of an upstream task."""

    name: str
    task_id: str
    value_schema: JsonMap | UnsetType | None = UNSET


class LiteralArgBinding(Nested, frozen=True, kw_only=True, tag_field="kind", tag="literal"):
    """An argument whose value stands in the DAG file."""

    name: str
    value: Any = None
    value_schema: JsonMap | UnsetType | None = UNSET
    from_default: bool = False


TaskArgBinding: TypeAlias = XComArgBinding | LiteralArgBinding


class VariableResponse(Nested, frozen=True, kw_only=True):
    """A variable delivered with the context."""

    key: str
    value: str | None

    def __repr__(self) -> str:
        return f"VariableResponse(key={self.key!r}, ...)"


class ConnectionResponse(Nested, frozen=True, kw_only=True):
    """A connection delivered with the context; `extra` is JSON text."""

    conn_id: str
    conn_type: str
    host: str | None
    schema: str | None
    login: str | None
    password: str | None
    port: int | None
    extra: str | None

    def __repr__(self) -> str:
        return f"ConnectionResponse(conn_id={self.conn_id!r}, ...)"


class TIRunContext(Nested, frozen=True, kw_only=True):
    """What the engine decided before the attempt started. `stannel` is for our own Python runner only."""

    dag_run: DagRun
    task_reschedule_count: int = 0
    max_tries: int
    variables: list[VariableResponse] = []
    connections: list[ConnectionResponse] = []
    next_method: str | None = None
    next_kwargs: JsonMap | str | None = None
    xcom_keys_to_clear: list[str] = []
    should_retry: bool = False
    start_date: Instant | None = None
    arg_bindings: list[TaskArgBinding] | UnsetType | None = UNSET
    stannel: JsonMap | UnsetType = UNSET


class AssetProfile(Nested, frozen=True, kw_only=True):
    """An outlet of a task; `type` is Asset, AssetNameRef, AssetUriRef or AssetAlias."""

    name: str | None = None
    uri: str | None = None
    type: str


class AssetResponse(Nested, frozen=True, kw_only=True):
    """An asset inside an asset event."""

    name: str
    uri: str
    group: str
    extra: JsonMap | None = None


class DagRunAssetReference(Nested, frozen=True, kw_only=True):
    """A run that an asset event started."""

    run_id: str
    dag_id: str
    logical_date: Instant | None
    start_date: Instant | None
    end_date: Instant | None
    state: str
    data_interval_start: Instant | None
    data_interval_end: Instant | None
    partition_key: str | None


class AssetEventResponse(Nested, frozen=True, kw_only=True):
    """An asset event as a query returns it."""

    id: int
    timestamp: Instant
    extra: JsonMap | None = None
    asset: AssetResponse
    created_dagruns: list[DagRunAssetReference]
    source_task_id: str | None = None
    source_dag_id: str | None = None
    source_run_id: str | None = None
    source_map_index: int | None = None
    partition_key: str | None = None


class PreviousTIResponse(Nested, frozen=True, kw_only=True):
    """An earlier instance of a task."""

    task_id: str
    dag_id: str
    run_id: str
    logical_date: Instant | None = None
    start_date: Instant | None = None
    end_date: Instant | None = None
    state: str | None = None
    try_number: int
    map_index: int | None = UNMAPPED
    duration: float | None = None


class HITLUser(Nested, frozen=True, kw_only=True):
    """Someone who may answer a question put to people."""

    id: str
    name: str
