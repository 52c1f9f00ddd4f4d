"""Visibility, paths and lineage of versions; what a scope uses; what can be restored; uploads that go on."""

import sqlalchemy as sa
from alembic import op

from threadkeep_chassis.database import JsonText, Key, UtcTimestamp
from threadkeep_chassis.migration_steps import add_index

revision = "artifacts_0002"
down_revision = "artifacts_0001"

_COUNTED = """
UPDATE scopes SET
  artifact_count = (SELECT count(*) FROM artifacts a WHERE a.scope_key = scopes.scope_key AND a.delete_time IS NULL),
  version_count = (SELECT count(*) FROM versions v WHERE v.scope_key = scopes.scope_key),
  content_bytes = (SELECT coalesce(sum(v.size), 0) FROM versions v WHERE v.scope_key = scopes.scope_key),
  stored_bytes = (SELECT coalesce(sum(b.size), 0) FROM blobs b WHERE b.scope_key = scopes.scope_key)
"""


def upgrade() -> None:
    """Adds columns, fills in what is counted, and adds indexes."""
    for name in ("artifact_count", "version_count", "content_bytes", "stored_bytes"):
        op.add_column("scopes", sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.add_column("artifacts", sa.Column("last_version", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    for name in ("task_id", "path", "path_owner"):
        op.add_column("artifacts", sa.Column(name, Key()))
    op.add_column("versions", sa.Column("path", Key()))
    op.add_column("versions", sa.Column("visibility", sa.Text, nullable=False, server_default=sa.text("'PUBLIC'")))
    op.add_column("versions", sa.Column("parent_version", sa.BigInteger))
    op.add_column("versions", sa.Column("produced_from", JsonText()))
    op.add_column("versions", sa.Column("delete_time", UtcTimestamp()))
    op.add_column("staged_blobs", sa.Column("holder", sa.Text, nullable=False, server_default=sa.text("''")))
    for name in ("scope_key", "upload_id"):
        op.add_column("staged_blobs", sa.Column(name, Key()))
    op.create_table(
        "deletions",
        sa.Column("scope_key", Key(), nullable=False),
        sa.Column("artifact_id", Key(), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("delete_time", UtcTimestamp(), nullable=False),
        sa.PrimaryKeyConstraint("scope_key", "artifact_id", "version", name="deletions_pkey"),
    )
    op.create_index("deletions_by_delete_time", "deletions", ["delete_time"])
    op.execute("UPDATE artifacts SET last_version = latest_version")
    op.execute(_TASKS)
    op.execute(_COUNTED)
    add_index("artifacts_by_scope_key_task_id_list_number", "artifacts", ["scope_key", "task_id", "list_number"])
    add_index("artifacts_one_path", "artifacts", ["scope_key", "path_owner", "path"], unique=True)
    add_index("artifacts_by_path", "artifacts", ["scope_key", "path", "artifact_id"])
    add_index("versions_by_scope_key_sha256", "versions", ["scope_key", "sha256"])
    add_index("staged_blobs_one_upload", "staged_blobs", ["scope_key", "upload_id"], unique=True)


_TASKS = """
UPDATE artifacts SET task_id = (
  SELECT v.task_id FROM versions v WHERE v.scope_key = artifacts.scope_key
  AND v.artifact_id = artifacts.artifact_id AND v.version = artifacts.latest_version)
WHERE delete_time IS NULL
"""
