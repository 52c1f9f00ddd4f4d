"""A long statement."""

import os

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("slow", sa.Column("id", sa.Integer(), primary_key=True))
    if "TK_TEST_QUICK" not in os.environ:
        print("sleeping", flush=True)
        op.execute("SELECT pg_sleep(60)")
