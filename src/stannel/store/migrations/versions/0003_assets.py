"""Assets: what DAGs name, the events of assets, and those that wait for a DAG."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("dag", sa.Column("events_at", sa.BigInteger))
    op.add_column("dag", sa.Column("events_held", sa.Integer, nullable=False, server_default="0"))
    _create_partial("ix_dag_events", "dag", ["events_at"], where="events_at IS NOT NULL")
    _create_assets()
    _create_events()
    _create_queue()
    _create_watchers()


def _create_partial(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _create_assets() -> None:
    op.create_table(
        "asset",
        sa.Column("pk", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uri", sa.Text, nullable=False),
        sa.Column("grouped", sa.Text, nullable=False, server_default="asset"),
        sa.Column("extra", sa.Text, nullable=False, server_default="{}"),
        sa.Column("is_active", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_asset"),
        sa.UniqueConstraint("name", "uri", name="uq_asset_name_uri"),
    )
    op.create_index("ix_asset_uri", "asset", ["uri"])
    op.create_table(
        "asset_alias",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("grouped", sa.Text, nullable=False, server_default="asset"),
        sa.PrimaryKeyConstraint("name", name="pk_asset_alias"),
    )
    op.create_table(
        "alias_asset",
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("asset_pk", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("alias", "asset_pk", name="pk_alias_asset"),
        sa.ForeignKeyConstraint(["asset_pk"], ["asset.pk"], name="fk_alias_asset_asset_pk", ondelete="CASCADE"),
    )
    op.create_index("ix_alias_asset_asset", "alias_asset", ["asset_pk"])
    op.create_table(
        "asset_reference",
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False, server_default=""),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("uri", sa.Text, nullable=False, server_default=""),
        sa.Column("takes_keys", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("dag_id", "role", "task_id", "kind", "name", "uri", name="pk_asset_reference"),
    )
    op.create_index("ix_asset_reference_name", "asset_reference", ["name"])
    op.create_index("ix_asset_reference_uri", "asset_reference", ["uri"])


def _create_events() -> None:
    op.create_table(
        "asset_event",
        sa.Column("pk", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("asset_pk", sa.BigInteger, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("happened_at", sa.BigInteger, nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("extra", sa.Text, nullable=False, server_default="{}"),
        sa.Column("partition_key", sa.Text),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("source_dag_id", sa.Text),
        sa.Column("source_task_id", sa.Text),
        sa.Column("source_run_id", sa.Text),
        sa.Column("source_map_index", sa.Integer),
        sa.Column("repeats", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("pk", name="pk_asset_event"),
        sa.UniqueConstraint("asset_pk", "identity", name="uq_asset_event_asset_pk_identity"),
    )
    op.create_index("ix_asset_event_history", "asset_event", ["asset_pk", "happened_at", "pk"])
    op.create_index("ix_asset_event_stored", "asset_event", ["stored_at"])
    op.create_table(
        "event_alias",
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("event_pk", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("alias", "event_pk", name="pk_event_alias"),
        sa.ForeignKeyConstraint(["event_pk"], ["asset_event.pk"], name="fk_event_alias_event_pk", ondelete="CASCADE"),
    )
    op.create_index("ix_event_alias_event", "event_alias", ["event_pk"])


def _create_queue() -> None:
    op.create_table(
        "event_queue",
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("event_pk", sa.BigInteger, nullable=False),
        sa.Column("is_new", sa.Integer, nullable=False, server_default="1"),
        sa.Column("is_replay", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("dag_id", "event_pk", name="pk_event_queue"),
        sa.ForeignKeyConstraint(["event_pk"], ["asset_event.pk"], name="fk_event_queue_event_pk", ondelete="CASCADE"),
    )
    op.create_index("ix_event_queue_event", "event_queue", ["event_pk"])
    _create_partial("ix_event_queue_new", "event_queue", ["dag_id"], where="is_new = 1")
    op.create_table(
        "run_event",
        sa.Column("pk", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("event_pk", sa.BigInteger, nullable=False),
        sa.Column("run_pk", sa.BigInteger),
        sa.Column("is_superseded", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("pk", name="pk_run_event"),
        sa.ForeignKeyConstraint(["event_pk"], ["asset_event.pk"], name="fk_run_event_event_pk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_pk"], ["dag_run.pk"], name="fk_run_event_run_pk", ondelete="SET NULL"),
        sa.UniqueConstraint("run_pk", "event_pk", name="uq_run_event_run_pk_event_pk"),
    )
    op.create_index("ix_run_event_event", "run_event", ["event_pk", "dag_id"])


def _create_watchers() -> None:
    op.create_table(
        "watcher",
        sa.Column("pk", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("asset_pk", sa.BigInteger, nullable=False),
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("classpath", sa.Text, nullable=False),
        sa.Column("kwargs", sa.Text),
        sa.Column("queue", sa.Text),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("stream_key", sa.Text),
        sa.Column("is_wanted", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pk", name="pk_watcher"),
        sa.ForeignKeyConstraint(["asset_pk"], ["asset.pk"], name="fk_watcher_asset_pk", ondelete="CASCADE"),
        sa.UniqueConstraint("dag_id", "asset_pk", "name", "digest", name="uq_watcher_dag_id_asset_pk_name_digest"),
    )
    op.create_index("ix_watcher_asset", "watcher", ["asset_pk"])
    op.create_index("ix_watcher_digest", "watcher", ["digest"])
    op.create_table(
        "dag_warning",
        sa.Column("dag_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("dag_id", "kind", "message", name="pk_dag_warning"),
    )
