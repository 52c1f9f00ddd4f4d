"""Today's tables of the runtime (R1, R2, R14, R20); `migrations/` says how they came to be.

Every table that a thread owns is keyed by the thread's key first. Columns that every commit changes carry no index, so
that such updates stay within the row's page (HOT). Enums are short text. LangGraph's three tables have its saver's
layout.
"""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, partial_index
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table
from threadkeep_runtime.checkpoint_tables import (
    checkpoint_blobs,
    checkpoint_migrations,
    checkpoint_writes,
    checkpoints,
    staged_chunks,
)
from threadkeep_runtime.schema import metadata

__all__ = [
    "RUN_STATES",
    "TASK_STATES",
    "TICKET_STATES",
    "checkpoint_blobs",
    "checkpoint_migrations",
    "checkpoint_writes",
    "checkpoints",
    "commits",
    "events",
    "leases",
    "log_partitions",
    "manifests",
    "meta",
    "metadata",
    "receipts",
    "runs",
    "scopes",
    "session_metadata",
    "staged_chunks",
    "store_counters",
    "store_items",
    "tasks",
    "threads",
    "tickets",
]

TASK_STATES = (
    "SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED",
)  # fmt: skip
RUN_STATES = ("QUEUED", "RUNNING", "AWAITING", "ENDED")
TICKET_STATES = ("OPEN", "RESOLVED", "EXPIRED", "CLOSED")


def _one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


