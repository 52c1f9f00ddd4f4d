"""Deleted sessions: their tombstones, and receipts that say no more than that they were; floors of the log."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, UtcTimestamp

revision = "0006"
down_revision = "0009"


def upgrade() -> None:
    """Adds tables, and columns that need no filling in."""
    op.create_table(
        "tombstones",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("event_sequence", sa.BigInteger(), nullable=False),
        sa.Column("delete_time", UtcTimestamp(), nullable=False),
        sa.Column("swept_time", UtcTimestamp()),
        sa.PrimaryKeyConstraint("thread_key", name="tombstones_pkey"),
    )
    where = sa.text("swept_time IS NULL")
    op.create_index("tombstones_unswept", "tombstones", ["thread_key"], postgresql_where=where, sqlite_where=where)
    op.create_table(
        "log_floors",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("partition", sa.SmallInteger(), nullable=False, autoincrement=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "partition", name="log_floors_pkey"),
    )
    op.add_column("threads", sa.Column("delete_time", UtcTimestamp()))
    op.add_column("threads", sa.Column("event_floor", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("commits", sa.Column("receipt_key", Key()))
    op.add_column("receipts", sa.Column("is_erased", sa.Boolean(), nullable=False, server_default=sa.false()))
