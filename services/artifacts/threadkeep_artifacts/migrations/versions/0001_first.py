"""The first schema: artifacts, versions, content in the database, receipts."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp

revision = "artifacts_0001"
down_revision = None


def upgrade() -> None:
    """Makes every table."""
    op.create_table(
        "meta",
        sa.Column("name", Key(), nullable=False),
        sa.Column("value", Bytes(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="meta_pkey"),
    )
    op.create_table(
        "receipts",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("request_id", Key(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("fingerprint", Bytes(), nullable=False),
        sa.Column("response", Bytes(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "request_id", name="receipts_pkey"),
    )
    op.create_index("receipts_by_create_time", "receipts", ["create_time"])
    op.create_table(
        "scopes",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("last_list_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", name="scopes_pkey"),
    )
    _create_artifacts()
    _create_versions()
    _create_content()


def _create_artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("artifact_id", Key(), nullable=False),
        sa.Column("latest_version", sa.BigInteger(), nullable=False),
        sa.Column("list_number", sa.BigInteger(), nullable=True),
        sa.Column("name", Key(), nullable=True),
        sa.Column("type", Key(), nullable=True),
        sa.Column("session_id", Key(), nullable=True),
        sa.Column("run_id", Key(), nullable=True),
        sa.Column("checkpoint_id", Key(), nullable=True),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.Column("delete_time", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("scope_key", "artifact_id", name="artifacts_pkey"),
    )
    op.create_index("artifacts_by_scope_key_list_number", "artifacts", ["scope_key", "list_number"])
    for column in ("name", "type", "session_id", "run_id", "checkpoint_id"):
        op.create_index(
            f"artifacts_by_scope_key_{column}_list_number", "artifacts", ["scope_key", column, "list_number"]
        )
    op.create_table(
        "artifact_labels",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("artifact_id", Key(), nullable=False),
        sa.Column("key", Key(), nullable=False),
        sa.Column("value", Key(), nullable=False),
        sa.Column("list_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "artifact_id", "key", name="artifact_labels_pkey"),
    )
    op.create_index(
        "artifact_labels_by_scope_key_key_value_list_number",
        "artifact_labels",
        ["scope_key", "key", "value", "list_number"],
    )


def _create_versions() -> None:
    op.create_table(
        "versions",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("artifact_id", Key(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("name", Key(), nullable=False),
        sa.Column("type", Key(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("labels", JsonText(), nullable=False),
        sa.Column("session_id", Key(), nullable=True),
        sa.Column("task_id", Key(), nullable=True),
        sa.Column("run_id", Key(), nullable=True),
        sa.Column("checkpoint_id", Key(), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", Key(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "artifact_id", "version", name="versions_pkey"),
    )


def _create_content() -> None:
    op.create_table(
        "blobs",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("sha256", Key(), nullable=False),
        sa.Column("blob_id", Key(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("chunk_bytes", sa.BigInteger(), nullable=False),
        sa.Column("chunk_digests", Bytes(), nullable=False),
        sa.Column("reference_count", sa.BigInteger(), nullable=False),
        sa.Column("unreferenced_time", UtcTimestamp(), nullable=True),
        sa.PrimaryKeyConstraint("scope_key", "sha256", name="blobs_pkey"),
        sa.UniqueConstraint("blob_id", name="blobs_one_blob_id"),
    )
    op.create_index("blobs_by_unreferenced_time", "blobs", ["unreferenced_time"])
    op.create_table(
        "staged_blobs",
        sa.Column("blob_id", Key(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("touch_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("blob_id", name="staged_blobs_pkey"),
        sa.CheckConstraint("state IN ('OPEN', 'ABANDONED', 'DROPPED')", name="staged_blobs_state_known"),
    )
    op.create_index("staged_blobs_by_state_touch_time", "staged_blobs", ["state", "touch_time"])
    op.create_table(
        "blob_chunks",
        sa.Column("blob_id", Key(), nullable=False),
        sa.Column("chunk_index", sa.BigInteger(), nullable=False),
        sa.Column("content", Bytes(), nullable=False),
        sa.PrimaryKeyConstraint("blob_id", "chunk_index", name="blob_chunks_pkey"),
    )
