"""The outbox: messages, their targets' lines, and where a task's end is posted to."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp

revision = "0010"
down_revision = "0008"


def upgrade() -> None:
    """Makes both tables and adds a column to tasks."""
    op.create_table(
        "outbox",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("message_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("run_id", Key()),
        sa.Column("task_id", Key()),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("secret", Key()),
        sa.Column("target_key", Key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("type", Key(), nullable=False),
        sa.Column("payload", Bytes()),
        sa.Column("payload_size", sa.BigInteger(), nullable=False),
        sa.Column("arrival", Bytes()),
        sa.Column("dedupe_key", Key()),
        sa.Column("fingerprint", Bytes(), nullable=False),
        sa.Column("correlation_id", Key()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_status", sa.Integer(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("last_attempt_time", UtcTimestamp()),
        sa.Column("settle_time", UtcTimestamp()),
        sa.PrimaryKeyConstraint("thread_key", "message_id", name="outbox_pkey"),
        sa.ForeignKeyConstraint(["thread_key"], ["threads.thread_key"], name="outbox_of_threads"),
        sa.UniqueConstraint("scope_key", "message_id", name="outbox_one_scope_key_message_id"),
        sa.CheckConstraint("state IN ('PENDING', 'DELIVERED', 'DEAD')", name="outbox_state_known"),
        sa.CheckConstraint("kind IN ('SESSION', 'WEBHOOK')", name="outbox_kind_known"),
        sa.CheckConstraint("(state = 'PENDING') = (settle_time IS NULL)", name="outbox_settled_when_not_pending"),
    )
    op.create_index("outbox_by_scope_key_create_time_message_id", "outbox", ["scope_key", "create_time", "message_id"])
    op.create_index(
        "outbox_by_thread_key_create_time_message_id", "outbox", ["thread_key", "create_time", "message_id"]
    )
    for name, columns, condition, unique in (
        ("outbox_deduped", ["target_key", "dedupe_key"], "dedupe_key IS NOT NULL", True),
        ("outbox_pending", ["target_key", "sequence"], "state = 'PENDING'", True),
        ("outbox_dead", ["scope_key", "create_time", "message_id"], "state = 'DEAD'", False),
        ("outbox_delivered", ["settle_time"], "state = 'DELIVERED'", False),
    ):
        where = sa.text(condition)
        op.create_index(name, "outbox", columns, unique=unique, postgresql_where=where, sqlite_where=where)
    op.create_table(
        "outbox_lines",
        sa.Column("target_key", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("due_time", UtcTimestamp()),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("claim_time", UtcTimestamp()),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("target_key", name="outbox_lines_pkey"),
        sa.CheckConstraint("pending >= 0", name="outbox_lines_pending_not_negative"),
    )
    for name, column, condition in (
        ("outbox_lines_due", "due_time", "due_time IS NOT NULL"),
        ("outbox_lines_idle", "update_time", "due_time IS NULL"),
    ):
        where = sa.text(condition)
        op.create_index(name, "outbox_lines", [column], postgresql_where=where, sqlite_where=where)
    op.add_column("tasks", sa.Column("webhook", JsonText()))
