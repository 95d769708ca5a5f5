"""Every table, declared once. Times are whole microseconds since 1970 (UTC), so any driver carries them as they are."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    text,
)

# Oldest first. A database stamped with anything else was written by a newer Stannel.
REVISIONS = ("0001", "0002", "0003", "0004")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

# SQLite numbers rows itself only when the key is spelled INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")
_Moment = BigInteger


# Candidates are read in this order, so that the first of a long queue are found without sorting all of it.
_MOST_URGENT = text("priority DESC")


def _partial(name: str, *columns: str | TextClause, where: str, unique: bool = False) -> Index:
    """An index over the living rows only, so that cost does not grow with history."""
    # PostgreSQL's own condition is put in by `store.postgres`: naming it here would import that dialect everywhere.
    return Index(name, *columns, unique=unique, sqlite_where=text(where), info={"where": where})


dag_file = Table(
    "dag_file",
    metadata,
    Column("path", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("dependencies", Text, nullable=False, server_default="[]"),
    Column("error", Text),
    Column("parsed_at", _Moment, nullable=False),
    Column("seconds", Float, nullable=False, server_default="0"),
    Column("dag_count", Integer, nullable=False, server_default="0"),
)

dag_version = Table(
    "dag_version",
    metadata,
    Column("version", Text, primary_key=True),
    Column("dag_id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("spec", Text, nullable=False),
    Column("created_at", _Moment, nullable=False),
    UniqueConstraint("dag_id", "number"),
)

dag = Table(
    "dag",
    metadata,
    Column("dag_id", Text, primary_key=True),
    Column("fileloc", Text, nullable=False),
    Column("version", Text, ForeignKey("dag_version.version"), nullable=False),
    Column("is_active", Integer, nullable=False, server_default="1"),
    Column("is_paused", Integer, nullable=False, server_default="0"),
    # Its file cannot be imported now: no new runs until it can.
    Column("is_broken", Integer, nullable=False, server_default="0"),
    Column("first_seen", _Moment, nullable=False),
    Column("parsed_at", _Moment, nullable=False),
    Column("next_logical", _Moment),
    Column("next_start", _Moment),
    Column("next_end", _Moment),
    Column("next_run_after", _Moment),
    # Set while max_active_runs holds the next run back; the end of a run takes it away.
    Column("at_limit", Integer, nullable=False, server_default="0"),
    # When to look at the asset events that wait for this DAG, though no new one came; and whether to when a run ends.
    Column("events_at", _Moment),
    Column("events_held", Integer, nullable=False, server_default="0"),
    Index("ix_dag_due", "next_run_after"),
    Index("ix_dag_file", "fileloc"),
    _partial("ix_dag_events", "events_at", where="events_at IS NOT NULL"),
)

dag_run = Table(
    "dag_run",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("dag_id", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("run_type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("run_after", _Moment, nullable=False),
    Column("logical_date", _Moment),
    Column("interval_start", _Moment),
    Column("interval_end", _Moment),
    Column("queued_at", _Moment),
    Column("started_at", _Moment),
    Column("ended_at", _Moment),
    Column("deadline_at", _Moment),
    Column("conf", Text, nullable=False, server_default="{}"),
    Column("clear_number", Integer, nullable=False, server_default="0"),
    Column("triggered_by", Text),
    Column("note", Text),
    Column("partition_key", Text),
    # Something about this run changed since a scheduler last looked at it.
    Column("dirty", Integer, nullable=False, server_default="1"),
    UniqueConstraint("dag_id", "run_id"),
    UniqueConstraint("dag_id", "logical_date"),
    _partial("ix_dag_run_living", "dag_id", "logical_date", "state", where="state IN ('queued', 'running')"),
    _partial("ix_dag_run_dirty", "pk", where="dirty = 1 AND state IN ('queued', 'running')"),
    _partial("ix_dag_run_deadline", "deadline_at", where="deadline_at IS NOT NULL AND state IN ('queued', 'running')"),
    _partial("ix_dag_run_scheduled", "dag_id", "logical_date", where="run_type = 'scheduled'"),
    Index("ix_dag_run_latest", "dag_id", "pk"),
    Index("ix_dag_run_ended", "ended_at"),
)

task_instance = Table(
    "task_instance",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("run_pk", BigInteger, ForeignKey("dag_run.pk", ondelete="CASCADE"), nullable=False),
    Column("dag_id", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("try_number", Integer, nullable=False, server_default="0"),
    Column("max_tries", Integer, nullable=False, server_default="0"),
    Column("attempt_id", Text),
    Column("pool", Text, nullable=False),
    Column("pool_slots", Integer, nullable=False, server_default="1"),
    Column("priority", Integer, nullable=False, server_default="1"),
    Column("queue", Text, nullable=False),
    Column("executor", Text),
    Column("operator", Text, nullable=False),
    Column("note", Text),
    Column("rendered_map_index", Text),
    Column("scheduled_at", _Moment),
    Column("queued_at", _Moment),
    Column("started_at", _Moment),
    Column("ended_at", _Moment),
    Column("retry_at", _Moment),
    Column("reschedules", Integer, nullable=False, server_default="0"),
    Column("next_method", Text),
    Column("next_kwargs", Text),
    # What the trigger fired that ended the wait: JSON, for the resumed task.
    Column("event", Text),
    UniqueConstraint("run_pk", "task_id", "map_index"),
    _partial("ix_task_instance_scheduled", _MOST_URGENT, "scheduled_at", "pk", where="state = 'scheduled'"),
    _partial("ix_task_instance_queued", _MOST_URGENT, "queued_at", "pk", where="state = 'queued'"),
    _partial("ix_task_instance_holding", "dag_id", "pool", where="state IN ('queued', 'running')"),
    _partial("ix_task_instance_deferred", "dag_id", "pool", where="state = 'deferred'"),
    _partial("ix_task_instance_retry", "retry_at", where="state IN ('up_for_retry', 'up_for_reschedule')"),
)

attempt = Table(
    "attempt",
    metadata,
    Column("attempt_id", Text, primary_key=True),
    Column("ti_pk", BigInteger, ForeignKey("task_instance.pk", ondelete="CASCADE"), nullable=False),
    Column("run_pk", BigInteger, nullable=False),
    Column("try_number", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text),
    Column("hostname", Text),
    Column("pid", Integer),
    Column("queued_at", _Moment, nullable=False),
    Column("started_at", _Moment),
    Column("ended_at", _Moment),
    Column("reason", Text),
    Index("ix_attempt_ti", "ti_pk"),
    _partial("ix_attempt_running", "owner", where="state = 'running'"),
)

trigger = Table(
    "trigger",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("state", Text, nullable=False),
    Column("classpath", Text, nullable=False),
    # Sealed by the vault, whatever it holds.
    Column("kwargs", Text),
    # Empty for a trigger that watches for assets. No foreign keys: a trigger outlives a deleted run for as long as its
    # `on_kill` takes.
    Column("ti_pk", BigInteger),
    Column("run_pk", BigInteger),
    Column("dag_id", Text),
    Column("run_id", Text),
    Column("task_id", Text),
    Column("map_index", Integer),
    Column("try_number", Integer),
    # The attempt that deferred: while its task still shows this one, the task waits for this trigger.
    Column("attempt_id", Text),
    Column("queue", Text),
    Column("priority", Integer, nullable=False, server_default="1"),
    Column("created_at", _Moment, nullable=False),
    Column("deadline_at", _Moment),
    # Which promise the deadline keeps: "trigger" or "execution".
    Column("deadline_of", Text),
    # A trigger that only waits for a moment: nobody runs it, and what it will fire is known already.
    Column("due_at", _Moment),
    Column("event", Text),
    Column("ends", Text),
    Column("renders", Integer, nullable=False, server_default="0"),
    Column("owner", Text),
    Column("epoch", Integer, nullable=False, server_default="0"),
    Column("claimed_at", _Moment),
    # Of a trigger that watches for assets: which watchers it serves, the names of the first of them, how it fares, and
    # whether a person asked it to begin anew. Those with the same key read one stream, and have the same owner.
    Column("digest", Text),
    Column("asset", Text),
    Column("watcher", Text),
    Column("stream_key", Text),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_at", _Moment),
    Column("last_error", Text),
    Column("last_event_at", _Moment),
    Column("events", BigInteger, nullable=False, server_default="0"),
    Column("trouble", Text),
    Column("redrive", Integer, nullable=False, server_default="0"),
    Index("ix_trigger_ti", "ti_pk"),
    Index("ix_trigger_run", "run_pk"),
    _partial("ix_trigger_free", _MOST_URGENT, "pk", where="owner IS NULL AND due_at IS NULL"),
    _partial("ix_trigger_owner", "owner", "state", where="owner IS NOT NULL"),
    # Those that a host has to run are counted often; moments may be a hundred times as many.
    _partial("ix_trigger_hosted", "queue", where="due_at IS NULL AND state = 'waiting'"),
    _partial("ix_trigger_due", "due_at", where="due_at IS NOT NULL AND state = 'waiting'"),
    _partial("ix_trigger_deadline", "deadline_at", where="deadline_at IS NOT NULL AND state = 'waiting'"),
    _partial("ix_trigger_watcher", "digest", where="digest IS NOT NULL AND state = 'waiting'", unique=True),
    _partial("ix_trigger_stream", "stream_key", where="stream_key IS NOT NULL"),
    _partial("ix_trigger_redrive", "owner", where="redrive = 1"),
    # The id of a trigger that is gone is never given to another: somebody may still speak of the first.
    sqlite_autoincrement=True,
)

xcom = Table(
    "xcom",
    metadata,
    Column("run_pk", BigInteger, ForeignKey("dag_run.pk", ondelete="CASCADE"), nullable=False),
    Column("task_id", Text, nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    # How many instances a task mapped over this value gets.
    Column("length", Integer),
    Column("created_at", _Moment, nullable=False),
    PrimaryKeyConstraint("run_pk", "task_id", "key", "map_index"),
)

rendered_fields = Table(
    "rendered_fields",
    metadata,
    Column("ti_pk", BigInteger, ForeignKey("task_instance.pk", ondelete="CASCADE"), primary_key=True),
    Column("fields", Text, nullable=False),
)

callback = Table(
    "callback",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("run_pk", BigInteger, ForeignKey("dag_run.pk", ondelete="CASCADE"), nullable=False),
    Column("ti_pk", BigInteger),
    Column("kind", Text, nullable=False),
    Column("reason", Text),
    Column("state", Text, nullable=False),
    Column("owner", Text),
    Column("created_at", _Moment, nullable=False),
    Index("ix_callback_run", "run_pk"),
    _partial("ix_callback_living", "state", where="state IN ('queued', 'running')"),
)

asset = Table(
    "asset",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("grouped", Text, nullable=False, server_default="asset"),
    Column("extra", Text, nullable=False, server_default="{}"),
    # Some DAG refers to it, and no other active asset has its name or its URI.
    Column("is_active", Integer, nullable=False, server_default="0"),
    Column("created_at", _Moment, nullable=False),
    UniqueConstraint("name", "uri"),
    Index("ix_asset_uri", "uri"),
)

asset_alias = Table(
    "asset_alias",
    metadata,
    Column("name", Text, primary_key=True),
    Column("grouped", Text, nullable=False, server_default="asset"),
)

# Which assets were emitted through an alias.
alias_asset = Table(
    "alias_asset",
    metadata,
    Column("alias", Text, nullable=False),
    Column("asset_pk", BigInteger, ForeignKey("asset.pk", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("alias", "asset_pk"),
    Index("ix_alias_asset_asset", "asset_pk"),
)

# What a DAG names, and where: in its schedule, or as inlet or outlet of a task.
asset_reference = Table(
    "asset_reference",
    metadata,
    Column("dag_id", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("task_id", Text, nullable=False, server_default=""),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("uri", Text, nullable=False, server_default=""),
    # The author chose how events become runs, so that those of single partitions are wanted, too.
    Column("takes_keys", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("dag_id", "role", "task_id", "kind", "name", "uri"),
    Index("ix_asset_reference_name", "name"),
    Index("ix_asset_reference_uri", "uri"),
)

asset_event = Table(
    "asset_event",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("asset_pk", BigInteger, nullable=False),
    Column("identity", Text, nullable=False),
    # When it happened, and when we were told.
    Column("happened_at", _Moment, nullable=False),
    Column("stored_at", _Moment, nullable=False),
    Column("extra", Text, nullable=False, server_default="{}"),
    Column("partition_key", Text),
    Column("source", Text, nullable=False),
    # No foreign keys: an event outlives the run that emitted it.
    Column("source_dag_id", Text),
    Column("source_task_id", Text),
    Column("source_run_id", Text),
    Column("source_map_index", Integer),
    # How often the same event was told again.
    Column("repeats", Integer, nullable=False, server_default="0"),
    UniqueConstraint("asset_pk", "identity"),
    Index("ix_asset_event_history", "asset_pk", "happened_at", "pk"),
    Index("ix_asset_event_stored", "stored_at"),
)

event_alias = Table(
    "event_alias",
    metadata,
    Column("alias", Text, nullable=False),
    Column("event_pk", BigInteger, ForeignKey("asset_event.pk", ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("alias", "event_pk"),
    Index("ix_event_alias_event", "event_pk"),
)

# Events that wait for a DAG. They wait while it is paused, broken or at its limit, too.
event_queue = Table(
    "event_queue",
    metadata,
    Column("dag_id", Text, nullable=False),
    Column("event_pk", BigInteger, ForeignKey("asset_event.pk", ondelete="CASCADE"), nullable=False),
    # No scheduler has looked at it yet.
    Column("is_new", Integer, nullable=False, server_default="1"),
    # A person asked for it again, though a run consumed it before.
    Column("is_replay", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("dag_id", "event_pk"),
    Index("ix_event_queue_event", "event_pk"),
    _partial("ix_event_queue_new", "dag_id", where="is_new = 1"),
)

# Which events a DAG has had. It is known though the run is deleted, so that none is ever taken for new again.
run_event = Table(
    "run_event",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("dag_id", Text, nullable=False),
    Column("event_pk", BigInteger, ForeignKey("asset_event.pk", ondelete="CASCADE"), nullable=False),
    Column("run_pk", BigInteger, ForeignKey("dag_run.pk", ondelete="SET NULL")),
    # A newer event of its asset took its place in this run.
    Column("is_superseded", Integer, nullable=False, server_default="0"),
    UniqueConstraint("run_pk", "event_pk"),
    Index("ix_run_event_event", "event_pk", "dag_id"),
)

# Who watches for an asset, as each DAG that names it says; several DAGs may say the same.
watcher = Table(
    "watcher",
    metadata,
    Column("pk", _Serial, primary_key=True, autoincrement=True),
    Column("asset_pk", BigInteger, ForeignKey("asset.pk", ondelete="CASCADE"), nullable=False),
    Column("dag_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("classpath", Text, nullable=False),
    # Sealed by the vault; equal triggers are known by their digest.
    Column("kwargs", Text),
    Column("queue", Text),
    Column("digest", Text, nullable=False),
    Column("stream_key", Text),
    # 1: a DAG that is not paused is scheduled on the asset. 2: only paused ones are.
    Column("is_wanted", Integer, nullable=False, server_default="0"),
    Column("created_at", _Moment, nullable=False),
    UniqueConstraint("dag_id", "asset_pk", "name", "digest"),
    Index("ix_watcher_asset", "asset_pk"),
    Index("ix_watcher_digest", "digest"),
)

dag_warning = Table(
    "dag_warning",
    metadata,
    Column("dag_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    PrimaryKeyConstraint("dag_id", "kind", "message"),
)

# What a task instance keeps for itself, over all its tries.
task_state = Table(
    "task_state",
    metadata,
    Column("run_pk", BigInteger, ForeignKey("dag_run.pk", ondelete="CASCADE"), nullable=False),
    Column("task_id", Text, nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("updated_at", _Moment, nullable=False),
    Column("expires_at", _Moment),
    PrimaryKeyConstraint("run_pk", "task_id", "map_index", "key"),
    _partial("ix_task_state_expiry", "expires_at", where="expires_at IS NOT NULL"),
)

# What is kept with an asset, whoever wrote it; `writer` is JSON.
asset_state = Table(
    "asset_state",
    metadata,
    Column("asset_pk", BigInteger, ForeignKey("asset.pk", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("updated_at", _Moment, nullable=False),
    Column("writer", Text, nullable=False, server_default="{}"),
    PrimaryKeyConstraint("asset_pk", "key"),
)

lease = Table(
    "lease",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("started_at", _Moment, nullable=False),
    Column("renewed_at", _Moment, nullable=False),
    Column("expires_at", _Moment, nullable=False),
    Column("detail", Text, nullable=False, server_default="{}"),
)

pool = Table(
    "pool",
    metadata,
    Column("name", Text, primary_key=True),
    Column("slots", Integer, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("include_deferred", Integer, nullable=False, server_default="0"),
)

variable = Table(
    "variable",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("description", Text),
)

connection = Table(
    "connection",
    metadata,
    Column("conn_id", Text, primary_key=True),
    Column("conn_type", Text, nullable=False),
    Column("host", Text),
    Column("schema", Text),
    Column("login", Text),
    Column("password", Text),
    Column("port", Integer),
    Column("extra", Text),
    Column("description", Text),
)
