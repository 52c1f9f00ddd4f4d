"""Message facts of threads (R12, P2)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata

# A message's content from one commit to another. A message that is replaced keeps its place: it gets another row.
messages = sa.Table(
    "messages",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    # Place in the conversation: grows, and is never used again.
    sa.Column("position", sa.BigInteger, primary_key=True),
    sa.Column("from_commit", sa.BigInteger, primary_key=True),
    # The commit that replaced or removed it. NULL: it stands.
    sa.Column("to_commit", sa.BigInteger),
    # True if to_commit removed the message, and with it its place.
    sa.Column("is_removed", sa.Boolean, nullable=False),
    sa.Column("message_id", Key(), nullable=False),
    # A serialized MessageDraft.
    sa.Column("content", Bytes(), nullable=False),
    # What introduced the message, and when.
    sa.Column("run_id", Key()),
    sa.Column("task_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.UniqueConstraint("thread_key", "message_id", "from_commit"),
)
partial_index("messages_removed", messages.c.thread_key, messages.c.to_commit, where=messages.c.is_removed)

# Every few hundred changes, the places that were live after a commit: a JSON list of [first, last]. What was live after
# a later commit follows from it, the places given since, and the removals since.
message_places = sa.Table(
    "message_places",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("commit_sequence", sa.BigInteger, primary_key=True),
    # The last place that was given by then.
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("places", sa.Text, nullable=False),
)

# The tool calls that a thread's messages asked for: a result names one of them.
message_calls = sa.Table(
    "message_calls",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("tool_call_id", Key(), primary_key=True),
)
