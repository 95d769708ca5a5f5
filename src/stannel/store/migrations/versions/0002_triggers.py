"""Triggers: what deferred tasks wait for."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("task_instance", sa.Column("event", sa.Text))
    _create_partial("ix_task_instance_deferred", "task_instance", ["dag_id", "pool"], where="state = 'deferred'")
    op.create_index("ix_dag_run_ended", "dag_run", ["ended_at"])
    _create_trigger()


def _create_partial(
    name: str, table: str, columns: list[str | sa.TextClause], *, where: str, unique: bool = False
) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _create_trigger() -> None:
    op.create_table(
        "trigger",
        sa.Column("pk", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("classpath", sa.Text, nullable=False),
        sa.Column("kwargs", sa.Text),
        sa.Column("ti_pk", sa.BigInteger),
        sa.Column("run_pk", sa.BigInteger),
        sa.Column("dag_id", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("task_id", sa.Text),
        sa.Column("map_index", sa.Integer),
        sa.Column("try_number", sa.Integer),
        sa.Column("attempt_id", sa.Text),
        sa.Column("queue", sa.Text),
        sa.Column("priority", sa.Integer, nullable=False, server_default="1"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("deadline_at", sa.BigInteger),
        sa.Column("deadline_of", sa.Text),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("event", sa.Text),
        sa.Column("ends", sa.Text),
        sa.Column("renders", sa.Integer, nullable=False, server_default="0"),
        sa.Column("owner", sa.Text),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("claimed_at", sa.BigInteger),
        sa.Column("digest", sa.Text),
        sa.Column("asset", sa.Text),
        sa.Column("watcher", sa.Text),
        sa.Column("stream_key", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        sa.Column("last_event_at", sa.BigInteger),
        sa.Column("events", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("trouble", sa.Text),
        sa.Column("redrive", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("pk", name="pk_trigger"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trigger_ti", "trigger", ["ti_pk"])
    op.create_index("ix_trigger_run", "trigger", ["run_pk"])
    _create_partial(
        "ix_trigger_free", "trigger", [sa.text("priority DESC"), "pk"], where="owner IS NULL AND due_at IS NULL"
    )
    _create_partial("ix_trigger_owner", "trigger", ["owner", "state"], where="owner IS NOT NULL")
    _create_partial("ix_trigger_hosted", "trigger", ["queue"], where="due_at IS NULL AND state = 'waiting'")
    _create_partial("ix_trigger_due", "trigger", ["due_at"], where="due_at IS NOT NULL AND state = 'waiting'")
    _create_partial(
        "ix_trigger_deadline", "trigger", ["deadline_at"], where="deadline_at IS NOT NULL AND state = 'waiting'"
    )
    _create_partial(
        "ix_trigger_watcher", "trigger", ["digest"], where="digest IS NOT NULL AND state = 'waiting'", unique=True
    )
    _create_partial("ix_trigger_stream", "trigger", ["stream_key"], where="stream_key IS NOT NULL")
    _create_partial("ix_trigger_redrive", "trigger", ["owner"], where="redrive = 1")
