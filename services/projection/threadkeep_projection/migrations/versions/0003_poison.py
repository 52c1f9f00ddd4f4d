"""Events that could not be projected."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, UtcTimestamp

revision = "projection_0003"
down_revision = "projection_0002"


def upgrade() -> None:
    """Adds a table."""
    op.create_table(
        "poison_events",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("type", Key(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", "sequence", name="poison_events_pkey"),
    )
