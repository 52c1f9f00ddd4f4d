"""State keys and their values; what a commit keeps of the thread around it, so that it can be looked at later."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Makes the tables. Commits that are there keep nothing: a view as of one of them is refused."""
    op.create_table(
        "state_keys",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("key", Key(), nullable=False),
        sa.Column("lifetime", sa.Text(), nullable=False),
        sa.Column("merge", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("max_value_bytes", sa.BigInteger(), nullable=False),
        sa.Column("schema_json", Bytes()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "key", name="state_keys_pkey"),
        sa.CheckConstraint("lifetime IN ('RUN', 'THREAD')", name="state_keys_lifetime_known"),
        sa.CheckConstraint("merge IN ('EXCLUSIVE', 'DISJOINT', 'COMMUTATIVE')", name="state_keys_merge_known"),
    )
    op.create_table(
        "state_key_counters",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name="state_key_counters_pkey"),
    )
    op.create_table(
        "state_values",
        sa.Column("thread_key", Key(), nullable=False),
        sa.Column("key", Key(), nullable=False),
        sa.Column("commit_sequence", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("value", Bytes()),
        sa.Column("run_id", Key()),
        sa.Column("actor_kind", sa.Text(), nullable=False),
        sa.Column("actor_id", Key()),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("thread_key", "key", "commit_sequence", name="state_values_pkey"),
    )
    op.add_column("commits", sa.Column("open_run", sa.Text()))
    op.add_column("commits", sa.Column("root_checkpoint_id", Key()))
