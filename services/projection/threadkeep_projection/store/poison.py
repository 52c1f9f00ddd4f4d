"""Reads of events that could not be projected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection
from threadkeep_chassis.paging import after_key
from threadkeep_projection.domain.values import Poison
from threadkeep_projection.tables import poison_events

_c = poison_events.c


async def list_poison(
    connection: Connection, scope_key: str, session_id: str | None, after: Sequence[Any] | None, limit: int
) -> list[tuple[str, Poison]]:
    """(session_id, event), by both, after the key (session_id, sequence)."""
    statement = sa.select(poison_events).where(_c.scope_key == scope_key).order_by(_c.session_id, _c.sequence)
    if session_id is not None:
        statement = statement.where(_c.session_id == session_id)
    if after is not None:
        statement = statement.where(after_key([_c.session_id, _c.sequence], after))
    found = await connection.execute(statement.limit(limit))
    return [(row.session_id, Poison(row.sequence, row.type, row.create_time, row.reason)) for row in found]


async def poisoned_sessions(
    connection: Connection, scope_key: str, session_id: str | None, limit: int
) -> list[tuple[str, int]]:
    """(session_id, number of its poison events), by id."""
    statement = sa.select(_c.session_id, sa.func.count().label("events")).where(_c.scope_key == scope_key)
    if session_id is not None:
        statement = statement.where(_c.session_id == session_id)
    statement = statement.group_by(_c.session_id).order_by(_c.session_id).limit(limit)
    return [(row.session_id, row.events) for row in await connection.execute(statement)]


async def count_poison(connection: Connection) -> int:
    """How many there are, of all scopes."""
    return int(await connection.scalar(sa.select(sa.func.count()).select_from(poison_events)) or 0)
