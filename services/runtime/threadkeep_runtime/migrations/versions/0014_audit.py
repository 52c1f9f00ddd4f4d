"""Audit records, and the chain of commits."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Makes the table and adds columns. A thread's chain begins with its next commit."""
    op.create_table(
        "audit_records",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("audit_id", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("session_id", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("action", Key(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor_id", Key()),
        sa.Column("details", Bytes()),
        sa.Column("run_id", Key()),
        sa.Column("task_id", Key()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "audit_id", name="audit_records_pkey"),
    )
    for first in ("scope_key", "thread_key"):
        op.create_index(
            f"audit_records_by_{first}_create_time_audit_id", "audit_records", [first, "create_time", "audit_id"]
        )
    op.add_column("commits", sa.Column("parts", sa.Text()))
    op.add_column("commits", sa.Column("digest", Bytes()))
    op.add_column("threads", sa.Column("digest", Bytes()))
    for name in ("digest_sequence", "chain_start"):
        op.add_column("threads", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("threads", sa.Column("chain_anchor", Bytes()))
