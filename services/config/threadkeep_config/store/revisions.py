"""Statements on the log of revisions and its counter (C5, C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, transaction_id
from threadkeep_config.domain.values import Entity, Key
from threadkeep_config.store.rows import bounded, content_values, entity_of, key_values, with_scope
from threadkeep_config.tables import counter, revisions

CURRENT = sa.select(counter.c.revision).where(counter.c.id == 1).scalar_subquery()
"""The service's revision, within another statement."""

_STATE = sa.select(counter.c.revision, counter.c.compacted_revision).where(counter.c.id == 1)
_TAKE = (
    sa.update(counter)
    .where(counter.c.id == 1)
    .values(revision=counter.c.revision + sa.bindparam("count", type_=sa.BigInteger))
    .returning(counter.c.revision, transaction_id())
)
_APPEND = sa.insert(revisions)
_AFTER = bounded(
    sa.select(revisions)
    .where(revisions.c.revision > sa.bindparam("after"))
    .order_by(revisions.c.revision)
    .limit(sa.bindparam("limit")),
    "revision",
)
_OF_ENTITY = sa.and_(
    revisions.c.type == sa.bindparam("type"),
    revisions.c.name == sa.bindparam("name"),
    revisions.c.scope_key == sa.bindparam("scope_key"),
    revisions.c.revision <= sa.bindparam("at_most"),
)
_NEWEST_FIRST = revisions.c.revision.desc()
_AS_OF = with_scope(revisions).where(_OF_ENTITY).order_by(_NEWEST_FIRST).limit(1)
_HISTORY = bounded(
    sa.select(revisions).where(_OF_ENTITY).order_by(_NEWEST_FIRST).limit(sa.bindparam("limit")), "revision DESC"
)


async def state(connection: Connection) -> tuple[int, int]:
    """(the service's revision, the revision up to which history is gone)."""
    row = (await connection.execute(_STATE)).one()
    return row.revision, row.compacted_revision


async def take_revisions(connection: Connection, count: int) -> int:
    """Takes the next `count` revisions and returns the last. Locks the counter until the transaction ends."""
    row: Any = (await connection.execute(_TAKE, {"count": count})).one()
    connection.note_transaction_id(row[1])
    return int(row[0])


async def append(connection: Connection, entities: Sequence[Entity]) -> None:
    """Appends entities, each at its revision."""
    rows: list[dict[str, Any]] = [
        {
            "revision": entity.revision,
            **key_values(entity.key),
            "deleted": entity.deleted,
            "create_time": entity.create_time,
            "update_time": entity.update_time,
            **content_values(entity.content),
        }
        for entity in entities
    ]
    await connection.execute(_APPEND, rows if len(rows) > 1 else rows[0])


async def after(connection: Connection, revision: int, *, limit: int, max_bytes: int) -> list[Entity]:
    """What was written after the revision, in order: at most `limit`, cut where it exceeds `max_bytes`."""
    values = {"after": revision, "limit": limit, "max_bytes": max_bytes}
    return [entity_of(row) for row in await connection.execute(_AFTER, values)]


async def history(connection: Connection, key: Key, *, at_most: int, limit: int, max_bytes: int) -> list[Entity]:
    """An entity's revisions up to and with `at_most`, newest first: at most `limit`, cut at `max_bytes`."""
    values = {**key_values(key), "at_most": at_most, "limit": limit, "max_bytes": max_bytes}
    return [entity_of(row) for row in await connection.execute(_HISTORY, values)]


async def as_of(connection: Connection, key: Key, revision: int) -> Entity | None:
    """The entity as it stood at the revision, a tombstone perhaps; None if it was never written until then."""
    row = (await connection.execute(_AS_OF, {**key_values(key), "at_most": revision})).first()
    return None if row is None else entity_of(row)
