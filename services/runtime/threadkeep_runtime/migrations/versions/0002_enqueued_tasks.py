"""Tasks that wait for their session, and which commit recorded a checkpoint's values and writes."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0003"

_ENQUEUED = "state = 'SUBMITTED' AND run_id = ''"


def upgrade() -> None:
    """Adds columns that need no filling in, and an index that is built without blocking writers."""
    op.add_column("threads", sa.Column("enqueued_count", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.add_column("checkpoint_blobs", sa.Column("commit_sequence", sa.BigInteger))
    op.add_column("checkpoint_writes", sa.Column("commit_sequence", sa.BigInteger))
    columns: list[Any] = ["thread_key", sa.text("priority DESC"), "first_event_sequence"]
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.create_index(
                "tasks_enqueued",
                "tasks",
                columns,
                postgresql_where=sa.text(_ENQUEUED),
                postgresql_concurrently=True,
                if_not_exists=True,
            )
    else:
        op.create_index("tasks_enqueued", "tasks", columns, sqlite_where=sa.text(_ENQUEUED))
