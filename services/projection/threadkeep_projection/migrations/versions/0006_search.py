"""Search in messages. Messages of before are found once their session is built anew."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Key, WordSet
from threadkeep_chassis.migration_steps import add_word_index

revision = "projection_0006"
down_revision = "projection_0005"


def upgrade() -> None:
    """Adds columns and an index."""
    op.add_column("messages", sa.Column("role", Key()))
    op.add_column("messages", sa.Column("searched", sa.Text()))
    op.add_column("messages", sa.Column("words", WordSet()))
    add_word_index("messages", ["scope_key", "session_id", "message_id"], "words")
