"""Message facts, the places that are live, and where a session's messages come from."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Makes the tables. Sessions that hold checkpoints by then count as CHECKPOINTS without saying so."""
    op.create_table(
        "messages",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("from_commit", sa.BigInteger(), nullable=False),
        sa.Column("to_commit", sa.BigInteger()),
        sa.Column("is_removed", sa.Boolean(), nullable=False),
        sa.Column("message_id", Key(), nullable=False),
        sa.Column("content", Bytes(), nullable=False),
        sa.Column("run_id", Key()),
        sa.Column("task_id", Key()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "position", "from_commit", name="messages_pkey"),
        sa.UniqueConstraint(
            "thread_key", "message_id", "from_commit", name="messages_one_thread_key_message_id_from_commit"
        ),
    )
    where = sa.text("is_removed")
    op.create_index(
        "messages_removed", "messages", ["thread_key", "to_commit"], postgresql_where=where, sqlite_where=where
    )
    op.create_table(
        "message_places",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("places", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "commit_sequence", name="message_places_pkey"),
    )
    op.create_table(
        "message_calls",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("tool_call_id", Key(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "tool_call_id", name="message_calls_pkey"),
    )
    for table, name, type_, default in (
        ("threads", "message_source", sa.Text(), "''"),
        ("threads", "message_position", sa.BigInteger(), "0"),
        ("threads", "message_count", sa.BigInteger(), "0"),
        ("threads", "message_changes", sa.Integer(), "0"),
        ("commits", "message_position", sa.BigInteger(), "0"),
    ):
        op.add_column(table, sa.Column(name, type_, nullable=False, server_default=sa.text(default)))
