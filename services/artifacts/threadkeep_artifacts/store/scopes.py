"""The row of a scope: the lock that changes of its artifacts take first, the order of its lists, and what it uses."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from threadkeep_artifacts.domain.values import Usage
from threadkeep_artifacts.tables import scopes
from threadkeep_chassis.database import Connection, insert

_COUNTERS = ("last_list_number", "artifact_count", "version_count", "content_bytes", "stored_bytes")


@dataclass(frozen=True)
class ScopeRow:
    """The scope after a change."""

    last_list_number: int
    usage: Usage


async def change(
    connection: Connection,
    scope_key: str,
    *,
    places: int = 0,
    artifacts: int = 0,
    versions: int = 0,
    content: int = 0,
    stored: int = 0,
) -> ScopeRow:
    """Adds to the scope's counters and holds its row to the end of the transaction; without numbers it only locks."""
    added = dict(zip(_COUNTERS, (places, artifacts, versions, content, stored), strict=True))
    statement = insert(scopes).values(scope_key=scope_key, **added)
    statement = statement.on_conflict_do_update(
        index_elements=["scope_key"], set_={name: scopes.c[name] + number for name, number in added.items()}
    )
    row = (await connection.execute(statement.returning(*(scopes.c[name] for name in _COUNTERS)))).one()
    return ScopeRow(row[0], Usage(*row[1:]))


async def read_usage(connection: Connection, scope_key: str) -> Usage:
    """What the scope uses."""
    statement = sa.select(*(scopes.c[name] for name in _COUNTERS[1:])).where(scopes.c.scope_key == scope_key)
    row = (await connection.execute(statement)).first()
    return Usage() if row is None else Usage(*row)


async def reclaim(connection: Connection, scope_key: str, stored_bytes: int) -> None:
    """Takes reclaimed content off the scope's account."""
    statement = sa.update(scopes).where(scopes.c.scope_key == scope_key)
    await connection.execute(statement.values(stored_bytes=scopes.c.stored_bytes - stored_bytes))
