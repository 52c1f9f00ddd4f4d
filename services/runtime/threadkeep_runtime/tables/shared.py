"""What belongs to no single thread."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table
from threadkeep_runtime.tables.schema import metadata

receipts = receipts_table(
    metadata,
    # True once the thread was deleted that the request was about: what it was answered is gone (R19).
    sa.Column("is_erased", sa.Boolean, nullable=False, server_default=sa.false()),
)
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
