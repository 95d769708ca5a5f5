"""State stores: what task instances and assets keep for themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "task_state",
        sa.Column("run_pk", sa.BigInteger, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("run_pk", "task_id", "map_index", "key", name="pk_task_state"),
        sa.ForeignKeyConstraint(["run_pk"], ["dag_run.pk"], name="fk_task_state_run_pk", ondelete="CASCADE"),
    )
    where = sa.text("expires_at IS NOT NULL")
    op.create_index("ix_task_state_expiry", "task_state", ["expires_at"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "asset_state",
        sa.Column("asset_pk", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("writer", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("asset_pk", "key", name="pk_asset_state"),
        sa.ForeignKeyConstraint(["asset_pk"], ["asset.pk"], name="fk_asset_state_asset_pk", ondelete="CASCADE"),
    )
