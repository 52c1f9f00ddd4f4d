"""A thread and what it is found by."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import OUTLIVES_THREAD, metadata

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
    # CHECKPOINTS or FACTS; '' while nothing says which, but a thread that holds checkpoints is one of CHECKPOINTS then.
    sa.Column("message_source", sa.Text, nullable=False, server_default=sa.text("''")),
    # The last place in the conversation that was given, how many messages it has, and how many of its changes came
    # after its live places were written down.
    sa.Column("message_position", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("message_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("message_changes", sa.Integer, nullable=False, server_default=sa.text("0")),
    # The chain (R17): the digest of the last commit that has one, that commit, the commit behind which the chain that
    # is kept starts, and the digest there (NULL: the thread's genesis).
    sa.Column("digest", Bytes()),
    sa.Column("digest_sequence", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("chain_start", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("chain_anchor", Bytes()),
    # Revision of title, agent_name, metadata and settings.
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("last_activity_time", UtcTimestamp(), nullable=False),
    # Set once it is deleted: nobody finds it any more, and its rows are on their way out.
    sa.Column("delete_time", UtcTimestamp()),
    # Events up to this sequence were purged.
    sa.Column("event_floor", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # Commits up to this sequence were purged; and up to where their rows are gone.
    sa.Column("commit_floor", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("swept_floor", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # The session that it was forked from, and the commit after which.
    sa.Column("forked_from_session_id", Key()),
    sa.Column("forked_from_commit", sa.BigInteger),
    sa.UniqueConstraint("scope_key", "session_id"),
    sa.Index(None, "scope_key", "create_time", "session_id"),
)

partial_index("threads_unswept", threads.c.thread_key, where=threads.c.swept_floor < threads.c.commit_floor)

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

# What stays of a deleted thread, beside its last event: its id is never used again (R19).
tombstones = sa.Table(
    "tombstones",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    # The commit that deleted it, and its event: the thread's last ones.
    sa.Column("commit_sequence", sa.BigInteger, nullable=False),
    sa.Column("event_sequence", sa.BigInteger, nullable=False),
    sa.Column("delete_time", UtcTimestamp(), nullable=False),
    # When the last of its rows went. NULL: some are still there, and nobody sees them.
    sa.Column("swept_time", UtcTimestamp()),
    info={OUTLIVES_THREAD: True},
)
partial_index("tombstones_unswept", tombstones.c.thread_key, where=tombstones.c.swept_time.is_(None))
