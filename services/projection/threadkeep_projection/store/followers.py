"""The replicas that take part in following: who is alive, so that each has its part of the shares (P1).

It decides nothing about rows: a share's lease does. A replica that is wrongly counted, or not, only has too few or too
many shares for a while.
"""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, locked_in_key_order, upsert
from threadkeep_projection.tables import followers

_c = followers.c
_HERE = upsert(followers, ["owner"], ["expire_time"])
_ALL = locked_in_key_order(sa.select(followers), _c.owner)
_LEAVE = sa.delete(followers).where(_c.owner == sa.bindparam("me"))
_FORGET = sa.delete(followers).where(_c.expire_time <= sa.bindparam("before", type_=_c.expire_time.type))


async def meet(connection: Connection, owner: str, ttl: timedelta, *, aside: bool) -> tuple[list[str], bool]:
    """Says that this replica is alive; gives all that are, by name, and whether it is among them anew.

    `aside`: it would rather have no part, and has none as long as another replica is alive.
    """
    now = await connection.now()
    rows = (await connection.execute(_ALL)).all()
    living = {row.owner for row in rows if row.expire_time > now}
    if aside and living - {owner}:
        await leave(connection, owner)
        return sorted(living - {owner}), False
    if any(row.expire_time <= now - ttl for row in rows):
        await connection.execute(_FORGET, {"before": now - ttl})
    await connection.execute(_HERE, {"owner": owner, "expire_time": now + ttl})
    return sorted({*living, owner}), owner not in living


async def leave(connection: Connection, owner: str) -> None:
    """This replica takes part no longer."""
    await connection.execute(_LEAVE, {"me": owner})
