"""Webhooks of tasks that are told of each new state."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonText, Key

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Adds columns that need no filling in."""
    op.add_column("tasks", sa.Column("webhooks", JsonText()))
    op.add_column("outbox", sa.Column("webhook_id", Key()))
