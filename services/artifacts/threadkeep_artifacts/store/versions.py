"""Rows of versions: written once, read with or without where their content lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from threadkeep_artifacts.domain.values import ArtifactMetadata, ArtifactVersion, StoredContent
from threadkeep_artifacts.tables import artifacts, blobs, versions
from threadkeep_chassis.database import Connection

version_columns = (
    versions.c.artifact_id,
    versions.c.version,
    versions.c.name,
    versions.c.type,
    versions.c.media_type,
    versions.c.labels,
    versions.c.session_id,
    versions.c.task_id,
    versions.c.run_id,
    versions.c.checkpoint_id,
    versions.c.size,
    versions.c.sha256,
    versions.c.create_time,
    artifacts.c.create_time.label("artifact_create_time"),
)

_LIVE = versions.join(
    artifacts,
    sa.and_(
        artifacts.c.scope_key == versions.c.scope_key,
        artifacts.c.artifact_id == versions.c.artifact_id,
        artifacts.c.delete_time.is_(None),
    ),
)
_WITH_CONTENT = _LIVE.join(
    blobs, sa.and_(blobs.c.scope_key == versions.c.scope_key, blobs.c.sha256 == versions.c.sha256)
)
_CONTENT_COLUMNS = (blobs.c.blob_id, blobs.c.chunk_bytes, blobs.c.chunk_digests)


def to_version(row: Any) -> ArtifactVersion:
    """A row of `version_columns` as a value."""
    metadata = ArtifactMetadata(
        name=row.name,
        type=row.type,
        media_type=row.media_type,
        labels=row.labels,
        session_id=row.session_id,
        task_id=row.task_id,
        run_id=row.run_id,
        checkpoint_id=row.checkpoint_id,
    )
    return ArtifactVersion(
        artifact_id=row.artifact_id,
        version=row.version,
        metadata=metadata,
        size=row.size,
        sha256=row.sha256,
        create_time=row.create_time,
        artifact_create_time=row.artifact_create_time,
    )


async def insert_version(connection: Connection, scope_key: str, version: ArtifactVersion) -> None:
    """Writes the version."""
    metadata = version.metadata
    row = {
        "scope_key": scope_key,
        "artifact_id": version.artifact_id,
        "version": version.version,
        "name": metadata.name,
        "type": metadata.type,
        "media_type": metadata.media_type,
        "labels": dict(metadata.labels),
        "session_id": metadata.session_id,
        "task_id": metadata.task_id,
        "run_id": metadata.run_id,
        "checkpoint_id": metadata.checkpoint_id,
        "size": version.size,
        "sha256": version.sha256,
        "create_time": version.create_time,
    }
    await connection.execute(sa.insert(versions), row)


async def read_version(
    connection: Connection, scope_key: str, artifact_id: str, version: int
) -> ArtifactVersion | None:
    """A version (0: the latest) of an artifact that is not deleted, or None."""
    statement = sa.select(*version_columns).select_from(_LIVE).where(*_one(scope_key, artifact_id, version))
    row = (await connection.execute(statement)).first()
    return None if row is None else to_version(row)


async def read_version_and_content(
    connection: Connection, scope_key: str, artifact_id: str, version: int
) -> tuple[ArtifactVersion, StoredContent] | None:
    """The same, with where its content lies."""
    statement = (
        sa.select(*version_columns, *_CONTENT_COLUMNS)
        .select_from(_WITH_CONTENT)
        .where(*_one(scope_key, artifact_id, version))
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        return None
    content = StoredContent(row.blob_id, row.size, row.sha256, row.chunk_bytes, bytes(row.chunk_digests))
    return to_version(row), content


async def list_versions(
    connection: Connection, scope_key: str, artifact_id: str, before: int | None, limit: int
) -> Sequence[ArtifactVersion]:
    """The artifact's versions, newest first; `before`: only versions below this one."""
    conditions = [versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id]
    if before is not None:
        conditions.append(versions.c.version < before)
    statement = sa.select(*version_columns).select_from(_LIVE).where(*conditions)
    rows = await connection.execute(statement.order_by(versions.c.version.desc()).limit(limit))
    return [to_version(row) for row in rows]


async def delete_versions(connection: Connection, scope_key: str, artifact_id: str) -> dict[str, int]:
    """Deletes all versions of the artifact; gives how many there were of each content digest."""
    of_artifact = (versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id)
    counted = sa.select(versions.c.sha256, sa.func.count().label("version_count"))
    rows = await connection.execute(counted.where(*of_artifact).group_by(versions.c.sha256))
    counts = {row.sha256: row.version_count for row in rows}
    await connection.execute(sa.delete(versions).where(*of_artifact))
    return counts


def _one(scope_key: str, artifact_id: str, version: int) -> tuple[sa.ColumnElement[bool], ...]:
    wanted = versions.c.version == (version if version else artifacts.c.latest_version)
    return versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, wanted
