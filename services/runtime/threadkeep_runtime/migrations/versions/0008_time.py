"""Tasks that are due later, that retry others, and that time out."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonText, Key, UtcTimestamp

revision = "0008"
down_revision = "0007"

_WAITING = "state = 'SUBMITTED' AND run_id = ''"


def upgrade() -> None:
    """Adds columns that need no filling in, and indexes that are built without blocking writers."""
    op.add_column("tasks", sa.Column("not_before", UtcTimestamp()))
    op.add_column("tasks", sa.Column("retry_of", Key()))
    for name in ("total_seconds", "attempt_seconds", "waiting_seconds"):
        op.add_column("tasks", sa.Column(name, sa.Double()))
    op.add_column("tasks", sa.Column("deadline", UtcTimestamp()))
    op.add_column("tasks", sa.Column("timeout_time", UtcTimestamp()))
    op.add_column("tasks", sa.Column("retry_causes", JsonText(), nullable=False, server_default=sa.text("'[]'")))
    op.add_column("leases", sa.Column("attempt_deadline", UtcTimestamp()))
    _partial_index("tasks_due", ["not_before"], f"{_WAITING} AND not_before IS NOT NULL")
    _partial_index("tasks_timeout", ["timeout_time"], "end_time IS NULL AND timeout_time IS NOT NULL")
    _partial_index("tasks_queued", ["scope_key", "queue"], "state = 'SUBMITTED'")
    _partial_index("tasks_unfinished", ["scope_key", "thread_key"], "end_time IS NULL")


def _partial_index(name: str, columns: list[Any], where: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.create_index(
                name,
                "tasks",
                columns,
                postgresql_where=sa.text(where),
                postgresql_concurrently=True,
                if_not_exists=True,
            )
    else:
        op.create_index(name, "tasks", columns, sqlite_where=sa.text(where))
