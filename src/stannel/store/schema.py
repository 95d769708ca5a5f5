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
REVISIONS = ("0001",)

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


def _partial(name: str, *columns: str | TextClause, where: str) -> Index:
    """An index over the living rows only, so that cost does not grow with history."""
    # PostgreSQL's own condition is put in by `store.postgres`: naming it here would import that dialect everywhere.
    return Index(name, *columns, sqlite_where=text(where), info={"where": where})


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
    Index("ix_dag_due", "next_run_after"),
    Index("ix_dag_file", "fileloc"),
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
    UniqueConstraint("run_pk", "task_id", "map_index"),
    _partial("ix_task_instance_scheduled", _MOST_URGENT, "scheduled_at", "pk", where="state = 'scheduled'"),
    _partial("ix_task_instance_queued", _MOST_URGENT, "queued_at", "pk", where="state = 'queued'"),
    _partial("ix_task_instance_holding", "dag_id", "pool", where="state IN ('queued', 'running')"),
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
