"""Lists of artifacts by their latest version: metadata only, in an index's order (A5), what the reader sees (A6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from threadkeep_artifacts.domain.values import ArtifactFilter, ArtifactVersion
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_artifacts.store.versions import seen_by, to_version, version_columns
from threadkeep_artifacts.tables import artifact_labels, artifacts, versions
from threadkeep_chassis.database import Connection, starts_with

Place = tuple[Any, ...]
"""Where an artifact stands in its list: what a page token keeps."""

_SOURCE = artifacts.join(
    versions,
    sa.and_(
        versions.c.scope_key == artifacts.c.scope_key,
        versions.c.artifact_id == artifacts.c.artifact_id,
        versions.c.version == artifacts.c.latest_version,
    ),
)


async def list_latest(
    connection: Connection, scope_key: str, reader: Reader, wanted: ArtifactFilter, after: Place | None, limit: int
) -> Sequence[tuple[Place, ArtifactVersion]]:
    """The scope's artifacts by their latest version, as (place in the list, version).

    Newest artifact first, or by path if the filter has one. `after`: only what comes after this place.
    """
    if wanted.path_prefix is not None:
        rows = await connection.execute(by_path_statement(scope_key, reader, wanted, after, limit))
        return [((row.place, row.artifact_id), to_version(row)) for row in rows]
    before = after[0] if after is not None else None
    rows = await connection.execute(latest_statement(scope_key, reader, wanted, before, limit))
    return [((row.place,), to_version(row)) for row in rows]


def latest_statement(
    scope_key: str, reader: Reader, wanted: ArtifactFilter, before: int | None, limit: int
) -> sa.Select[Any]:
    """Newest first: an index on one of the filters, or on the place, gives rows in order."""
    labels = sorted(wanted.labels.items())
    source: Any = _SOURCE
    place: sa.ColumnElement[int] = artifacts.c.list_number
    conditions = _conditions(scope_key, reader, wanted)
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


def by_path_statement(
    scope_key: str, reader: Reader, wanted: ArtifactFilter, after: Place | None, limit: int
) -> sa.Select[Any]:
    """By path, within a session by that session's own index."""
    assert wanted.path_prefix is not None
    conditions = [*_conditions(scope_key, reader, wanted), artifacts.c.path.is_not(None)]
    conditions.append(starts_with(artifacts.c.path, wanted.path_prefix))
    if wanted.session_id is not None:
        conditions.append(artifacts.c.path_owner == wanted.session_id)
    if after is not None:
        path, artifact_id = after
        later = sa.and_(artifacts.c.path == path, artifacts.c.artifact_id > artifact_id)
        # The first condition is what an index can use.
        conditions += [artifacts.c.path >= path, sa.or_(artifacts.c.path > path, later)]
    return (
        sa.select(artifacts.c.path.label("place"), *version_columns)
        .select_from(_SOURCE)
        .where(*conditions)
        .order_by(artifacts.c.path, artifacts.c.artifact_id)
        .limit(limit)
    )


def _conditions(scope_key: str, reader: Reader, wanted: ArtifactFilter) -> list[sa.ColumnElement[bool]]:
    conditions = [artifacts.c.scope_key == scope_key, artifacts.c.delete_time.is_(None), *seen_by(reader)]
    for name in ("name", "type", "session_id", "task_id", "run_id", "checkpoint_id"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(artifacts.c[name] == value)
    return conditions