threads = sa.Table(
    "threads",
    metadata,
    # First 40 hex digits of SHA-256(scope_key + NUL + session_id). LangGraph's thread_id in the checkpoint tables.
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    # Log partition of the thread's events; fixed when the thread is created.
    sa.Column("partition", sa.SmallInteger, nullable=False),
    # The thread's version: sequence of its last commit. Locked by every commit (R2).
    sa.Column("commit_sequence", sa.BigInteger, nullable=False),
    sa.Column("event_sequence", sa.BigInteger, nullable=False),
    sa.Column("title", JsonText(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("metadata", JsonText(), nullable=False),
    # {"model": text, "max_steps": integer}, each only if set.
    sa.Column("settings", JsonText(), nullable=False),
    sa.Column("task_count", sa.BigInteger, nullable=False),
    sa.Column("run_count", sa.BigInteger, nullable=False),
    # How many of its tasks have no run yet.
    sa.Column("enqueued_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("active_run_id", Key()),
    sa.Column("latest_run_id", Key()),
    sa.Column("latest_task_id", Key()),
    # Greatest checkpoint id of the root namespace that the thread holds.
    sa.Column("root_checkpoint_id", Key()),
    # Greatest checkpoint id that was ever put, in any namespace: new ids sort above it. '' before the first.
    sa.Column("checkpoint_top", Key(), nullable=False),
    # A checkpoint id at or below this that has no row was deleted and does not come back. '' before the first delete.
    sa.Column("checkpoint_floor", Key(), nullable=False),
    # Revision of title, agent_name, metadata and settings.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("last_activity_time", UtcTimestamp(), nullable=False),
    sa.UniqueConstraint("scope_key", "session_id"),
    sa.Index(None, "scope_key", "create_time", "session_id"),
)

# The entries of threads.metadata, one by one, to filter by.
session_metadata = sa.Table(
    "session_metadata",
    metadata,
    sa.Column("thread_key", Key(), sa.ForeignKey("threads.thread_key"), primary_key=True),
    sa.Column("name", JsonText(), primary_key=True),
    sa.Column("value", JsonText(), nullable=False),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Index(None, "scope_key", "name", "value"),
)

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    # What was decided: the command's name, such as `submit_task`.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("request_id", Key()),
    sa.Column("run_id", Key()),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor_id", Key()),
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("event_count", sa.Integer, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.CheckConstraint("sequence > 0", name="sequence_dense_from_1"),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("thread_key", Key(), sa.ForeignKey("threads.thread_key"), primary_key=True),
    sa.Column("task_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("agent_revision", sa.BigInteger, nullable=False),
    sa.Column("manifest_digest", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    # A serialized TaskInput message.
    sa.Column("input", Bytes(), nullable=False),
    sa.Column("queue", Key(), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("metadata", JsonText(), nullable=False),
    # The retry policy.
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("initial_backoff_seconds", sa.Double, nullable=False, server_default=sa.text("1")),
    sa.Column("max_backoff_seconds", sa.Double, nullable=False, server_default=sa.text("60")),
    sa.Column("multiplier", sa.Double, nullable=False, server_default=sa.text("2")),
    sa.Column("retryable_codes", JsonText(), nullable=False, server_default=sa.text("'[]'")),
    # How many runs it had.
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("1")),
    # The latest run; '' while the task is enqueued.
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("crash_count", sa.Integer, nullable=False),
    sa.Column("open_ticket_ids", JsonText(), nullable=False),
    sa.Column("cancel_request_time", UtcTimestamp()),
    sa.Column("cancel_reason", JsonText()),
    # A serialized Payload message.
    sa.Column("result", Bytes()),
    # {"code": text, "message": text, "retryable": boolean}
    sa.Column("failure", JsonText()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("end_time", UtcTimestamp()),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Sequence of the task's first event, and of its terminal one once it ended: a feed of the task lies between.
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("last_event_sequence", sa.BigInteger),
    _one_of("state", TASK_STATES),
    sa.UniqueConstraint("scope_key", "task_id"),
    sa.Index(None, "scope_key", "create_time", "task_id"),
    sa.Index(None, "thread_key", "create_time", "task_id"),
)

# Whose turn it is when a thread's run ends: the highest priority first, then the oldest (R5).
partial_index(
    "tasks_enqueued",
    tasks.c.thread_key,
    tasks.c.priority.desc(),
    tasks.c.first_event_sequence,
    where=sa.and_(tasks.c.state == sa.text("'SUBMITTED'"), tasks.c.run_id == sa.text("''")),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("run_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("task_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("1")),
    sa.Column("parent_run_id", Key()),
    # No worker gets it earlier; NULL: at once.
    sa.Column("due_time", UtcTimestamp()),
    # Epoch of the latest lease: only grows.
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("crash_count", sa.Integer, nullable=False),
    sa.Column("worker_id", Key(), nullable=False),
    sa.Column("last_checkpoint_id", Key()),
    # {"code": text, "message": text, "retryable": boolean}
    sa.Column("failure", JsonText()),
    sa.Column("queue", Key(), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("start_time", UtcTimestamp()),
    sa.Column("end_time", UtcTimestamp()),
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("last_event_sequence", sa.BigInteger),
    sa.ForeignKeyConstraint(["thread_key", "task_id"], ["tasks.thread_key", "tasks.task_id"]),
    _one_of("state", RUN_STATES),
    sa.CheckConstraint("(state = 'ENDED') = (cause IS NOT NULL)", name="cause_when_ended"),
    sa.UniqueConstraint("scope_key", "run_id"),
    sa.Index(None, "scope_key", "create_time", "run_id"),
    sa.Index(None, "thread_key", "create_time", "run_id"),
)
# R5: one open run per session.
partial_index("runs_one_open", runs.c.thread_key, where=runs.c.state != sa.text("'ENDED'"), unique=True)
_queued = runs.c.state == sa.text("'QUEUED'")
partial_index("runs_queue", runs.c.queue, runs.c.priority.desc(), runs.c.create_time, runs.c.thread_key, where=_queued)
partial_index(
    "runs_queue_of_scope",
    runs.c.scope_key,
    runs.c.queue,
    runs.c.priority.desc(),
    runs.c.create_time,
    runs.c.thread_key,
    where=_queued,
)
partial_index("runs_running", runs.c.thread_key, where=runs.c.state == sa.text("'RUNNING'"))

# One row per leased run. Heartbeats update expire_time here and touch nothing else, so it has no index: the table is
# as small as the number of working workers.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("worker_id", Key(), nullable=False),
    sa.Column("ttl_seconds", sa.Double, nullable=False),
    sa.Column("expire_time", UtcTimestamp(), nullable=False),
    # Set once the task's cancellation was asked for: when the run loses its epoch (R9).
    sa.Column("cancel_deadline", UtcTimestamp()),
    sa.Column("cancel_reason", JsonText()),
    sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"]),
    sa.UniqueConstraint("scope_key", "run_id"),
)

tickets = sa.Table(
    "tickets",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("ticket_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("task_id", Key(), nullable=False),
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    # A serialized Payload message.
    sa.Column("prompt", Bytes()),
    # JSON texts, as they came.
    sa.Column("answer_schema_json", sa.Text),
    sa.Column("allowed_decisions", JsonText(), nullable=False),
    sa.Column("deadline", UtcTimestamp()),
    sa.Column("default_decision", Key()),
    sa.Column("default_value_json", sa.Text),
    sa.Column("assignee", Key()),
    sa.Column("interrupt_id", Key()),
    sa.Column("decision", Key()),
    sa.Column("value_json", sa.Text),
    sa.Column("resolved_by_kind", sa.Text),
    sa.Column("resolved_by_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("end_time", UtcTimestamp()),
    # Sequence of the event that opened it: the tickets' order in the thread.
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"]),
    _one_of("state", TICKET_STATES),
    sa.UniqueConstraint("scope_key", "ticket_id"),
    sa.Index(None, "scope_key", "create_time", "ticket_id"),
    sa.Index(None, "thread_key", "create_time", "ticket_id"),
)
_open = tickets.c.state == sa.text("'OPEN'")
partial_index("tickets_open", tickets.c.thread_key, where=_open)
partial_index("tickets_deadline", tickets.c.deadline, where=sa.and_(_open, tickets.c.deadline.is_not(None)))

events = sa.Table(
    "events",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    # Dense from 1 in the thread, in commit order.
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("partition", sa.SmallInteger, nullable=False),
    # Dense from 1 in the partition, in commit order (R14).
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("commit_sequence", sa.BigInteger, nullable=False),
    sa.Column("event_id", Key(), nullable=False),
    # True if the writer chose event_id, which then is unique in the thread; the server's own ids are unique anyway.
    sa.Column("is_named", sa.Boolean, nullable=False),
    sa.Column("type", Key(), nullable=False),
    # 1 END_USER, 2 BUILDER, 3 INTERNAL: a reader sees its level and below.
    sa.Column("visibility", sa.SmallInteger, nullable=False),
    sa.Column("run_id", Key()),
    sa.Column("task_id", Key()),
    # The payload; all NULL without one.
    sa.Column("content_type", Key()),
    sa.Column("payload", Bytes()),
    sa.Column("attributes", JsonText()),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("causation_id", Key()),
    sa.Column("correlation_id", Key()),
    sa.Column("traceparent", sa.Text, nullable=False),
    sa.Column("tracestate", sa.Text, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.UniqueConstraint("partition", "position"),
    sa.Index(None, "scope_key", "partition", "position"),
)
partial_index("events_named", events.c.thread_key, events.c.event_id, where=events.c.is_named, unique=True)

# The log's counters. The row is the last lock that a commit takes.
log_partitions = sa.Table(
    "log_partitions",
    metadata,
    sa.Column("partition", sa.SmallInteger, primary_key=True, autoincrement=False),
    # Position of the partition's last event; 0 before the first.
    sa.Column("position", sa.BigInteger, nullable=False),
    # The log's incarnation, the same in every row: cursors name it, and a restore to an earlier point changes it.
    sa.Column("incarnation", Key(), nullable=False),
)

receipts = receipts_table(metadata)
meta = meta_table(metadata)

manifests = sa.Table(
    "manifests",
    metadata,
    sa.Column("digest", Key(), primary_key=True),
    # Canonical JSON, redacted.
    sa.Column("manifest", Bytes(), nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
)

# Which scope a scope key stands for. Feeds over a grant show it (X13).
scopes = sa.Table(
    "scopes",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    # Canonical JSON.
    sa.Column("scope", Bytes(), nullable=False),
)

# Memory across threads (R21). A namespace's labels each end with U+0001, so that it sorts and begins label by label.
store_items = sa.Table(
    "store_items",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("namespace", Key(), primary_key=True),
    sa.Column("key", Key(), primary_key=True),
    # A JSON object, the bytes as they were put.
    sa.Column("value", Bytes(), nullable=False),
    # Place in the order of the scope's puts.
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("expire_time", UtcTimestamp()),
    sa.Column("ttl_microseconds", sa.BigInteger),
    # 32-bit floats, little-endian: vectors of `dimensions` components, one behind the other.
    sa.Column("vectors", Bytes()),
    sa.Column("dimensions", sa.Integer),
    sa.UniqueConstraint("scope_key", "sequence"),
)
partial_index("store_items_expiring", store_items.c.expire_time, where=store_items.c.expire_time.is_not(None))

# How many puts a scope has seen. A put locks the row first.
store_counters = sa.Table(
    "store_counters",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
