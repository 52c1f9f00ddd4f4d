"""Items of the store (R21)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata

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
