"""Pauses, how far the log is reached, and the marks of a rebuild that goes on."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, UtcTimestamp

revision = "projection_0002"
down_revision = "projection_0001"


def upgrade() -> None:
    """Adds columns and a table."""
    op.add_column("shares", sa.Column("is_paused", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("shares", sa.Column("pause_expire_time", UtcTimestamp()))
    op.add_column("shares", sa.Column("reach_time", UtcTimestamp()))
    op.create_table(
        "rebuild_marks",
        sa.Column("rebuild", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.Column("event_count", sa.BigInteger(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("rebuild", "scope_key", "session_id", name="rebuild_marks_pkey"),
    )
    op.create_index("rebuild_marks_by_create_time", "rebuild_marks", ["create_time"])
