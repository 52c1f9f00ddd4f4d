"""Rows of artifacts: made, advanced, deleted and restored by statements that compare and set (X4).

Every change comes after `scopes.change`, which holds the scope's row, so that changes of one scope come one by one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_artifacts.domain.decisions import ArtifactState
from threadkeep_artifacts.domain.values import ArtifactMetadata, ArtifactVersion
from threadkeep_artifacts.domain.visibility import Visibility
from threadkeep_artifacts.tables import artifact_labels, artifacts, versions
from threadkeep_chassis.database import Connection, insert_or_ignore

_WITH_LATEST = artifacts.join(
    versions,
    sa.and_(
        versions.c.scope_key == artifacts.c.scope_key,
        versions.c.artifact_id == artifacts.c.artifact_id,
        versions.c.version == artifacts.c.latest_version,
    ),
    isouter=True,
)


async def read_state(connection: Connection, scope_key: str, artifact_id: str) -> ArtifactState | None:
    """What the id stands for; None if it was never used."""
    statement = (
        sa.select(
            artifacts.c.latest_version,
            artifacts.c.delete_time,
            versions.c.visibility,
            versions.c.session_id,
            versions.c.run_id,
        )
        .select_from(_WITH_LATEST)
        .where(*_is(scope_key, artifact_id))
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        return None
    # A purged artifact has no version left, and is deleted.
    visibility = Visibility.PRIVATE if row.visibility is None else Visibility(row.visibility)
    return ArtifactState(row.latest_version, row.delete_time is not None, visibility, row.session_id, row.run_id)


async def path_holder(connection: Connection, scope_key: str, metadata: ArtifactMetadata) -> str | None:
    """The id of the artifact that has the path in that session, if there is one."""
    if metadata.path is None:
        return None
    statement = sa.select(artifacts.c.artifact_id).where(
        artifacts.c.scope_key == scope_key,
        artifacts.c.path_owner == _path_owner(metadata),
        artifacts.c.path == metadata.path,
    )
    found: str | None = await connection.scalar(statement)
    return found


async def create(
    connection: Connection,
    scope_key: str,
    artifact_id: str,
    metadata: ArtifactMetadata,
    list_number: int,
    now: datetime,
) -> bool:
    """Makes the artifact with version 1; False if the id is taken."""
    row = {
        "scope_key": scope_key,
        "artifact_id": artifact_id,
        "latest_version": 1,
        "last_version": 1,
        "list_number": list_number,
        "create_time": now,
        **_filtered_by(metadata),
    }
    statement = insert_or_ignore(artifacts, ["scope_key", "artifact_id"]).values(row).returning(artifacts.c.artifact_id)
    if (await connection.execute(statement)).first() is None:
        return False
    await _insert_labels(connection, scope_key, artifact_id, metadata, list_number)
    return True


async def advance(
    connection: Connection, scope_key: str, artifact_id: str, metadata: ArtifactMetadata, expected_version: int | None
) -> tuple[int, datetime] | None:
    """Gives the artifact its next version: (version, its create time). None if it is not there as expected."""
    statement = sa.update(artifacts).where(*_is(scope_key, artifact_id), artifacts.c.delete_time.is_(None))
    if expected_version is not None:
        statement = statement.where(artifacts.c.latest_version == expected_version)
    # An older server that still runs beside this one sets only the latest version.
    given = sa.case(
        (artifacts.c.last_version < artifacts.c.latest_version, artifacts.c.latest_version),
        else_=artifacts.c.last_version,
    )
    following = given + 1
    statement = statement.values(latest_version=following, last_version=following, **_filtered_by(metadata))
    returning = statement.returning(artifacts.c.latest_version, artifacts.c.create_time, artifacts.c.list_number)
    row = (await connection.execute(returning)).first()
    if row is None:
        return None
    await _delete_labels(connection, scope_key, artifact_id)
    await _insert_labels(connection, scope_key, artifact_id, metadata, row.list_number)
    return row.latest_version, row.create_time


async def delete(
    connection: Connection, scope_key: str, artifact_id: str, expected_version: int | None, now: datetime
) -> bool:
    """Deletes the artifact, leaving its id taken. False if it is not there as expected."""
    statement = sa.update(artifacts).where(*_is(scope_key, artifact_id), artifacts.c.delete_time.is_(None))
    if expected_version is not None:
        statement = statement.where(artifacts.c.latest_version == expected_version)
    gone = dict.fromkeys(("list_number", *_FILTERS, "path", "path_owner"))
    statement = statement.values(delete_time=now, **gone).returning(artifacts.c.artifact_id)
    if (await connection.execute(statement)).first() is None:
        return False
    await _delete_labels(connection, scope_key, artifact_id)
    return True


async def restore(connection: Connection, scope_key: str, latest: ArtifactVersion, list_number: int) -> None:
    """Brings a deleted artifact back, at a new place in lists."""
    statement = sa.update(artifacts).where(*_is(scope_key, latest.artifact_id))
    values = {"delete_time": None, "list_number": list_number, **_filtered_by(latest.metadata)}
    await connection.execute(statement.values(values))
    await _insert_labels(connection, scope_key, latest.artifact_id, latest.metadata, list_number)


async def set_latest(connection: Connection, scope_key: str, latest: ArtifactVersion) -> None:
    """Makes another version the artifact's latest, since versions were deleted or restored."""
    statement = sa.update(artifacts).where(*_is(scope_key, latest.artifact_id))
    statement = statement.values(latest_version=latest.version, **_filtered_by(latest.metadata))
    number = await connection.scalar(statement.returning(artifacts.c.list_number))
    await _delete_labels(connection, scope_key, latest.artifact_id)
    await _insert_labels(connection, scope_key, latest.artifact_id, latest.metadata, number)


_FILTERS = ("name", "type", "session_id", "task_id", "run_id", "checkpoint_id")


def _is(scope_key: str, artifact_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return artifacts.c.scope_key == scope_key, artifacts.c.artifact_id == artifact_id


def _filtered_by(metadata: ArtifactMetadata) -> dict[str, Any]:
    owner = None if metadata.path is None else _path_owner(metadata)
    return {"path": metadata.path, "path_owner": owner, **{name: getattr(metadata, name) for name in _FILTERS}}


def _path_owner(metadata: ArtifactMetadata) -> str:
    return metadata.session_id or ""


async def _delete_labels(connection: Connection, scope_key: str, artifact_id: str) -> None:
    statement = sa.delete(artifact_labels).where(
        artifact_labels.c.scope_key == scope_key, artifact_labels.c.artifact_id == artifact_id
    )
    await connection.execute(statement)


async def _insert_labels(
    connection: Connection, scope_key: str, artifact_id: str, metadata: ArtifactMetadata, list_number: int
) -> None:
    if metadata.labels:
        rows = [
            {"scope_key": scope_key, "artifact_id": artifact_id, "key": key, "value": value, "list_number": list_number}
            for key, value in sorted(metadata.labels.items())
        ]
        await connection.execute(sa.insert(artifact_labels), rows)
