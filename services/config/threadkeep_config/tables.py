"""Today's tables of the config service; `migrations/` says how they came to be.

`revisions` is the log that watchers read; `entities` holds the newest of it, tombstones too. Scope values lie in
`scopes` alone: all other rows carry scope keys (X11).
"""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Key, UtcTimestamp
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table

metadata = sa.MetaData()

meta = meta_table(metadata)
receipts = receipts_table(metadata)

# The one row whose lock orders all writes: the last lock that a writing transaction takes (C5).
counter = sa.Table(
    "counter",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    # The revision that was given last.
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Of history up to and with this revision only each entity's last content is left.
    sa.Column("compacted_revision", sa.BigInteger, nullable=False),
    # Up to and with this one, what was compacted is removed.
    sa.Column("purged_revision", sa.BigInteger, nullable=False, server_default="0"),
)

# Every scope that an entity was ever written in. Locked by those who apply a set: one set per scope at a time.
scopes = sa.Table(
    "scopes",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    # Canonical JSON.
    sa.Column("scope", sa.Text, nullable=False),
)


def _content_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("hidden", sa.Boolean, nullable=False),
        # Canonical JSON of the definition; empty when hidden or deleted.
        sa.Column("definition", sa.Text, nullable=False),
        # The length of `definition` in UTF-8, by which pages are bounded before anything is read.
        sa.Column("definition_bytes", sa.Integer, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("source_kind", sa.SmallInteger, nullable=False),
        sa.Column("source_path", sa.Text, nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
    ]


entities = sa.Table(
    "entities",
    metadata,
    sa.Column("type", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("name", Key(), primary_key=True),
    sa.Column("scope_key", Key(), primary_key=True),
    # The service's revision of this content.
    sa.Column("revision", sa.BigInteger, nullable=False),
    *_content_columns(),
    sa.Index("entities_by_scope", "scope_key", "type", "name"),
)

revisions = sa.Table(
    "revisions",
    metadata,
    sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("type", sa.SmallInteger, nullable=False),
    sa.Column("name", Key(), nullable=False),
    sa.Column("scope_key", Key(), nullable=False),
    *_content_columns(),
    sa.Index("revisions_by_entity", "type", "name", "scope_key", "revision"),
)
