"""The first schema: how far the log is followed, summaries, messages, receipts."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp

revision = "projection_0001"
down_revision = None


def upgrade() -> None:
    """Makes every table."""
    _create_plumbing()
    _create_summaries()
    _create_messages()


def _create_plumbing() -> None:
    op.create_table(
        "meta",
        sa.Column("name", Key(), nullable=False),
        sa.Column("value", Bytes(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="meta_pkey"),
    )
    op.create_table(
        "receipts",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("request_id", Key(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("fingerprint", Bytes(), nullable=False),
        sa.Column("response", Bytes(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "request_id", name="receipts_pkey"),
    )
    op.create_index("receipts_by_create_time", "receipts", ["create_time"])
    op.create_table(
        "shares",
        sa.Column("share", sa.SmallInteger(), nullable=False, autoincrement=False),
        sa.Column("cursor", Bytes(), nullable=False),
        sa.Column("applied_count", sa.BigInteger(), nullable=False),
        sa.Column("apply_time", UtcTimestamp(), nullable=True),
        sa.Column("owner", Key(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("lease_expire_time", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("share", name="shares_pkey"),
    )


def _create_summaries() -> None:
    op.create_table(
        "sessions",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("subject", Key(), nullable=False),
        sa.Column("title", JsonText(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("metadata", JsonText(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("message_count", sa.BigInteger(), nullable=False),
        sa.Column("task_count", sa.BigInteger(), nullable=False),
        sa.Column("run_count", sa.BigInteger(), nullable=False),
        sa.Column("input_count", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", name="sessions_pkey"),
    )
    op.create_index(
        "sessions_by_scope_key_agent_name_create_time_session_id",
        "sessions",
        ["scope_key", "agent_name", "create_time", "session_id"],
    )
    op.create_index(
        "sessions_by_scope_key_status_create_time_session_id",
        "sessions",
        ["scope_key", "status", "create_time", "session_id"],
    )
    op.create_index(
        "sessions_by_scope_key_create_time_session_id", "sessions", ["scope_key", "create_time", "session_id"]
    )
    op.create_index("sessions_by_scope_key_subject", "sessions", ["scope_key", "subject"])
    op.create_table(
        "session_entries",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("entry", Key(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", "entry", name="session_entries_pkey"),
    )
    op.create_index(
        "session_entries_by_scope_key_entry_session_id", "session_entries", ["scope_key", "entry", "session_id"]
    )
    op.create_table(
        "tasks",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("metadata", JsonText(), nullable=False),
        sa.Column("failure", JsonText(), nullable=True),
        sa.Column("ticket_count", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("end_time", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("scope_key", "task_id", name="tasks_pkey"),
    )
    op.create_index(
        "tasks_by_scope_key_agent_name_create_time_task_id",
        "tasks",
        ["scope_key", "agent_name", "create_time", "task_id"],
    )
    op.create_index(
        "tasks_by_scope_key_state_create_time_task_id", "tasks", ["scope_key", "state", "create_time", "task_id"]
    )
    op.create_index("tasks_by_scope_key_create_time_task_id", "tasks", ["scope_key", "create_time", "task_id"])
    op.create_index(
        "tasks_by_scope_key_session_id_create_time_task_id",
        "tasks",
        ["scope_key", "session_id", "create_time", "task_id"],
    )
    op.create_table(
        "task_entries",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("entry", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "task_id", "entry", name="task_entries_pkey"),
    )
    op.create_index("task_entries_by_scope_key_entry_task_id", "task_entries", ["scope_key", "entry", "task_id"])
    op.create_index("task_entries_by_scope_key_session_id", "task_entries", ["scope_key", "session_id"])
    op.create_table(
        "runs",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("lease_count", sa.BigInteger(), nullable=False),
        sa.Column("step_count", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("total_tokens", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("start_time", UtcTimestamp(), nullable=True),
        sa.Column("end_time", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("scope_key", "run_id", name="runs_pkey"),
    )
    op.create_index(
        "runs_by_scope_key_agent_name_create_time_run_id", "runs", ["scope_key", "agent_name", "create_time", "run_id"]
    )
    op.create_index(
        "runs_by_scope_key_state_create_time_run_id", "runs", ["scope_key", "state", "create_time", "run_id"]
    )
    op.create_index("runs_by_scope_key_create_time_run_id", "runs", ["scope_key", "create_time", "run_id"])
    op.create_index(
        "runs_by_scope_key_session_id_create_time_run_id", "runs", ["scope_key", "session_id", "create_time", "run_id"]
    )
    op.create_index(
        "runs_by_scope_key_task_id_create_time_run_id", "runs", ["scope_key", "task_id", "create_time", "run_id"]
    )


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("message_id", Key(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("digest", Key(), nullable=False),
        sa.Column("content", JsonText(), nullable=True),
        sa.Column("excerpt", JsonText(), nullable=True),
        sa.Column("is_pending", sa.Boolean(), nullable=False),
        sa.Column("parent_message_id", Key(), nullable=True),
        sa.Column("task_id", Key(), nullable=True),
        sa.Column("run_id", Key(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("total_tokens", sa.BigInteger(), nullable=True),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", "message_id", name="messages_pkey"),
    )
    op.create_index("messages_by_scope_key_session_id_position", "messages", ["scope_key", "session_id", "position"])
    op.create_table(
        "inputs",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("message_id", Key(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("content", JsonText(), nullable=False),
        sa.Column("task_id", Key(), nullable=True),
        sa.Column("run_id", Key(), nullable=True),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", "message_id", name="inputs_pkey"),
    )
