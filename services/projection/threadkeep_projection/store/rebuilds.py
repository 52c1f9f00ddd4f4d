"""Marks of rebuilds: which sessions a rebuild has done, and which it found and the log has not named yet (P3)."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, insert_or_ignore, upsert
from threadkeep_projection.tables import rebuild_marks, sessions

_c = rebuild_marks.c
_OF = _c.rebuild == sa.bindparam("of_rebuild")
_FIND = sa.select(
    sa.bindparam("of_rebuild", type_=_c.rebuild.type),
    sessions.c.scope_key,
    sessions.c.session_id,
    sa.false(),
    sa.literal(0, sa.BigInteger()),
    sa.bindparam("now", type_=_c.create_time.type),
)
_COLUMNS = ["rebuild", "scope_key", "session_id", "is_done", "event_count", "create_time"]
_FIND_ALL = sa.insert(rebuild_marks).from_select(_COLUMNS, _FIND)
_FIND_OF_SCOPE = sa.insert(rebuild_marks).from_select(
    _COLUMNS, _FIND.where(sessions.c.scope_key == sa.bindparam("of_scope_key"))
)
_BEGIN = insert_or_ignore(rebuild_marks, ["rebuild", "scope_key", "session_id"]).returning(_c.rebuild)
_DONE = sa.select(_c.scope_key, _c.session_id).where(
    _OF, _c.is_done, sa.tuple_(_c.scope_key, _c.session_id).in_(sa.bindparam("keys", expanding=True))
)
_MARK = upsert(rebuild_marks, ["rebuild", "scope_key", "session_id"], ["is_done", "event_count", "create_time"])
_COUNT = sa.select(
    sa.func.count().label("sessions"), sa.func.coalesce(sa.func.sum(_c.event_count), 0).label("events")
).where(_OF, _c.is_done, _c.session_id != "")
_LEFT = sa.select(_c.scope_key, _c.session_id).where(_OF, sa.not_(_c.is_done)).order_by(_c.scope_key, _c.session_id)
_FORGET = sa.delete(rebuild_marks).where(_OF)
_FORGET_OLD = sa.delete(rebuild_marks).where(_c.create_time < sa.bindparam("before", type_=_c.create_time.type))


async def begin(connection: Connection, rebuild: str, scope_key: str | None) -> None:
    """Notes the sessions whose rows there are, of a scope or of all; nothing if the rebuild has begun before."""
    now = await connection.now()
    # A mark of the rebuild itself, of no session: it says that it has begun.
    begun = await connection.execute(_BEGIN, _row(rebuild, ("", ""), True, 0, now))
    if begun.first() is None:
        return
    if scope_key is None:
        await connection.execute(_FIND_ALL, {"of_rebuild": rebuild, "now": now})
    else:
        await connection.execute(_FIND_OF_SCOPE, {"of_rebuild": rebuild, "now": now, "of_scope_key": scope_key})


async def done_of(connection: Connection, rebuild: str, keys: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Which of these (scope_key, session_id) the rebuild has done."""
    found = await connection.execute(_DONE, {"of_rebuild": rebuild, "keys": keys})
    return {(row.scope_key, row.session_id) for row in found}


async def mark(connection: Connection, rebuild: str, key: tuple[str, str], event_count: int) -> None:
    """Notes that a session is done."""
    await connection.execute(_MARK, _row(rebuild, key, True, event_count, await connection.now()))


async def counts(connection: Connection, rebuild: str) -> tuple[int, int]:
    """(sessions, events) that are done."""
    row = (await connection.execute(_COUNT, {"of_rebuild": rebuild})).one()
    return int(row.sessions), int(row.events)


async def left(connection: Connection, rebuild: str, limit: int) -> list[tuple[str, str]]:
    """Sessions that were found at the start and are not done, the first by key."""
    found = await connection.execute(_LEFT.limit(limit), {"of_rebuild": rebuild})
    return [(row.scope_key, row.session_id) for row in found]


async def forget(connection: Connection, rebuild: str) -> None:
    """Deletes the rebuild's marks."""
    await connection.execute(_FORGET, {"of_rebuild": rebuild})


async def forget_old(connection: Connection, older_than: timedelta) -> None:
    """Deletes the marks of rebuilds that nobody went on with for so long."""
    await connection.execute(_FORGET_OLD, {"before": await connection.now() - older_than})


def _row(rebuild: str, key: tuple[str, str], is_done: bool, event_count: int, now: datetime) -> dict[str, object]:
    return {
        "rebuild": rebuild,
        "scope_key": key[0],
        "session_id": key[1],
        "is_done": is_done,
        "event_count": event_count,
        "create_time": now,
    }
