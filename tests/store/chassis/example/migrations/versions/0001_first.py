"""The first schema."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, UtcTimestamp

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "things",
        sa.Column("id", Key(), primary_key=True),
        sa.Column("n", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("time", UtcTimestamp()),
    )
