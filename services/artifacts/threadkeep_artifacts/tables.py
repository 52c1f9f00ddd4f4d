"""Today's tables of the artifacts service (A1 to A3, A5); `migrations/` says how they came to be.

Rows of artifacts and versions are keyed by the scope first. Content lies apart from them, so that lists read none (A5).
"""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_N_name)s",
        "uq": "%(table_name)s_one_%(column_0_N_name)s",
        "ck": "%(table_name)s_%(constraint_name)s",
        "pk": "%(table_name)s_pkey",
    }
)

meta = meta_table(metadata)
receipts = receipts_table(metadata)

# One row per scope that has artifacts: where the order of its lists comes from, and what it uses. Whatever changes the
# scope's artifacts locks it first.
scopes = sa.Table(
    "scopes",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    # The place in lists that was given last.
    sa.Column("last_list_number", sa.BigInteger, nullable=False),
    # Of what is not deleted.
    sa.Column("artifact_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("version_count", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("content_bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # Of every blob of the scope.
    sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)

# An artifact, with what its latest version says, to filter by. A deleted one keeps its row, so that its id stays taken.
artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("artifact_id", Key(), primary_key=True),
    # The greatest version that is not deleted, and the greatest that was ever given.
    sa.Column("latest_version", sa.BigInteger, nullable=False),
    sa.Column("last_version", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    # Place in lists: grows with each new artifact of the scope. NULL once deleted, and so are the columns to filter by.
    sa.Column("list_number", sa.BigInteger),
    sa.Column("name", Key()),
    sa.Column("type", Key()),
    sa.Column("session_id", Key()),
    sa.Column("run_id", Key()),
    sa.Column("checkpoint_id", Key()),
    sa.Column("task_id", Key()),
    # A path is of one artifact of a session, or outside of sessions (owner "").
    sa.Column("path", Key()),
    sa.Column("path_owner", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("delete_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "list_number"),
    sa.Index(None, "scope_key", "name", "list_number"),
    sa.Index(None, "scope_key", "type", "list_number"),
    sa.Index(None, "scope_key", "session_id", "list_number"),
    sa.Index(None, "scope_key", "run_id", "list_number"),
    sa.Index(None, "scope_key", "checkpoint_id", "list_number"),
    sa.Index(None, "scope_key", "task_id", "list_number"),
    sa.Index("artifacts_one_path", "scope_key", "path_owner", "path", unique=True),
    sa.Index("artifacts_by_path", "scope_key", "path", "artifact_id"),
)

# What was deleted and can be restored: an artifact (version 0) or one of its versions. The sweep purges it later.
deletions = sa.Table(
    "deletions",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("artifact_id", Key(), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("delete_time", UtcTimestamp(), nullable=False),
    sa.Index(None, "delete_time"),
)

# The labels of each artifact's latest version, one by one, to filter by.
artifact_labels = sa.Table(
    "artifact_labels",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("artifact_id", Key(), primary_key=True),
    sa.Column("key", Key(), primary_key=True),
    sa.Column("value", Key(), nullable=False),
    # The artifact's, so that a list filtered by label reads in order.
    sa.Column("list_number", sa.BigInteger, nullable=False),
    sa.Index(None, "scope_key", "key", "value", "list_number"),
)

versions = sa.Table(
    "versions",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("artifact_id", Key(), primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("name", Key(), nullable=False),
    sa.Column("type", Key(), nullable=False),
    sa.Column("media_type", sa.Text, nullable=False),
    sa.Column("labels", JsonText(), nullable=False),
    sa.Column("session_id", Key()),
    sa.Column("task_id", Key()),
    sa.Column("run_id", Key()),
    sa.Column("checkpoint_id", Key()),
    sa.Column("size", sa.BigInteger, nullable=False),
    # Which of the scope's blobs is the content.
    sa.Column("sha256", Key(), nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("path", Key()),
    sa.Column("visibility", sa.Text, nullable=False, server_default=sa.text("'PUBLIC'")),
    sa.Column("parent_version", sa.BigInteger),
    # [[artifact id, version], ...]
    sa.Column("produced_from", JsonText()),
    # Set while it alone is deleted, not the artifact.
    sa.Column("delete_time", UtcTimestamp()),
    sa.Index(None, "scope_key", "sha256"),
)

# Content, stored once per scope. `blob_id` names its chunks in the blob store.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("sha256", Key(), primary_key=True),
    sa.Column("blob_id", Key(), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("chunk_bytes", sa.BigInteger, nullable=False),
    # SHA-256 of each chunk, 32 bytes each.
    sa.Column("chunk_digests", Bytes(), nullable=False),
    # How many versions refer to it. Changed only by the statements that make or delete versions.
    sa.Column("reference_count", sa.BigInteger, nullable=False),
    # Since when nothing refers to it. NULL while something does.
    sa.Column("unreferenced_time", UtcTimestamp()),
    sa.UniqueConstraint("blob_id"),
    sa.Index(None, "unreferenced_time"),
)

# Blob ids whose chunks are no content. OPEN: an upload writes them. ABANDONED: an upload wrote them, and may wake up
# late. DROPPED: nobody writes them any more. The sweep removes the chunks of the latter two.
staged_blobs = sa.Table(
    "staged_blobs",
    metadata,
    sa.Column("blob_id", Key(), primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    # OPEN: when the upload last showed that it lives. Else: when it came into this state.
    sa.Column("touch_time", UtcTimestamp(), nullable=False),
    # The stream that writes it: a later one of the same upload takes it over.
    sa.Column("holder", sa.Text, nullable=False, server_default=sa.text("''")),
    # The caller's name for it, while another stream may go on.
    sa.Column("scope_key", Key()),
    sa.Column("upload_id", Key()),
    sa.Index("staged_blobs_one_upload", "scope_key", "upload_id", unique=True),
    sa.CheckConstraint("state IN ('OPEN', 'ABANDONED', 'DROPPED')", name="state_known"),
    sa.Index(None, "state", "touch_time"),
)

# The blob store that lies in the database: chunks by their blob.
blob_chunks = sa.Table(
    "blob_chunks",
    metadata,
    sa.Column("blob_id", Key(), primary_key=True),
    sa.Column("chunk_index", sa.BigInteger, primary_key=True),
    sa.Column("content", Bytes(), nullable=False),
)

# How far the runtime's log was followed, and which replica follows it.
followers = sa.Table(
    "followers",
    metadata,
    sa.Column("name", Key(), primary_key=True),
    sa.Column("cursor", Bytes(), nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("lease_expire_time", UtcTimestamp()),
)

# Sessions that were deleted with their artifacts: late writers make no new ones.
deleted_sessions = sa.Table(
    "deleted_sessions",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("session_id", Key(), primary_key=True),
    sa.Column("delete_time", UtcTimestamp(), nullable=False),
)
