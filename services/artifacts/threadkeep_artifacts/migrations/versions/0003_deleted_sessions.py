"""The follower of the runtime's log, and the sessions that were deleted with their artifacts."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "artifacts_0003"
down_revision = "artifacts_0002"


def upgrade() -> None:
    """Adds two tables."""
    op.create_table(
        "followers",
        sa.Column("name", Key(), nullable=False),
        sa.Column("cursor", Bytes(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("lease_expire_time", UtcTimestamp()),
        sa.PrimaryKeyConstraint("name", name="followers_pkey"),
    )
    op.create_table(
        "deleted_sessions",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("delete_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "session_id", name="deleted_sessions_pkey"),
    )
