"""Several shares, one for each partition of the log, and the replicas that have them among them.

The one share that there was keeps its place: the follower divides it once it knows the log's partitions. Its cursor
gets another name, so that a replica of before, which knows one share only, can't follow any more.
"""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, UtcTimestamp

revision = "projection_0007"
down_revision = "projection_0006"


def upgrade() -> None:
    """Adds a column and a table, and renames a column."""
    op.add_column("shares", sa.Column("share_count", sa.SmallInteger(), nullable=False, server_default=sa.text("1")))
    op.alter_column("shares", "cursor", new_column_name="log_cursor")
    op.create_table(
        "followers",
        sa.Column("owner", Key(), nullable=False),
        sa.Column("expire_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="followers_pkey"),
    )
