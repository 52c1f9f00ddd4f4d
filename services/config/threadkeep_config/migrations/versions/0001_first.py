"""The first schema."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, Key, UtcTimestamp

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables and the counter's row."""
    op.create_table(
        "meta",
        sa.Column("name", Key(), primary_key=True),
        sa.Column("value", Bytes(), nullable=False),
    )
    op.create_table(
        "receipts",
        sa.Column("scope_key", Key(), primary_key=True),
        sa.Column("request_id", Key(), primary_key=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("fingerprint", Bytes(), nullable=False),
        sa.Column("response", Bytes(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
    )
    op.create_index("receipts_by_create_time", "receipts", ["create_time"])
    counter = op.create_table(
        "counter",
        sa.Column("id", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("compacted_revision", sa.BigInteger(), nullable=False),
    )
    op.bulk_insert(counter, [{"id": 1, "revision": 0, "compacted_revision": 0}])
    op.create_table(
        "scopes",
        sa.Column("scope_key", Key(), primary_key=True),
        sa.Column("scope", sa.Text(), nullable=False),
    )
    op.create_table(
        "entities",
        sa.Column("type", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", Key(), primary_key=True),
        sa.Column("scope_key", Key(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        *_content_columns(),
    )
    op.create_index("entities_by_scope", "entities", ["scope_key", "type", "name"])
    op.create_table(
        "revisions",
        sa.Column("revision", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("type", sa.SmallInteger(), nullable=False),
        sa.Column("name", Key(), nullable=False),
        sa.Column("scope_key", Key(), nullable=False),
        *_content_columns(),
    )
    op.create_index("revisions_by_entity", "revisions", ["type", "name", "scope_key", "revision"])


def _content_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("definition_bytes", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("source_kind", sa.SmallInteger(), nullable=False),
        sa.Column("source_path", sa.Text(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("update_time", UtcTimestamp(), nullable=False),
    ]
