"""The first schema: DAGs, their runs and tasks, and what people keep beside them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_dag_file()
    _create_dag_version()
    _create_dag()
    _create_dag_run()
    _create_task_instance()
    _create_attempt()
    _create_xcom()
    _create_rendered_fields()
    _create_callback()
    _create_lease()
    _create_pool()
    _create_variable()
    _create_connection()
    op.bulk_insert(
        sa.table("pool", sa.column("name"), sa.column("slots"), sa.column("description")),
        [{"name": "default_pool", "slots": 128, "description": "Where tasks go that name no pool"}],
    )


def _create_partial(name: str, table: str, columns: Sequence[str | sa.TextClause], *, where: str) -> None:
    op.create_index(name, table, list(columns), sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _create_dag_file() -> None:
    op.create_table(
        "dag_file",
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("dependencies", sa.Text, nullable=False, server_default="[]"),
        sa.Column("error", sa.Text),
        sa.Column("parsed_at", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False, server_default="0"),
        sa.Column("dag_count", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("path", name="pk_dag_file"),
    )


def _create_dag_version() -> None:
    op.create_table(
        "dag_version",
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_dag_version"),
        sa.UniqueConstraint("dag_id", "number", name="uq_dag_version_dag_id_number"),
    )


def _create_dag() -> None:
    op.create_table(
        "dag",
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("fileloc", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("is_active", sa.Integer, nullable=False, server_default="1"),
        sa.Column("is_paused", sa.Integer, nullable=False, server_default="0"),
        sa.Column("is_broken", sa.Integer, nullable=False, server_default="0"),
        sa.Column("first_seen", sa.BigInteger, nullable=False),
        sa.Column("parsed_at", sa.BigInteger, nullable=False),
        sa.Column("next_logical", sa.BigInteger),
        sa.Column("next_start", sa.BigInteger),
        sa.Column("next_end", sa.BigInteger),
        sa.Column("next_run_after", sa.BigInteger),
        sa.Column("at_limit", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("dag_id", name="pk_dag"),
        sa.ForeignKeyConstraint(["version"], ["dag_version.version"], name="fk_dag_version"),
    )
    op.create_index("ix_dag_due", "dag", ["next_run_after"])
    op.create_index("ix_dag_file", "dag", ["fileloc"])


def _create_dag_run() -> None:
    op.create_table(
        "dag_run",
        sa.Column("pk", SERIAL, nullable=False, autoincrement=True),
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("run_type", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("run_after", sa.BigInteger, nullable=False),
        sa.Column("logical_date", sa.BigInteger),
        sa.Column("interval_start", sa.BigInteger),
        sa.Column("interval_end", sa.BigInteger),
        sa.Column("queued_at", sa.BigInteger),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("deadline_at", sa.BigInteger),
        sa.Column("conf", sa.Text, nullable=False, server_default="{}"),
        sa.Column("clear_number", sa.Integer, nullable=False, server_default="0"),
        sa.Column("triggered_by", sa.Text),
        sa.Column("note", sa.Text),
        sa.Column("partition_key", sa.Text),
        sa.Column("dirty", sa.Integer, nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("pk", name="pk_dag_run"),
        sa.UniqueConstraint("dag_id", "logical_date", name="uq_dag_run_dag_id_logical_date"),
        sa.UniqueConstraint("dag_id", "run_id", name="uq_dag_run_dag_id_run_id"),
    )
    _create_partial(
        "ix_dag_run_deadline",
        "dag_run",
        ["deadline_at"],
        where="deadline_at IS NOT NULL AND state IN ('queued', 'running')",
    )
    _create_partial("ix_dag_run_dirty", "dag_run", ["pk"], where="dirty = 1 AND state IN ('queued', 'running')")
    op.create_index("ix_dag_run_latest", "dag_run", ["dag_id", "pk"])
    _create_partial(
        "ix_dag_run_living", "dag_run", ["dag_id", "logical_date", "state"], where="state IN ('queued', 'running')"
    )
    _create_partial("ix_dag_run_scheduled", "dag_run", ["dag_id", "logical_date"], where="run_type = 'scheduled'")


def _create_task_instance() -> None:
    op.create_table(
        "task_instance",
        sa.Column("pk", SERIAL, nullable=False, autoincrement=True),
        sa.Column("run_pk", sa.BigInteger, nullable=False),
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("try_number", sa.Integer, nullable=False, server_default="0"),
        sa.Column("max_tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempt_id", sa.Text),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("pool_slots", sa.Integer, nullable=False, server_default="1"),
        sa.Column("priority", sa.Integer, nullable=False, server_default="1"),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("executor", sa.Text),
        sa.Column("operator", sa.Text, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("rendered_map_index", sa.Text),
        sa.Column("scheduled_at", sa.BigInteger),
        sa.Column("queued_at", sa.BigInteger),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("retry_at", sa.BigInteger),
        sa.Column("reschedules", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_method", sa.Text),
        sa.Column("next_kwargs", sa.Text),
        sa.PrimaryKeyConstraint("pk", name="pk_task_instance"),
        sa.ForeignKeyConstraint(["run_pk"], ["dag_run.pk"], name="fk_task_instance_run_pk", ondelete="CASCADE"),
        sa.UniqueConstraint("run_pk", "task_id", "map_index", name="uq_task_instance_run_pk_task_id_map_index"),
    )
    _create_partial(
        "ix_task_instance_holding", "task_instance", ["dag_id", "pool"], where="state IN ('queued', 'running')"
    )
    _create_partial(
        "ix_task_instance_queued",
        "task_instance",
        [sa.text("priority DESC"), "queued_at", "pk"],
        where="state = 'queued'",
    )
    _create_partial(
        "ix_task_instance_retry", "task_instance", ["retry_at"], where="state IN ('up_for_retry', 'up_for_reschedule')"
    )
    _create_partial(
        "ix_task_instance_scheduled",
        "task_instance",
        [sa.text("priority DESC"), "scheduled_at", "pk"],
        where="state = 'scheduled'",
    )


def _create_attempt() -> None:
    op.create_table(
        "attempt",
        sa.Column("attempt_id", sa.Text, nullable=False),
        sa.Column("ti_pk", sa.BigInteger, nullable=False),
        sa.Column("run_pk", sa.BigInteger, nullable=False),
        sa.Column("try_number", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("hostname", sa.Text),
        sa.Column("pid", sa.Integer),
        sa.Column("queued_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_attempt"),
        sa.ForeignKeyConstraint(["ti_pk"], ["task_instance.pk"], name="fk_attempt_ti_pk", ondelete="CASCADE"),
    )
    _create_partial("ix_attempt_running", "attempt", ["owner"], where="state = 'running'")
    op.create_index("ix_attempt_ti", "attempt", ["ti_pk"])


def _create_xcom() -> None:
    op.create_table(
        "xcom",
        sa.Column("run_pk", sa.BigInteger, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("length", sa.Integer),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_pk", "task_id", "key", "map_index", name="pk_xcom"),
        sa.ForeignKeyConstraint(["run_pk"], ["dag_run.pk"], name="fk_xcom_run_pk", ondelete="CASCADE"),
    )


def _create_rendered_fields() -> None:
    op.create_table(
        "rendered_fields",
        sa.Column("ti_pk", sa.BigInteger, nullable=False),
        sa.Column("fields", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("ti_pk", name="pk_rendered_fields"),
        sa.ForeignKeyConstraint(["ti_pk"], ["task_instance.pk"], name="fk_rendered_fields_ti_pk", ondelete="CASCADE"),
    )


def _create_callback() -> None:
    op.create_table(
        "callback",
        sa.Column("pk", SERIAL, nullable=False, autoincrement=True),
        sa.Column("run_pk", sa.BigInteger, nullable=False),
        sa.Column("ti_pk", sa.BigInteger),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_callback"),
        sa.ForeignKeyConstraint(["run_pk"], ["dag_run.pk"], name="fk_callback_run_pk", ondelete="CASCADE"),
    )
    _create_partial("ix_callback_living", "callback", ["state"], where="state IN ('queued', 'running')")
    op.create_index("ix_callback_run", "callback", ["run_pk"])


def _create_lease() -> None:
    op.create_table(
        "lease",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("renewed_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("owner", name="pk_lease"),
    )


def _create_pool() -> None:
    op.create_table(
        "pool",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("include_deferred", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("name", name="pk_pool"),
    )


def _create_variable() -> None:
    op.create_table(
        "variable",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("description", sa.Text),
        sa.PrimaryKeyConstraint("key", name="pk_variable"),
    )


def _create_connection() -> None:
    op.create_table(
        "connection",
        sa.Column("conn_id", sa.Text, nullable=False),
        sa.Column("conn_type", sa.Text, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("schema", sa.Text),
        sa.Column("login", sa.Text),
        sa.Column("password", sa.Text),
        sa.Column("port", sa.Integer),
        sa.Column("extra", sa.Text),
        sa.Column("description", sa.Text),
        sa.PrimaryKeyConstraint("conn_id", name="pk_connection"),
    )
