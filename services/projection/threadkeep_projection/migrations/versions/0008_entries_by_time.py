"""Metadata entries know when their session or task was created, so that lists by them need no sorting."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import UtcTimestamp

revision = "projection_0008"
down_revision = "projection_0007"


def upgrade() -> None:
    """Adds columns and fills them, and puts indexes in the place of others."""
    for owner, key in (("session", "session_id"), ("task", "task_id")):
        table = f"{owner}_entries"
        op.add_column(table, sa.Column("create_time", UtcTimestamp()))
        op.execute(
            f"UPDATE {table} SET create_time = (SELECT o.create_time FROM {owner}s o "
            f"WHERE o.scope_key = {table}.scope_key AND o.{key} = {table}.{key})"
        )
        op.create_index(
            f"{table}_by_scope_key_entry_create_time_{key}", table, ["scope_key", "entry", "create_time", key]
        )
        op.drop_index(f"{table}_by_scope_key_entry_{key}", table)
