"""State keys as a scope declares them, and what threads hold under them (R11)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp
from threadkeep_runtime.tables.schema import metadata, one_of

STATE_SCOPES = ("RUN", "THREAD")
STATE_MERGES = ("EXCLUSIVE", "DISJOINT", "COMMUTATIVE")

state_keys = sa.Table(
    "state_keys",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("key", Key(), primary_key=True),
    # RUN or THREAD: how long values live.
    sa.Column("lifetime", sa.Text, nullable=False),
    sa.Column("merge", sa.Text, nullable=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    sa.Column("max_value_bytes", sa.BigInteger, nullable=False),
    # The JSON text as it came.
    sa.Column("schema_json", Bytes()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    one_of("lifetime", STATE_SCOPES),
    one_of("merge", STATE_MERGES),
)

# How many keys a scope has declared. A declaration locks the row first.
state_key_counters = sa.Table(
    "state_key_counters",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
)

# One row per commit and key that it wrote. The newest at or below a commit is the key's value then; a RUN key's only if
# its run is the one that is open.
state_values = sa.Table(
    "state_values",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("key", Key(), primary_key=True),
    sa.Column("commit_sequence", sa.BigInteger, primary_key=True),
    # Counts the writes of the key in the thread, or in the run.
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("schema_version", sa.Integer, nullable=False),
    # JSON; NULL: the commit took the value away.
    sa.Column("value", Bytes()),
    # The run whose lease the commit carried.
    sa.Column("run_id", Key()),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
)
