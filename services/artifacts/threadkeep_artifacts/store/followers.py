"""How far the runtime's log was followed, by whom, and which sessions took their artifacts with them (A7)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa

from threadkeep_artifacts.tables import artifacts, deleted_sessions, followers
from threadkeep_chassis.database import Connection, insert_or_ignore

THE_LOG = "runtime"
"""There is one log to follow."""

_MINE = (followers.c.name == THE_LOG, followers.c.owner == sa.bindparam("me"))


async def acquire(connection: Connection, owner: str, ttl: timedelta) -> bytes | None:
    """Takes the right to follow, for `ttl`; gives the cursor, or None while another replica has it."""
    await connection.execute(insert_or_ignore(followers, ["name"]).values(name=THE_LOG, cursor=b"", owner=""))
    now = await connection.now()
    free = sa.or_(
        followers.c.owner.in_(["", owner]),
        followers.c.lease_expire_time.is_(None),
        followers.c.lease_expire_time <= now,
    )
    statement = sa.update(followers).where(followers.c.name == THE_LOG, free)
    statement = statement.values(owner=owner, lease_expire_time=now + ttl)
    row = (await connection.execute(statement.returning(followers.c.cursor))).first()
    return None if row is None else bytes(row.cursor)


async def renew(connection: Connection, owner: str, ttl: timedelta) -> bool:
    """Prolongs it. False if another replica took over."""
    statement = sa.update(followers).where(*_MINE).values(lease_expire_time=await connection.now() + ttl)
    return (await connection.execute(statement.returning(followers.c.name), {"me": owner})).first() is not None


async def advance(connection: Connection, owner: str, cursor: bytes) -> bool:
    """Moves the cursor, once what lies before it was applied. False if another replica took over."""
    statement = sa.update(followers).where(*_MINE).values(cursor=cursor)
    return (await connection.execute(statement.returning(followers.c.name), {"me": owner})).first() is not None


async def release(connection: Connection, owner: str) -> None:
    """Gives it up."""
    statement = sa.update(followers).where(*_MINE).values(owner="", lease_expire_time=None)
    await connection.execute(statement, {"me": owner})


async def note_session(connection: Connection, scope_key: str, session_id: str) -> None:
    """Remembers a session whose artifacts go with it, so that no late writer makes new ones."""
    statement = insert_or_ignore(deleted_sessions, ["scope_key", "session_id"])
    now = await connection.now()
    await connection.execute(statement.values(scope_key=scope_key, session_id=session_id, delete_time=now))


async def is_session_gone(connection: Connection, scope_key: str, session_id: str) -> bool:
    """True if the session was deleted together with its artifacts."""
    statement = sa.select(deleted_sessions.c.session_id).where(
        deleted_sessions.c.scope_key == scope_key, deleted_sessions.c.session_id == session_id
    )
    return (await connection.execute(statement)).first() is not None


async def artifacts_of(connection: Connection, scope_key: str, session_id: str, at_most: int) -> Sequence[str]:
    """Ids of artifacts, not deleted, whose latest version is of the session."""
    statement = sa.select(artifacts.c.artifact_id).where(
        artifacts.c.scope_key == scope_key, artifacts.c.session_id == session_id, artifacts.c.delete_time.is_(None)
    )
    return [row.artifact_id for row in await connection.execute(statement.limit(at_most))]
