"""History is compacted: how far superseded revisions were removed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the column to the counter's row."""
    op.add_column("counter", sa.Column("purged_revision", sa.BigInteger(), nullable=False, server_default="0"))
