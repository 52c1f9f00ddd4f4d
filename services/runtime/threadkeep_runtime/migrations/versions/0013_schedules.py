"""Schedules, and which tasks they submitted."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Makes the table; adds a column that needs no filling in, and an index that is built without blocking writers."""
    op.create_table(
        "schedules",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("schedule_id", Key(), nullable=False),
        sa.Column("incarnation", Key(), nullable=False),
        sa.Column("title", JsonText(), nullable=False),
        sa.Column("cron", Key(), nullable=False),
        sa.Column("time_zone", Key(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("max_missed", sa.Integer(), nullable=False),
        sa.Column("task", Bytes(), nullable=False),
        sa.Column("next_fire_time", UtcTimestamp()),
        sa.Column("last_fire_time", UtcTimestamp()),
        sa.Column("last_submit_time", UtcTimestamp()),
        sa.Column("last_task_id", Key()),
        sa.Column("last_failure", JsonText()),
        sa.Column("task_count", sa.BigInteger(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "schedule_id", name="schedules_pkey"),
        sa.CheckConstraint("policy IN ('SKIP', 'ONCE', 'ALL')", name="schedules_policy_known"),
    )
    op.create_index(
        "schedules_by_scope_key_create_time_schedule_id", "schedules", ["scope_key", "create_time", "schedule_id"]
    )
    where = sa.text("next_fire_time IS NOT NULL")
    op.create_index("schedules_due", "schedules", ["next_fire_time"], postgresql_where=where, sqlite_where=where)
    op.add_column("tasks", sa.Column("schedule_id", Key()))
    columns = ["scope_key", "schedule_id", "create_time", "task_id"]
    where = sa.text("schedule_id IS NOT NULL")
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.create_index(
                "tasks_of_schedule",
                "tasks",
                columns,
                postgresql_where=where,
                postgresql_concurrently=True,
                if_not_exists=True,
            )
    else:
        op.create_index("tasks_of_schedule", "tasks", columns, sqlite_where=where)
