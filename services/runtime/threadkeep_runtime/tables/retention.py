"""Retention: the scopes' policies, and who applies them (R19)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import JsonText, Key, UtcTimestamp
from threadkeep_runtime.tables.schema import metadata

retention_policies = sa.Table(
    "retention_policies",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    # Rules by kind; see domain/retention.py.
    sa.Column("policy", JsonText(), nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
)

# Which replica does work that one shall do at a time, and until when that is so unless it says so again.
loop_owners = sa.Table(
    "loop_owners",
    metadata,
    sa.Column("name", Key(), primary_key=True),
    sa.Column("owner", Key(), nullable=False),
    sa.Column("expire_time", UtcTimestamp(), nullable=False),
)
