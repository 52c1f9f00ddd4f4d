"""Rows of artifacts: made, advanced and deleted by statements that compare and set (X4), and their lists (A5)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_artifacts.domain.decisions import ArtifactState
from threadkeep_artifacts.domain.values import ArtifactFilter, ArtifactMetadata, ArtifactVersion
from threadkeep_artifacts.store.versions import to_version, version_columns
from threadkeep_artifacts.tables import artifact_labels, artifacts, scopes, versions
from threadkeep_chassis.database import Connection, insert, insert_or_ignore


async def read_state(connection: Connection, scope_key: str, artifact_id: str) -> ArtifactState | None:
    """What the id stands for; None if it was never used."""
    statement = sa.select(artifacts.c.latest_version, artifacts.c.delete_time).where(*_is(scope_key, artifact_id))
    row = (await connection.execute(statement)).first()
    return None if row is None else ArtifactState(row.latest_version, row.delete_time is not None)


async def create(
    connection: Connection, scope_key: str, artifact_id: str, metadata: ArtifactMetadata, now: datetime
) -> bool:
    """Makes the artifact with version 1; False if the id is taken.

    The scope's counter is taken first and held to the end, so that lists grow in commit order.
    """
    count = insert(scopes).values(scope_key=scope_key, last_list_number=1)
    count = count.on_conflict_do_update(
        index_elements=["scope_key"], set_={"last_list_number": scopes.c.last_list_number + 1}
    )
    number = await connection.scalar(count.returning(scopes.c.last_list_number))
    row = {
        "scope_key": scope_key,
        "artifact_id": artifact_id,
        "latest_version": 1,
        "list_number": number,
        "create_time": now,
        **_filtered_by(metadata),
    }
    statement = insert_or_ignore(artifacts, ["scope_key", "artifact_id"]).values(row).returning(artifacts.c.artifact_id)
    if (await connection.execute(statement)).first() is None:
        return False
    await _insert_labels(connection, scope_key, artifact_id, metadata, number)
    return True


async def advance(
    connection: Connection, scope_key: str, artifact_id: str, metadata: ArtifactMetadata, expected_version: int | None
) -> tuple[int, datetime] | None:
    """Gives the artifact its next version: (version, its create time). None if it is not there as expected."""
    statement = sa.update(artifacts).where(*_is(scope_key, artifact_id), artifacts.c.delete_time.is_(None))
    if expected_version is not None:
        statement = statement.where(artifacts.c.latest_version == expected_version)
    statement = statement.values(latest_version=artifacts.c.latest_version + 1, **_filtered_by(metadata))
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
    gone = dict.fromkeys(("list_number", "name", "type", "session_id", "run_id", "checkpoint_id"))
    statement = statement.values(delete_time=now, **gone).returning(artifacts.c.artifact_id)
    if (await connection.execute(statement)).first() is None:
        return False
    await _delete_labels(connection, scope_key, artifact_id)
    return True


async def list_latest(
    connection: Connection, scope_key: str, wanted: ArtifactFilter, before: int | None, limit: int
) -> Sequence[tuple[int, ArtifactVersion]]:
    """The scope's artifacts by their latest version, newest artifact first, as (place in the list, version).

    `before`: only places below this one. No content is read.
    """
    rows = await connection.execute(latest_statement(scope_key, wanted, before, limit))
    return [(row.place, to_version(row)) for row in rows]


def latest_statement(scope_key: str, wanted: ArtifactFilter, before: int | None, limit: int) -> sa.Select[Any]:
    """The statement of `list_latest`: an index on one of the filters, or on the place, gives rows in order."""
    labels = sorted(wanted.labels.items())
    source: Any = artifacts.join(
        versions,
        sa.and_(
            versions.c.scope_key == artifacts.c.scope_key,
            versions.c.artifact_id == artifacts.c.artifact_id,
            versions.c.version == artifacts.c.latest_version,
        ),
    )
    place: sa.ColumnElement[int] = artifacts.c.list_number
    conditions = [artifacts.c.scope_key == scope_key, artifacts.c.delete_time.is_(None)]
    for name in ("name", "type", "session_id", "run_id", "checkpoint_id"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(artifacts.c[name] == value)
    for index, (key, value) in enumerate(labels):
        label = artifact_labels.alias(f"label_{index}")
        source = source.join(
            label,
            sa.and_(
                label.c.scope_key == artifacts.c.scope_key,
                label.c.artifact_id == artifacts.c.artifact_id,
                label.c.key == key,
                label.c.value == value,
            ),
        )
        if index == 0:
            # The label's own index gives the order, so that a rare label does not walk through the whole scope.
            place = label.c.list_number
            conditions.append(label.c.scope_key == scope_key)
    if before is not None:
        conditions.append(place < before)
    return (
        sa.select(place.label("place"), *version_columns)
        .select_from(source)
        .where(*conditions)
        .order_by(place.desc())
        .limit(limit)
    )


def _is(scope_key: str, artifact_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return artifacts.c.scope_key == scope_key, artifacts.c.artifact_id == artifact_id


def _filtered_by(metadata: ArtifactMetadata) -> dict[str, Any]:
    return {
        "name": metadata.name,
        "type": metadata.type,
        "session_id": metadata.session_id,
        "run_id": metadata.run_id,
        "checkpoint_id": metadata.checkpoint_id,
    }


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
