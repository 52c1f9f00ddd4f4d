"""LangGraph's tables (R20)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonSource, Key, UtcTimestamp
from threadkeep_runtime.tables.schema import metadata

# LangGraph's tables, in the layout of its PostgreSQL saver; columns of ours come last and may be NULL. Ids sort by code
# point, as in every other table. A stock saver works on them, with threads.thread_key as thread_id. Its indexes on
# thread_id alone are left out: the primary keys begin with it.

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("thread_id", Key(), primary_key=True),
    sa.Column("checkpoint_ns", Key(), primary_key=True, server_default=sa.text("''")),
    sa.Column("checkpoint_id", Key(), primary_key=True),
    sa.Column("parent_checkpoint_id", Key()),
    sa.Column("type", sa.Text),
    sa.Column("checkpoint", JsonSource(), nullable=False),
    sa.Column("metadata", JsonSource(), nullable=False, server_default=sa.text("'{}'")),
    # Ours: both as they were put, byte for byte (jsonb rewrites -0.0, 1e22 and the order of keys); where the values lie
    # if channel_versions does not say it: {channel: version}; and the commit that recorded the row.
    sa.Column("checkpoint_bytes", Bytes()),
    sa.Column("metadata_bytes", Bytes()),
    sa.Column("value_versions", JsonSource()),
    sa.Column("commit_sequence", sa.BigInteger),
    # When it was put, for retention. NULL: by another saver, or before this was kept.
    sa.Column("create_time", UtcTimestamp()),
)

checkpoint_blobs = sa.Table(
    "checkpoint_blobs",
    metadata,
    sa.Column("thread_id", Key(), primary_key=True),
    sa.Column("checkpoint_ns", Key(), primary_key=True, server_default=sa.text("''")),
    sa.Column("channel", Key(), primary_key=True),
    sa.Column("version", Key(), primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("blob", Bytes()),
    # Ours: the commit that recorded the row first. So in the writes.
    sa.Column("commit_sequence", sa.BigInteger),
)

checkpoint_writes = sa.Table(
    "checkpoint_writes",
    metadata,
    sa.Column("thread_id", Key(), primary_key=True),
    sa.Column("checkpoint_ns", Key(), primary_key=True, server_default=sa.text("''")),
    sa.Column("checkpoint_id", Key(), primary_key=True),
    sa.Column("task_id", Key(), primary_key=True),
    sa.Column("idx", sa.Integer, primary_key=True),
    sa.Column("channel", Key(), nullable=False),
    sa.Column("type", sa.Text),
    sa.Column("blob", Bytes(), nullable=False),
    sa.Column("task_path", Key(), nullable=False, server_default=sa.text("''")),
    sa.Column("commit_sequence", sa.BigInteger),
)

# Ours: values that are too large for one message, in chunks, until the commit that names them.
staged_chunks = sa.Table(
    "staged_chunks",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("staged_id", Key(), primary_key=True),
    sa.Column("idx", sa.Integer, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("chunk", Bytes(), nullable=False),
    sa.Index("staged_chunks_by_create_time", "create_time"),
)

# How far LangGraph's own migrations have come: its saver's setup finds nothing to do here.
checkpoint_migrations = sa.Table(
    "checkpoint_migrations",
    metadata,
    sa.Column("v", sa.Integer, primary_key=True, autoincrement=False),
)
