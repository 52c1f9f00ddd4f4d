"""Forks: where a session comes from."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key

revision = "0020"
down_revision = "0014"


def upgrade() -> None:
    """Adds columns that need no filling in."""
    op.add_column("threads", sa.Column("forked_from_session_id", Key()))
    op.add_column("threads", sa.Column("forked_from_commit", sa.BigInteger()))
