"""The first schema."""

import os
from typing import Any

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, JsonSource, JsonText, Key, UtcTimestamp

revision = "0001"
down_revision = None

# What LangGraph's own migrations had reached when this layout was taken from them.
_LANGGRAPH_VERSION = 9


def upgrade() -> None:
    """Makes the tables and the log's counters."""
    _facts()
    _threads()
    _work()
    _log()
    _checkpoints()
    is_postgres = op.get_bind().dialect.name == "postgresql"
    partitions = 8 if is_postgres else 1
    incarnation = os.urandom(8).hex()
    op.bulk_insert(
        sa.table("log_partitions", sa.column("partition"), sa.column("position"), sa.column("incarnation")),
        [{"partition": partition, "position": 0, "incarnation": incarnation} for partition in range(partitions)],
    )
    op.bulk_insert(sa.table("checkpoint_migrations", sa.column("v")), [{"v": v} for v in range(_LANGGRAPH_VERSION + 1)])
    if is_postgres:
        # Rows that every commit or heartbeat changes stay in their page only if the page has room.
        op.execute("ALTER TABLE threads SET (fillfactor = 60)")
        op.execute("ALTER TABLE leases SET (fillfactor = 40)")
        op.execute("ALTER TABLE log_partitions SET (fillfactor = 10)")


