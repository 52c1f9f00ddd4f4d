"""The log: a thread's commits and events, and the counters that order them (R2, R14)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata

commits = sa.Table(
    "commits",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    # What was decided: the command's name, such as `submit_task`.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("request_id", Key()),
    # Under which key the request's receipt lies, if not the scope's.
    sa.Column("receipt_key", Key()),
    sa.Column("run_id", Key()),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor_id", Key()),
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("event_count", sa.Integer, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    # What a view as of this commit can't read elsewhere: the run that was open after it, a JSON object of what changes
    # in a run (see domain/snapshots.py), {} if none was; the head of the root namespace. NULL: from before such views.
    sa.Column("open_run", sa.Text),
    sa.Column("root_checkpoint_id", Key()),
    # The last place in the conversation that was given by then.
    sa.Column("message_position", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # The chain (R17): the commit's parts, a JSON list of [kind, id, SHA-256], and SHA-256(previous digest, canonical
    # commit). NULL: from before the chain.
    sa.Column("parts", sa.Text),
    sa.Column("digest", Bytes()),
    sa.CheckConstraint("sequence > 0", name="sequence_dense_from_1"),
)


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

# Up to which position a scope's events were purged from a partition. What a deleted session leaves is no floor: whoever
# follows the log passes over it.
log_floors = sa.Table(
    "log_floors",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("partition", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, nullable=False),
)
