"""Values that are too large for one message, in chunks, until a commit names them."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0009"
down_revision = "0005"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "staged_chunks",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("staged_id", Key(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("chunk", Bytes(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "staged_id", "idx", name="staged_chunks_pkey"),
    )
    op.create_index("staged_chunks_by_create_time", "staged_chunks", ["create_time"])
