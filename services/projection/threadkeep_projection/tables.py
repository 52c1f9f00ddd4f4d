"""Today's tables of the projection (P1 to P4); `migrations/` says how they came to be.

All of it can be dropped and built anew from the runtime's log. Rows are keyed by the scope first. What is only shown,
or may hold any character, lies in JSON columns; what is filtered or sorted by has columns of its own.
"""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, WordSet, word_index
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_N_name)s",
        "uq": "%(table_name)s_one_%(column_0_N_name)s",
        "ck": "%(table_name)s_%(constraint_name)s",
        "pk": "%(table_name)s_pkey",
    }
)

meta = meta_table(metadata)
receipts = receipts_table(metadata)


def _usage() -> list[sa.Column[int]]:
    """Tokens that messages took, those since taken out of the conversation included."""
    return [
        sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))
        for name in ("input_tokens", "output_tokens", "total_tokens")
    ]


# The shares of the event space, one for each partition of the log: how far it is followed, and by whom. A transaction
# that applies events updates this row first: rows and cursor move together, and no two replicas apply at once (P1).
shares = sa.Table(
    "shares",
    metadata,
    # The partition, if share_count is above 1; of one share, the whole log.
    sa.Column("share", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("share_count", sa.SmallInteger, nullable=False, server_default=sa.text("1")),
    # The runtime's cursor, as it gave it. Empty before the first event.
    sa.Column("log_cursor", Bytes(), nullable=False),
    sa.Column("applied_count", sa.BigInteger, nullable=False),
    sa.Column("apply_time", UtcTimestamp()),
    # The replica that follows. Empty: nobody.
    sa.Column("owner", Key(), nullable=False),
    # Grows with every lease of the share.
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("lease_expire_time", UtcTimestamp()),
    # Nothing moves while this is true and the time, if there is one, has not come.
    sa.Column("is_paused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("pause_expire_time", UtcTimestamp()),
    # Everything that was committed before is in, as far as the follower knows.
    sa.Column("reach_time", UtcTimestamp()),
)

# The replicas that take part in following; each has its part of the shares.
followers = sa.Table(
    "followers",
    metadata,
    # How it signs its leases.
    sa.Column("owner", Key(), primary_key=True),
    sa.Column("expire_time", UtcTimestamp(), nullable=False),
)

# What a rebuild of a scope or of all has done, and what it found at its start: a request that is sent again after a
# break goes on. Rows go with the rebuild's end, or with its receipt's time.
rebuild_marks = sa.Table(
    "rebuild_marks",
    metadata,
    # A digest of the request's receipt key and request_id.
    sa.Column("rebuild", Key(), primary_key=True),
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    # False: its rows were there when the rebuild began, and the log has not named it yet.
    sa.Column("is_done", sa.Boolean, nullable=False),
    sa.Column("event_count", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Index(None, "create_time"),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    # What cursors of the session's feed call it.
    sa.Column("subject", Key(), nullable=False),
    sa.Column("title", JsonText(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("metadata", JsonText(), nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("message_count", sa.BigInteger, nullable=False),
    sa.Column("task_count", sa.BigInteger, nullable=False),
    sa.Column("run_count", sa.BigInteger, nullable=False),
    sa.Column("input_count", sa.BigInteger, nullable=False),
    *_usage(),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    # Sequence of the last event that is in the session's rows: no event is applied to them twice.
    sa.Column("event_sequence", sa.BigInteger, nullable=False),
    sa.Index(None, "scope_key", "create_time", "session_id"),
    sa.Index(None, "scope_key", "agent_name", "create_time", "session_id"),
    sa.Index(None, "scope_key", "status", "create_time", "session_id"),
    sa.Index(None, "scope_key", "subject"),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("task_id", Key(), primary_key=True),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("metadata", JsonText(), nullable=False),
    # [code, message]
    sa.Column("failure", JsonText()),
    sa.Column("ticket_count", sa.BigInteger, nullable=False),
    *_usage(),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("end_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "create_time", "task_id"),
    sa.Index(None, "scope_key", "session_id", "create_time", "task_id"),
    sa.Index(None, "scope_key", "agent_name", "create_time", "task_id"),
    sa.Index(None, "scope_key", "state", "create_time", "task_id"),
    sa.Index(None, "scope_key", "update_time", "task_id"),
    sa.Index(None, "scope_key", "session_id", "update_time", "task_id"),
    sa.Index(None, "scope_key", "agent_name", "update_time", "task_id"),
    sa.Index(None, "scope_key", "state", "update_time", "task_id"),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("run_id", Key(), primary_key=True),
    sa.Column("task_id", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("lease_count", sa.BigInteger, nullable=False),
    sa.Column("step_count", sa.BigInteger, nullable=False),
    *_usage(),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("start_time", UtcTimestamp()),
    sa.Column("end_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "create_time", "run_id"),
    sa.Index(None, "scope_key", "session_id", "create_time", "run_id"),
    sa.Index(None, "scope_key", "task_id", "create_time", "run_id"),
    sa.Index(None, "scope_key", "agent_name", "create_time", "run_id"),
    sa.Index(None, "scope_key", "state", "create_time", "run_id"),
)

# The metadata entries of sessions and tasks, to filter by. An entry stands here as a digest of key and value: values
# can be longer than an index takes, and hold characters that a text column refuses.
session_entries = sa.Table(
    "session_entries",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    sa.Column("entry", Key(), primary_key=True),
    # The session's, so that a list by an entry is in order.
    sa.Column("create_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "entry", "create_time", "session_id"),
)

task_entries = sa.Table(
    "task_entries",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("task_id", Key(), primary_key=True),
    sa.Column("entry", Key(), primary_key=True),
    sa.Column("session_id", Key(), nullable=False),
    # The task's.
    sa.Column("create_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "entry", "create_time", "task_id"),
    sa.Index(None, "scope_key", "session_id"),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    sa.Column("message_id", Key(), primary_key=True),
    # Place in the conversation: dense from 1. NULL once it was taken out; such a row says nothing any more.
    sa.Column("position", sa.BigInteger),
    # SHA-256 of the content.
    sa.Column("digest", Key(), nullable=False),
    # What it says: a domain Content as JSON.
    sa.Column("content", JsonText()),
    # The beginning of its text.
    sa.Column("excerpt", JsonText()),
    # True for an input that no checkpoint has held yet.
    sa.Column("is_pending", sa.Boolean, nullable=False),
    sa.Column("parent_message_id", Key()),
    sa.Column("task_id", Key()),
    sa.Column("run_id", Key()),
    # The model that it names, also once it was taken out: its tokens still count.
    sa.Column("model", Key()),
    # NULL where the model reported none.
    sa.Column("input_tokens", sa.BigInteger),
    sa.Column("output_tokens", sa.BigInteger),
    sa.Column("total_tokens", sa.BigInteger),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    # Who speaks, to filter by.
    sa.Column("role", Key()),
    # The words of its text, each between spaces (`domain/words`); NULL once it was taken out.
    sa.Column("searched", sa.Text),
    # The same words, each once and behind a digest of its session, to be found by.
    sa.Column("words", WordSet()),
    sa.Index(None, "scope_key", "session_id", "position"),
    sa.Index(None, "scope_key", "create_time"),
    sa.Index(None, "scope_key", "task_id", "position"),
)
word_index(messages, "words")

SHOWN_MESSAGE = [column for column in messages.c if column.name not in ("role", "searched", "words")]
"""What is read of a message to show it."""

# The inputs of tasks that are not final: what is left of a conversation when its checkpoints are deleted.
inputs = sa.Table(
    "inputs",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    sa.Column("message_id", Key(), primary_key=True),
    sa.Column("ordinal", sa.BigInteger, nullable=False),
    sa.Column("content", JsonText(), nullable=False),
    sa.Column("task_id", Key()),
    sa.Column("run_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
)

# Events that could not be projected: the rows are as if they had not been.
poison_events = sa.Table(
    "poison_events",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("type", Key(), nullable=False),
    # What kind of fault it was; nothing of the payload.
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
)
