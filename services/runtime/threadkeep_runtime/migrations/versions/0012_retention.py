"""Retention: policies, who applies them, and how far a thread's history is gone."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonText, Key, UtcTimestamp

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Adds tables, and columns that need no filling in."""
    op.create_table(
        "retention_policies",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("policy", JsonText(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name="retention_policies_pkey"),
    )
    op.create_table(
        "loop_owners",
        sa.Column("name", Key(), nullable=False),
        sa.Column("owner", Key(), nullable=False),
        sa.Column("expire_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="loop_owners_pkey"),
    )
    op.add_column("threads", sa.Column("commit_floor", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("threads", sa.Column("swept_floor", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("checkpoints", sa.Column("create_time", UtcTimestamp()))
    where = sa.text("swept_floor < commit_floor")
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.create_index(
                "threads_unswept",
                "threads",
                ["thread_key"],
                postgresql_where=where,
                postgresql_concurrently=True,
                if_not_exists=True,
            )
    else:
        op.create_index("threads_unswept", "threads", ["thread_key"], sqlite_where=where)
