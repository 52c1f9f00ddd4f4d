"""Statements on the log of revisions and its counter (C5, C6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
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


_NEWEST_BEFORE = (
    sa.select(revisions.c.revision)
    .where(revisions.c.update_time <= sa.bindparam("time"))
    .order_by(_NEWEST_FIRST)
    .limit(1)
)
_RAISE_FLOOR = (
    sa.update(counter)
    .where(counter.c.id == 1, counter.c.compacted_revision < sa.bindparam("floor"))
    .values(compacted_revision=sa.bindparam("floor"))
)
_PURGE_STATE = sa.select(counter.c.revision, counter.c.compacted_revision, counter.c.purged_revision).where(
    counter.c.id == 1
)
_SPAN = (
    sa.select(revisions.c.revision, revisions.c.type, revisions.c.name, revisions.c.scope_key, revisions.c.deleted)
    .where(revisions.c.revision > sa.bindparam("after"), revisions.c.revision <= sa.bindparam("end"))
    .order_by(revisions.c.revision)
)
_DROP_BEFORE = sa.delete(revisions).where(
    revisions.c.type == sa.bindparam("key_type"),
    revisions.c.name == sa.bindparam("key_name"),
    revisions.c.scope_key == sa.bindparam("key_scope_key"),
    revisions.c.revision < sa.bindparam("before"),
)
_DROP = sa.delete(revisions).where(revisions.c.revision == sa.bindparam("gone"))
_SET_PURGED = (
    sa.update(counter)
    .where(counter.c.id == 1, counter.c.purged_revision == sa.bindparam("purged"))
    .values(purged_revision=sa.bindparam("end"))
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


async def newest_before(connection: Connection, time: datetime) -> int:
    """The newest revision that was written by then; 0 if there is none. It costs what was written since."""
    row = (await connection.execute(_NEWEST_BEFORE, {"time": time})).first()
    return 0 if row is None else int(row[0])


async def raise_floor(connection: Connection, floor: int) -> None:
    """History up to and with the revision is gone from now on, whatever is still there of it."""
    await connection.execute(_RAISE_FLOOR, {"floor": floor})


async def purge(connection: Connection, limit: int) -> bool:
    """Removes what the next `limit` compacted revisions superseded; False when there is nothing left to do here.

    Each entity's last content up to the floor stays, unless it was deleted there; and so does the very last revision,
    by which readers of the log's end see how far it goes.
    """
    state = (await connection.execute(_PURGE_STATE)).one()
    newest, floor, purged = state.revision, state.compacted_revision, state.purged_revision
    if purged >= floor:
        return False
    end = min(purged + limit, floor)
    rows = (await connection.execute(_SPAN, {"after": purged, "end": end})).all()
    last = {(row.type, row.name, row.scope_key): row for row in rows}
    if last:
        superseded = [
            {"key_type": key[0], "key_name": key[1], "key_scope_key": key[2], "before": row.revision}
            for key, row in sorted(last.items())
        ]
        await connection.execute(_DROP_BEFORE, superseded)
        gone = [{"gone": row.revision} for row in last.values() if row.deleted and row.revision < newest]
        if gone:
            await connection.execute(_DROP, gone)
    # Last, so that writers wait for the counter only while this commits. Whoever did the same meanwhile has done it.
    result = await connection.execute(_SET_PURGED, {"purged": purged, "end": end})
    return bool(result.rowcount == 1)


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
