"""Memory across threads: items, and the counters of their scopes."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0003"
down_revision = "0001"


def upgrade() -> None:
    """Makes both tables."""
    op.create_table(
        "store_items",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("namespace", Key(), nullable=False),
        sa.Column("key", Key(), nullable=False),
        sa.Column("value", Bytes(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.Column("expire_time", UtcTimestamp()),
        sa.Column("ttl_microseconds", sa.BigInteger()),
        sa.Column("vectors", Bytes()),
        sa.Column("dimensions", sa.Integer()),
        sa.PrimaryKeyConstraint("scope_key", "namespace", "key", name="store_items_pkey"),
        sa.UniqueConstraint("scope_key", "sequence", name="store_items_one_scope_key_sequence"),
    )
    where = sa.text("expire_time IS NOT NULL")
    op.create_index("store_items_expiring", "store_items", ["expire_time"], postgresql_where=where, sqlite_where=where)
    op.create_table(
        "store_counters",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name="store_counters_pkey"),
    )
