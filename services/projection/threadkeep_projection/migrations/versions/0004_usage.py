"""The model of a message, for usage. Messages of before have none until their session is built anew."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key

revision = "projection_0004"
down_revision = "projection_0003"


def upgrade() -> None:
    """Adds a column and an index."""
    op.add_column("messages", sa.Column("model", Key()))
    op.create_index("messages_by_scope_key_create_time", "messages", ["scope_key", "create_time"])
