"""Audit records (R17). They outlive their threads and have a retention of their own."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp
from threadkeep_runtime.tables.schema import OUTLIVES_THREAD, metadata

audit_records = sa.Table(
    "audit_records",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("audit_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("commit_sequence", sa.BigInteger, nullable=False),
    # Place in its commit, from 1.
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("action", Key(), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor_id", Key()),
    # A serialized Payload message.
    sa.Column("details", Bytes()),
    sa.Column("run_id", Key()),
    sa.Column("task_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Index(None, "scope_key", "create_time", "audit_id"),
    sa.Index(None, "thread_key", "create_time", "audit_id"),
    info={OUTLIVES_THREAD: True},
)
