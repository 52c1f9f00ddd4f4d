"""Attempts: a task's later runs, when they are due, and the policy that allows them."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonText, Key, UtcTimestamp

revision = "0005"
down_revision = "0002"


def upgrade() -> None:
    """Adds columns; tasks and runs that are there had one attempt."""
    for name, type_, default in (
        ("initial_backoff_seconds", sa.Double(), "1"),
        ("max_backoff_seconds", sa.Double(), "60"),
        ("multiplier", sa.Double(), "2"),
        ("retryable_codes", JsonText(), "'[]'"),
        ("attempt", sa.Integer(), "1"),
    ):
        op.add_column("tasks", sa.Column(name, type_, nullable=False, server_default=sa.text(default)))
    op.add_column("runs", sa.Column("attempt", sa.Integer(), nullable=False, server_default=sa.text("1")))
    op.add_column("runs", sa.Column("parent_run_id", Key()))
    op.add_column("runs", sa.Column("due_time", UtcTimestamp()))