def _partial_index(name: str, table: str, columns: list[Any], *, where: str, unique: bool = False) -> None:
    op.create_index(name, table, columns, unique=unique, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def _facts() -> None:
    # Facts about the log as a whole.
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
        "scopes",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("scope", Bytes(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name="scopes_pkey"),
    )
    op.create_table(
        "manifests",
        sa.Column("digest", Key(), nullable=False),
        sa.Column("manifest", Bytes(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="manifests_pkey"),
    )
    op.create_table(
        "log_partitions",
        sa.Column("partition", sa.SmallInteger(), nullable=False, autoincrement=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", Key(), nullable=False),
        sa.PrimaryKeyConstraint("partition", name="log_partitions_pkey"),
    )


def _threads() -> None:
    # Sessions and their commits.
    op.create_table(
        "threads",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("partition", sa.SmallInteger(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("title", JsonText(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("metadata", JsonText(), nullable=False),
        sa.Column("settings", JsonText(), nullable=False),
        sa.Column("task_count", sa.BigInteger(), nullable=False),
        sa.Column("run_count", sa.BigInteger(), nullable=False),
        sa.Column("active_run_id", Key()),
        sa.Column("latest_run_id", Key()),
        sa.Column("latest_task_id", Key()),
        sa.Column("root_checkpoint_id", Key()),
        sa.Column("checkpoint_top", Key(), nullable=False),
        sa.Column("checkpoint_floor", Key(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("last_activity_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", name="threads_pkey"),
        sa.UniqueConstraint("scope_key", "session_id", name="threads_one_scope_key_session_id"),
    )
    op.create_index(
        "threads_by_scope_key_create_time_session_id", "threads", ["scope_key", "create_time", "session_id"]
    )
    op.create_table(
        "session_metadata",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("name", JsonText(), nullable=False),
        sa.Column("value", JsonText(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "name", name="session_metadata_pkey"),
        sa.ForeignKeyConstraint(["thread_key"], ["threads.thread_key"], name="session_metadata_of_threads"),
    )
    op.create_index("session_metadata_by_scope_key_name_value", "session_metadata", ["scope_key", "name", "value"])
    op.create_table(
        "commits",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("request_id", Key()),
        sa.Column("run_id", Key()),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor_id", Key()),
        sa.Column("first_event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_count", sa.Integer(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "sequence", name="commits_pkey"),
        sa.CheckConstraint("sequence > 0", name="commits_sequence_dense_from_1"),
    )


def _work() -> None:
    # Tasks, runs, leases and tickets.
    op.create_table(
        "tasks",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("agent_revision", sa.BigInteger(), nullable=False),
        sa.Column("manifest_digest", Key(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("input", Bytes(), nullable=False),
        sa.Column("queue", Key(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("metadata", JsonText(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("crash_count", sa.Integer(), nullable=False),
        sa.Column("open_ticket_ids", JsonText(), nullable=False),
        sa.Column("cancel_request_time", UtcTimestamp()),
        sa.Column("cancel_reason", JsonText()),
        sa.Column("result", Bytes()),
        sa.Column("failure", JsonText()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("end_time", UtcTimestamp()),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("first_event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_event_sequence", sa.BigInteger()),
        sa.PrimaryKeyConstraint("thread_key", "task_id", name="tasks_pkey"),
        sa.ForeignKeyConstraint(["thread_key"], ["threads.thread_key"], name="tasks_of_threads"),
        sa.UniqueConstraint("scope_key", "task_id", name="tasks_one_scope_key_task_id"),
        sa.CheckConstraint(
            "state IN ('SUBMITTED', 'WORKING', 'INPUT_REQUIRED', 'AUTH_REQUIRED', "
            "'COMPLETED', 'FAILED', 'CANCELED', 'REJECTED')",
            name="tasks_state_known",
        ),
    )
    op.create_index("tasks_by_scope_key_create_time_task_id", "tasks", ["scope_key", "create_time", "task_id"])
    op.create_index("tasks_by_thread_key_create_time_task_id", "tasks", ["thread_key", "create_time", "task_id"])
    op.create_table(
        "runs",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("agent_name", Key(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text()),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("crash_count", sa.Integer(), nullable=False),
        sa.Column("worker_id", Key(), nullable=False),
        sa.Column("last_checkpoint_id", Key()),
        sa.Column("failure", JsonText()),
        sa.Column("queue", Key(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("start_time", UtcTimestamp()),
        sa.Column("end_time", UtcTimestamp()),
        sa.Column("first_event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_event_sequence", sa.BigInteger()),
        sa.PrimaryKeyConstraint("thread_key", "run_id", name="runs_pkey"),
        sa.CheckConstraint("(state = 'ENDED') = (cause IS NOT NULL)", name="runs_cause_when_ended"),
        sa.ForeignKeyConstraint(["thread_key", "task_id"], ["tasks.thread_key", "tasks.task_id"], name="runs_of_tasks"),
        sa.UniqueConstraint("scope_key", "run_id", name="runs_one_scope_key_run_id"),
        sa.CheckConstraint("state IN ('QUEUED', 'RUNNING', 'AWAITING', 'ENDED')", name="runs_state_known"),
    )
    op.create_index("runs_by_scope_key_create_time_run_id", "runs", ["scope_key", "create_time", "run_id"])
    op.create_index("runs_by_thread_key_create_time_run_id", "runs", ["thread_key", "create_time", "run_id"])
    _partial_index("runs_one_open", "runs", ["thread_key"], where="state != 'ENDED'", unique=True)
    _partial_index(
        "runs_queue", "runs", ["queue", sa.text("priority DESC"), "create_time", "thread_key"], where="state = 'QUEUED'"
    )
    _partial_index(
        "runs_queue_of_scope",
        "runs",
        ["scope_key", "queue", sa.text("priority DESC"), "create_time", "thread_key"],
        where="state = 'QUEUED'",
    )
    _partial_index("runs_running", "runs", ["thread_key"], where="state = 'RUNNING'")
    op.create_table(
        "leases",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", Key(), nullable=False),
        sa.Column("ttl_seconds", sa.Double(), nullable=False),
        sa.Column("expire_time", UtcTimestamp(), nullable=False),
        sa.Column("cancel_deadline", UtcTimestamp()),
        sa.Column("cancel_reason", JsonText()),
        sa.PrimaryKeyConstraint("thread_key", name="leases_pkey"),
        sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"], name="leases_of_runs"),
        sa.UniqueConstraint("scope_key", "run_id", name="leases_one_scope_key_run_id"),
    )
    op.create_table(
        "tickets",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("ticket_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("run_id", Key(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("prompt", Bytes()),
        sa.Column("answer_schema_json", sa.Text()),
        sa.Column("allowed_decisions", JsonText(), nullable=False),
        sa.Column("deadline", UtcTimestamp()),
        sa.Column("default_decision", Key()),
        sa.Column("default_value_json", sa.Text()),
        sa.Column("assignee", Key()),
        sa.Column("interrupt_id", Key()),
        sa.Column("decision", Key()),
        sa.Column("value_json", sa.Text()),
        sa.Column("resolved_by_kind", sa.Text()),
        sa.Column("resolved_by_id", Key()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("end_time", UtcTimestamp()),
        sa.Column("first_event_sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "ticket_id", name="tickets_pkey"),
        sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"], name="tickets_of_runs"),
        sa.UniqueConstraint("scope_key", "ticket_id", name="tickets_one_scope_key_ticket_id"),
        sa.CheckConstraint("state IN ('OPEN', 'RESOLVED', 'EXPIRED', 'CLOSED')", name="tickets_state_known"),
    )
    op.create_index("tickets_by_scope_key_create_time_ticket_id", "tickets", ["scope_key", "create_time", "ticket_id"])
    op.create_index(
        "tickets_by_thread_key_create_time_ticket_id", "tickets", ["thread_key", "create_time", "ticket_id"]
    )
    _partial_index("tickets_deadline", "tickets", ["deadline"], where="state = 'OPEN' AND deadline IS NOT NULL")
    _partial_index("tickets_open", "tickets", ["thread_key"], where="state = 'OPEN'")


def _log() -> None:
    # The event log.
    op.create_table(
        "events",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("partition", sa.SmallInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_id", Key(), nullable=False),
        sa.Column("is_named", sa.Boolean(), nullable=False),
        sa.Column("type", Key(), nullable=False),
        sa.Column("visibility", sa.SmallInteger(), nullable=False),
        sa.Column("run_id", Key()),
        sa.Column("task_id", Key()),
        sa.Column("content_type", Key()),
        sa.Column("payload", Bytes()),
        sa.Column("attributes", JsonText()),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("causation_id", Key()),
        sa.Column("correlation_id", Key()),
        sa.Column("traceparent", sa.Text(), nullable=False),
        sa.Column("tracestate", sa.Text(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "sequence", name="events_pkey"),
        sa.UniqueConstraint("partition", "position", name="events_one_partition_position"),
    )
    op.create_index("events_by_scope_key_partition_position", "events", ["scope_key", "partition", "position"])
    _partial_index("events_named", "events", ["thread_key", "event_id"], where="is_named", unique=True)


def _checkpoints() -> None:
    # LangGraph's tables: its layout, with columns of ours behind.
    op.create_table(
        "checkpoints",
        sa.Column("thread_id", Key(), nullable=False),
        sa.Column("checkpoint_ns", Key(), nullable=False, server_default=sa.text("''")),
        sa.Column("checkpoint_id", Key(), nullable=False),
        sa.Column("parent_checkpoint_id", Key()),
        sa.Column("type", sa.Text()),
        sa.Column("checkpoint", JsonSource(), nullable=False),
        sa.Column("metadata", JsonSource(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("checkpoint_bytes", Bytes()),
        sa.Column("metadata_bytes", Bytes()),
        sa.Column("value_versions", JsonSource()),
        sa.Column("commit_sequence", sa.BigInteger()),
        sa.PrimaryKeyConstraint("thread_id", "checkpoint_ns", "checkpoint_id", name="checkpoints_pkey"),
    )
    op.create_table(
        "checkpoint_blobs",
        sa.Column("thread_id", Key(), nullable=False),
        sa.Column("checkpoint_ns", Key(), nullable=False, server_default=sa.text("''")),
        sa.Column("channel", Key(), nullable=False),
        sa.Column("version", Key(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("blob", Bytes()),
        sa.PrimaryKeyConstraint("thread_id", "checkpoint_ns", "channel", "version", name="checkpoint_blobs_pkey"),
    )
    op.create_table(
        "checkpoint_writes",
        sa.Column("thread_id", Key(), nullable=False),
        sa.Column("checkpoint_ns", Key(), nullable=False, server_default=sa.text("''")),
        sa.Column("checkpoint_id", Key(), nullable=False),
        sa.Column("task_id", Key(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("channel", Key(), nullable=False),
        sa.Column("type", sa.Text()),
        sa.Column("blob", Bytes(), nullable=False),
        sa.Column("task_path", Key(), nullable=False, server_default=sa.text("''")),
        sa.PrimaryKeyConstraint(
            "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", name="checkpoint_writes_pkey"
        ),
    )
    op.create_table(
        "checkpoint_migrations",
        sa.Column("v", sa.Integer(), nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("v", name="checkpoint_migrations_pkey"),
    )
