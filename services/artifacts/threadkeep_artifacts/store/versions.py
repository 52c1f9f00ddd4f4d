"""Rows of versions: written once, read with or without where their content lies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_artifacts.domain.values import ArtifactMetadata, ArtifactReference, ArtifactVersion, StoredContent
from threadkeep_artifacts.domain.visibility import Reader, Visibility
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
    versions.c.path,
    versions.c.visibility,
    versions.c.parent_version,
    versions.c.produced_from,
    artifacts.c.create_time.label("artifact_create_time"),
)

_LIVE = versions.join(
    artifacts,
    sa.and_(
        artifacts.c.scope_key == versions.c.scope_key,
        artifacts.c.artifact_id == versions.c.artifact_id,
        artifacts.c.delete_time.is_(None),
        versions.c.delete_time.is_(None),
    ),
)
_EVERY = versions.join(
    artifacts,
    sa.and_(artifacts.c.scope_key == versions.c.scope_key, artifacts.c.artifact_id == versions.c.artifact_id),
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
        path=row.path,
        visibility=Visibility(row.visibility),
        parent_version=row.parent_version,
        produced_from=tuple(ArtifactReference(*one) for one in row.produced_from or ()),
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
        "path": metadata.path,
        "visibility": metadata.visibility.value,
        "parent_version": metadata.parent_version,
        "produced_from": [[one.artifact_id, one.version] for one in metadata.produced_from] or None,
    }
    await connection.execute(sa.insert(versions), row)


def seen_by(reader: Reader) -> list[sa.ColumnElement[bool]]:
    """The condition that the reader may read a version; see `Reader.sees`."""
    if reader.is_operator:
        return []
    ways = [versions.c.visibility == Visibility.PUBLIC.value]
    if reader.session_ids:
        mine = versions.c.session_id.in_(sorted(reader.session_ids))
        ways.append(sa.and_(versions.c.visibility == Visibility.RUN.value, mine))
    if reader.run_id is not None:
        ways.append(sa.and_(versions.c.visibility == Visibility.PRIVATE.value, versions.c.run_id == reader.run_id))
    return [sa.or_(*ways)]


async def read_version(
    connection: Connection, scope_key: str, reader: Reader, artifact_id: str, version: int
) -> ArtifactVersion | None:
    """A version (0: the latest) of an artifact, neither of them deleted, that the reader may read; or None."""
    statement = sa.select(*version_columns).select_from(_LIVE).where(*_one(scope_key, artifact_id, version))
    row = (await connection.execute(statement.where(*seen_by(reader)))).first()
    return None if row is None else to_version(row)


async def read_version_and_content(
    connection: Connection, scope_key: str, reader: Reader, artifact_id: str, version: int
) -> tuple[ArtifactVersion, StoredContent] | None:
    """The same, with where its content lies."""
    statement = (
        sa.select(*version_columns, *_CONTENT_COLUMNS)
        .select_from(_WITH_CONTENT)
        .where(*_one(scope_key, artifact_id, version), *seen_by(reader))
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        return None
    content = StoredContent(row.blob_id, row.size, row.sha256, row.chunk_bytes, bytes(row.chunk_digests))
    return to_version(row), content


async def find_by_digest(connection: Connection, scope_key: str, reader: Reader, sha256: str) -> ArtifactVersion | None:
    """Some version with this content that the reader may read."""
    conditions = (versions.c.scope_key == scope_key, versions.c.sha256 == sha256, *seen_by(reader))
    row = (await connection.execute(sa.select(*version_columns).select_from(_LIVE).where(*conditions).limit(1))).first()
    return None if row is None else to_version(row)


async def list_versions(
    connection: Connection, scope_key: str, reader: Reader, artifact_id: str, before: int | None, limit: int
) -> Sequence[ArtifactVersion]:
    """The versions that the reader may read, newest first; `before`: only versions below this one."""
    conditions = [versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, *seen_by(reader)]
    if before is not None:
        conditions.append(versions.c.version < before)
    statement = sa.select(*version_columns).select_from(_LIVE).where(*conditions)
    rows = await connection.execute(statement.order_by(versions.c.version.desc()).limit(limit))
    return [to_version(row) for row in rows]


async def read_any(connection: Connection, scope_key: str, artifact_id: str, version: int) -> ArtifactVersion | None:
    """A version, whether it or the artifact is deleted or not, as long as it was not purged."""
    statement = sa.select(*version_columns).select_from(_EVERY).where(*_one(scope_key, artifact_id, version))
    row = (await connection.execute(statement)).first()
    return None if row is None else to_version(row)


async def greatest(connection: Connection, scope_key: str, artifact_id: str) -> ArtifactVersion | None:
    """The greatest version of an artifact that was not deleted by itself."""
    statement = (
        sa.select(*version_columns)
        .select_from(_EVERY)
        .where(
            versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, versions.c.delete_time.is_(None)
        )
        .order_by(versions.c.version.desc())
        .limit(1)
    )
    row = (await connection.execute(statement)).first()
    return None if row is None else to_version(row)


async def measure(connection: Connection, scope_key: str, artifact_id: str) -> tuple[int, int]:
    """How many versions the artifact has that were not deleted by themselves, and their size in bytes."""
    size = sa.cast(sa.func.coalesce(sa.func.sum(versions.c.size), 0), sa.BigInteger)
    statement = sa.select(sa.func.count().label("version_count"), size.label("size")).where(
        versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, versions.c.delete_time.is_(None)
    )
    row = (await connection.execute(statement)).one()
    return int(row.version_count), int(row.size)


async def set_deleted(
    connection: Connection, scope_key: str, artifact_id: str, version: int, delete_time: datetime | None
) -> None:
    """Marks one version as deleted, or as not deleted."""
    statement = sa.update(versions).where(
        versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, versions.c.version == version
    )
    await connection.execute(statement.values(delete_time=delete_time))


async def purge(connection: Connection, scope_key: str, artifact_id: str, version: int) -> dict[str, int]:
    """Removes a version (0: all of the artifact's); gives how many there were of each content digest."""
    of_artifact = [versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id]
    if version:
        of_artifact.append(versions.c.version == version)
    counted = sa.select(versions.c.sha256, sa.func.count().label("version_count"))
    rows = await connection.execute(counted.where(*of_artifact).group_by(versions.c.sha256))
    counts = {row.sha256: row.version_count for row in rows}
    await connection.execute(sa.delete(versions).where(*of_artifact))
    return counts


def _one(scope_key: str, artifact_id: str, version: int) -> tuple[sa.ColumnElement[bool], ...]:
    wanted = versions.c.version == (version if version else artifacts.c.latest_version)
    return versions.c.scope_key == scope_key, versions.c.artifact_id == artifact_id, wanted
