"""What was deleted and can be restored for a while; and the end of that while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from threadkeep_artifacts.tables import deletions
from threadkeep_chassis.database import Connection

WHOLE = 0
"""In place of a version: the artifact."""


async def note(connection: Connection, scope_key: str, artifact_id: str, version: int, now: datetime) -> None:
    """Remembers that it was deleted."""
    row = {"scope_key": scope_key, "artifact_id": artifact_id, "version": version, "delete_time": now}
    await connection.execute(sa.insert(deletions), row)


async def take(connection: Connection, scope_key: str, artifact_id: str, version: int) -> bool:
    """Forgets that it was deleted: it is restored, or purged, by whoever gets True."""
    statement = sa.delete(deletions).where(
        deletions.c.scope_key == scope_key, deletions.c.artifact_id == artifact_id, deletions.c.version == version
    )
    return (await connection.execute(statement.returning(deletions.c.version))).first() is not None


async def forget_versions(connection: Connection, scope_key: str, artifact_id: str) -> None:
    """Forgets the artifact's deleted versions, since it goes as a whole."""
    statement = sa.delete(deletions).where(deletions.c.scope_key == scope_key, deletions.c.artifact_id == artifact_id)
    await connection.execute(statement)


async def list_expired(connection: Connection, deleted_until: datetime, at_most: int) -> Sequence[tuple[str, str, int]]:
    """(scope key, artifact id, version) of what was deleted by then, oldest first."""
    statement = sa.select(deletions.c.scope_key, deletions.c.artifact_id, deletions.c.version)
    statement = statement.where(deletions.c.delete_time <= deleted_until)
    rows = await connection.execute(statement.order_by(deletions.c.delete_time).limit(at_most))
    return [(row.scope_key, row.artifact_id, row.version) for row in rows]
