"""The shares of the event space: how far each is followed, and who may move it (P1).

Every statement that moves a share compares owner, epoch and cursor in its WHERE: zero rows means that another replica
took over, or that the projection was reset, and then nothing of the transaction stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, insert_or_ignore, locked_in_key_order
from threadkeep_projection.tables import shares

_c = shares.c
_ENSURE = insert_or_ignore(shares, ["share"])
_ALL = sa.select(shares).order_by(_c.share)
_LOCK = locked_in_key_order(sa.select(shares), _c.share)
_NOW = sa.bindparam("now", type_=_c.lease_expire_time.type)
_MAY_MOVE = sa.or_(_c.is_paused.is_(sa.false()), _c.pause_expire_time <= _NOW)
_ACQUIRE = (
    sa.update(shares)
    .where(
        _c.share == sa.bindparam("the_share"),
        _MAY_MOVE,
        sa.or_(
            _c.owner.in_(["", sa.bindparam("me")]),
            _c.lease_expire_time.is_(None),
            _c.lease_expire_time <= _NOW,
        ),
    )
    .values(
        owner=sa.bindparam("me"),
        epoch=_c.epoch + 1,
        lease_expire_time=sa.bindparam("expire", type_=_c.lease_expire_time.type),
    )
    .returning(_c.epoch, _c.log_cursor, _c.share_count)
)
_IS_MINE = sa.and_(
    _c.share == sa.bindparam("the_share"), _c.owner == sa.bindparam("me"), _c.epoch == sa.bindparam("my_epoch")
)
_REACHED = sa.func.coalesce(sa.bindparam("reached", type_=_c.reach_time.type), _c.reach_time)
_RENEW = (
    sa.update(shares)
    .where(_IS_MINE, _MAY_MOVE)
    .values(lease_expire_time=sa.bindparam("expire", type_=_c.lease_expire_time.type), reach_time=_REACHED)
)
_ADVANCE = (
    sa.update(shares)
    .where(_IS_MINE, _MAY_MOVE, _c.log_cursor == sa.bindparam("from_cursor", type_=_c.log_cursor.type))
    .values(
        log_cursor=sa.bindparam("to_cursor", type_=_c.log_cursor.type),
        applied_count=_c.applied_count + sa.bindparam("count", type_=_c.applied_count.type),
        apply_time=_NOW,
        reach_time=_REACHED,
        lease_expire_time=sa.bindparam("expire", type_=_c.lease_expire_time.type),
    )
)
_RELEASE = sa.update(shares).where(_IS_MINE).values(owner="", lease_expire_time=None)
_RESET = sa.update(shares).values(log_cursor=b"", reach_time=None)
_PART = (
    sa.update(shares)
    .where(_c.share == sa.bindparam("the_share"))
    .values(
        share_count=sa.bindparam("count", type_=_c.share_count.type),
        epoch=_c.epoch + 1,
        owner="",
        lease_expire_time=None,
    )
)
_PAUSE = sa.update(shares).values(
    is_paused=sa.bindparam("to_paused", type_=sa.Boolean()),
    pause_expire_time=sa.bindparam("expire", type_=_c.pause_expire_time.type),
)


@dataclass(frozen=True)
class Share:
    """A share as it stands."""

    share: int
    cursor: bytes
    applied_count: int
    apply_time: datetime | None
    owner: str
    epoch: int
    lease_expire_time: datetime | None
    is_paused: bool = False
    pause_expire_time: datetime | None = None
    reach_time: datetime | None = None
    share_count: int = 1
    """How many shares the log was divided into, this one included: as many as it has partitions."""

    def at(self, now: datetime) -> Share:
        """The share as it is at that time: without an owner whose lease has run out, or a pause that is over."""
        has_owner = self.lease_expire_time is not None and self.lease_expire_time > now
        is_paused = self.is_paused and (self.pause_expire_time is None or self.pause_expire_time > now)
        return replace(
            self,
            owner=self.owner if has_owner and not is_paused else "",
            is_paused=is_paused,
            pause_expire_time=self.pause_expire_time if is_paused else None,
        )


@dataclass(frozen=True)
class ShareLease:
    """The right to move a share: owner and epoch, and how long a renewal lasts."""

    share: int
    share_count: int
    owner: str
    epoch: int
    ttl: timedelta

    @property
    def partitions(self) -> tuple[int, ...]:
        """The log partitions to follow. Empty: all."""
        return (self.share,) if self.share_count > 1 else ()


async def ensure_shares(connection: Connection) -> None:
    """Makes the row of share 0, of one, unless there are rows: the log is whole until its partitions are known."""
    await connection.execute(_ENSURE, _new(0, 1))


async def divide_shares(connection: Connection, share_count: int) -> bool:
    """Divides what one share followed into as many as the log has partitions; whoever held it has lost it.

    False: the log was divided into another number before, so it was another log, and nothing was done.
    """
    found = await lock_shares(connection)
    if len(found) == found[0].share_count == share_count:
        return True
    if len(found) != 1:
        return False
    await connection.execute(_PART, {"the_share": found[0].share, "count": share_count})
    await _insert_rest(connection, found[0], share_count, found[0].cursor)
    return True


async def restart_shares(connection: Connection, share_count: int) -> None:
    """Begins a log of so many partitions at its start; whoever held a share has lost it."""
    found = await lock_shares(connection)
    await connection.execute(sa.delete(shares).where(_c.share != found[0].share))
    await connection.execute(_PART, {"the_share": found[0].share, "count": share_count})
    await reset_shares(connection)
    newest = replace(found[0], epoch=max(share.epoch for share in found), reach_time=None)
    await _insert_rest(connection, newest, share_count, b"")


async def _insert_rest(connection: Connection, first: Share, share_count: int, cursor: bytes) -> None:
    """The other shares beside the first: paused as it is, and with an epoch that no lease of before has."""
    rows = [
        {
            **_new(number, share_count),
            "log_cursor": cursor,
            "epoch": first.epoch + 1,
            "is_paused": first.is_paused,
            "pause_expire_time": first.pause_expire_time,
            "reach_time": first.reach_time,
        }
        for number in range(1, share_count)
    ]
    if rows:
        await connection.execute(sa.insert(shares), rows)


async def is_at(connection: Connection, lease: ShareLease, cursor: bytes) -> bool:
    """True while the lease counts and its share stands at the cursor; locks all shares."""
    found = {share.share: share for share in await lock_shares(connection)}
    mine = found.get(lease.share)
    return mine is not None and (mine.owner, mine.epoch, mine.cursor) == (lease.owner, lease.epoch, cursor)


async def lock_shares(connection: Connection) -> list[Share]:
    """All shares by number, locked: nobody applies events before this transaction ends."""
    return [_share(row) for row in await connection.execute(_LOCK)]


async def list_shares(connection: Connection) -> list[Share]:
    """All shares, by number."""
    return [_share(row) for row in await connection.execute(_ALL)]


async def acquire_share(
    connection: Connection, share: int, owner: str, ttl: timedelta
) -> tuple[ShareLease, bytes] | None:
    """Takes the share if it is free, expired or this owner's, and not paused: (lease, cursor), with a new epoch.

    Else None.
    """
    now = await connection.now()
    row = (
        await connection.execute(_ACQUIRE, {"the_share": share, "me": owner, "now": now, "expire": now + ttl})
    ).first()
    if row is None:
        return None
    return ShareLease(share, row.share_count, owner, row.epoch, ttl), bytes(row.log_cursor)


async def renew_share(connection: Connection, lease: ShareLease, reached: datetime | None = None) -> bool:
    """Prolongs the lease; `reached` is how far the log is known to be in. False: it is lost, or the share is paused."""
    now = await connection.now()
    result = await connection.execute(
        _RENEW, {**_mine(lease), "now": now, "expire": now + lease.ttl, "reached": reached}
    )
    return result.rowcount > 0


async def advance_share(
    connection: Connection,
    lease: ShareLease,
    from_cursor: bytes,
    to_cursor: bytes,
    count: int,
    reached: datetime | None = None,
) -> bool:
    """Moves the cursor past `count` events and prolongs the lease.

    False: the lease is lost, the cursor was reset, or the share is paused.

    Takes the row's lock: call it first in the transaction that applies the events.
    """
    now = await connection.now()
    result = await connection.execute(
        _ADVANCE,
        {
            **_mine(lease),
            "from_cursor": from_cursor,
            "to_cursor": to_cursor,
            "count": count,
            "now": now,
            "expire": now + lease.ttl,
            "reached": reached,
        },
    )
    return result.rowcount > 0


async def release_share(connection: Connection, lease: ShareLease) -> None:
    """Gives the share up, so that another replica need not wait for the lease to expire."""
    await connection.execute(_RELEASE, _mine(lease))


async def reset_shares(connection: Connection) -> None:
    """Puts the cursors at the start. Whoever follows finds that out with the next advance."""
    await connection.execute(_RESET)


async def pause_shares(connection: Connection, duration: timedelta | None) -> datetime | None:
    """Stops every share, for a time or until `resume_shares`; gives when it goes on by itself.

    Takes the rows' locks, so that nobody applies events after this transaction.
    """
    expire = None if duration is None else await connection.now() + duration
    await connection.execute(_PAUSE, {"to_paused": True, "expire": expire})
    return expire


async def resume_shares(connection: Connection) -> bool:
    """Lets every share go on; True if one was paused."""
    now = await connection.now()
    was_paused = any(share.at(now).is_paused for share in await list_shares(connection))
    await connection.execute(_PAUSE, {"to_paused": False, "expire": None})
    return was_paused


def _mine(lease: ShareLease) -> dict[str, object]:
    return {"the_share": lease.share, "me": lease.owner, "my_epoch": lease.epoch}


def _share(row: Any) -> Share:
    return Share(
        share=row.share,
        cursor=bytes(row.log_cursor),
        applied_count=row.applied_count,
        apply_time=row.apply_time,
        owner=row.owner,
        epoch=row.epoch,
        lease_expire_time=row.lease_expire_time,
        is_paused=row.is_paused,
        pause_expire_time=row.pause_expire_time,
        reach_time=row.reach_time,
        share_count=row.share_count,
    )


def _new(share: int, share_count: int) -> dict[str, object]:
    return {
        "share": share,
        "share_count": share_count,
        "log_cursor": b"",
        "applied_count": 0,
        "owner": "",
        "epoch": 0,
    }
