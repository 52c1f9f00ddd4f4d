"""What relays do to the outbox: claim lines, read first messages, settle them; and what becomes of dead letters.

A claim holds a line for a while, under an epoch that only grows. Whoever lost it can't settle, so a line has one relay
at a time, however many replicas there are, and its messages go out in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order, locked_skipping_others, write_rows
from threadkeep_runtime.domain.outbox import DEAD, DELIVERED, PENDING, OutboxMessage
from threadkeep_runtime.domain.values import TaskWebhook
from threadkeep_runtime.store.outbox import message_of, take_places
from threadkeep_runtime.store.statements import one_of, padded, update_by
from threadkeep_runtime.tables import outbox, outbox_lines, scopes, tasks

_IS_PENDING = outbox.c.state == sa.literal_column("'PENDING'")
_IS_DEAD = outbox.c.state == sa.literal_column("'DEAD'")
_IS_DELIVERED = outbox.c.state == sa.literal_column("'DELIVERED'")

_now = sa.bindparam("now", type_=outbox_lines.c.due_time.type)
_FREE = locked_skipping_others(
    sa.select(outbox_lines.c.target_key)
    .where(
        outbox_lines.c.due_time.is_not(None),
        outbox_lines.c.due_time <= _now,
        sa.or_(outbox_lines.c.claim_time.is_(None), outbox_lines.c.claim_time <= _now),
    )
    .order_by(outbox_lines.c.due_time)
    .limit(sa.bindparam("count"))
)
_CLAIM = (
    sa.update(outbox_lines)
    .where(one_of(outbox_lines.c.target_key, "target_keys"))
    .values(epoch=outbox_lines.c.epoch + 1, claim_time=sa.bindparam("until", type_=outbox_lines.c.claim_time.type))
    .returning(outbox_lines.c.target_key, outbox_lines.c.scope_key, outbox_lines.c.kind, outbox_lines.c.epoch)
)
_NEXT_DUE = sa.select(sa.func.min(outbox_lines.c.due_time)).where(
    outbox_lines.c.due_time.is_not(None), outbox_lines.c.claim_time.is_(None)
)
_LOST = sa.select(
    sa.exists().where(
        outbox_lines.c.due_time.is_not(None), outbox_lines.c.due_time <= _now, outbox_lines.c.claim_time <= _now
    )
)
_FIRST = (
    sa.select(outbox)
    .where(outbox.c.target_key == sa.bindparam("target_key"), _IS_PENDING)
    .order_by(outbox.c.sequence)
    .limit(1)
)
_LOCK_LINE = locked_in_key_order(
    sa.select(outbox_lines.c.pending).where(
        outbox_lines.c.target_key == sa.bindparam("target_key"), outbox_lines.c.epoch == sa.bindparam("epoch")
    ),
    outbox_lines.c.target_key,
)
_LOCK_LINES = locked_in_key_order(
    sa.select(outbox_lines.c.target_key).where(one_of(outbox_lines.c.target_key, "target_keys")),
    outbox_lines.c.target_key,
)
_UPDATE_LINE = update_by(outbox_lines, "target_key")
_UPDATE_MESSAGE = update_by(outbox, "thread_key", "message_id").where(_IS_PENDING)
_WEBHOOKS = sa.select(tasks.c.webhooks).where(
    tasks.c.thread_key == sa.bindparam("thread_key"), tasks.c.task_id == sa.bindparam("task_id")
)
_SCOPE = sa.select(scopes.c.scope).where(scopes.c.scope_key == sa.bindparam("scope_key"))
_DEAD_OF_SCOPE = (
    sa.select(
        outbox.c.thread_key,
        outbox.c.message_id,
        outbox.c.scope_key,
        outbox.c.kind,
        outbox.c.target_key,
    )
    .where(outbox.c.scope_key == sa.bindparam("scope_key"), _IS_DEAD)
    .order_by(outbox.c.create_time, outbox.c.message_id)
    .limit(sa.bindparam("count"))
)
_DEAD_NAMED = _DEAD_OF_SCOPE.where(one_of(outbox.c.message_id, "message_ids"))
_REQUEUE = update_by(outbox, "thread_key", "message_id").where(_IS_DEAD)
_PURGE = sa.delete(outbox).where(
    sa.tuple_(outbox.c.thread_key, outbox.c.message_id).in_(sa.bindparam("pairs", expanding=True)), _IS_DEAD
)


class ClaimLost(Exception):
    """The claim is another's by now: what this relay knows of the line is void."""


class Claim(NamedTuple):
    """The right to deliver a line's messages, for a while."""

    target_key: str
    scope_key: str
    kind: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of an attempt."""

    state: str
    """DELIVERED or DEAD; PENDING: it is tried again."""
    error: str = ""
    status: int = 0
    pause_seconds: float = 0.0
    """Until the next attempt."""
    is_attempt: bool = True
    """False if the attempt was never made, for reasons of our own: it is not counted."""


def task_webhook(connection: Connection, message: OutboxMessage) -> TaskWebhook | None:
    """The webhook of its task that a message tells; None if it was taken off, or the task is gone."""
    found = connection.execute(_WEBHOOKS, {"thread_key": message.thread_key, "task_id": message.task_id}).first()
    for one in () if found is None else found.webhooks or ():
        if one["webhook_id"] == message.webhook_id:
            return TaskWebhook(**one)
    return None


def claim(connection: Connection, now: datetime, seconds: float, count: int) -> list[Claim]:
    """Claims lines that are due and nobody's, those that have waited longest first."""
    keys = list(connection.scalars(_FREE, {"now": now, "count": count}))
    if not keys:
        return []
    until = now + timedelta(seconds=seconds)
    return [Claim(*row) for row in connection.execute(_CLAIM, {"target_keys": padded(keys), "until": until})]


def next_due(connection: Connection) -> datetime | None:
    """When the next line that is nobody's is due; None if none waits."""
    return connection.scalar(_NEXT_DUE)


def has_lost_claims(connection: Connection, now: datetime) -> bool:
    """True if a claim has run out: whoever had the line is gone."""
    return bool(connection.scalar(_LOST, {"now": now}))


def first(connection: Connection, target_key: str) -> OutboxMessage | None:
    """The first message of a line."""
    row = connection.execute(_FIRST, {"target_key": target_key}).mappings().first()
    return None if row is None else message_of(row)


def scope_of(connection: Connection, scope_key: str) -> bytes:
    """The scope in canonical JSON."""
    return bytes(connection.execute(_SCOPE, {"scope_key": scope_key}).scalar_one())


def settle(
    connection: Connection, held: Claim, message: OutboxMessage, settled: Settlement, now: datetime, seconds: float
) -> OutboxMessage | None:
    """Writes what became of a message. Returns the next one if it can be tried at once; the claim holds on for it.

    Raises ClaimLost; then nothing is written.
    """
    pending = _hold(connection, held)
    ended = settled.state != PENDING
    connection.execute(
        _UPDATE_MESSAGE,
        {
            "key_thread_key": message.thread_key,
            "key_message_id": message.message_id,
            "state": settled.state,
            "attempt": message.attempt + settled.is_attempt,
            "last_error": settled.error,
            "last_status": settled.status,
            "last_attempt_time": now if settled.is_attempt else message.last_attempt_time,
            "settle_time": now if ended else None,
        },
    )
    following = first(connection, held.target_key) if ended else None
    line: dict[str, Any] = {"due_time": None, "claim_time": None, "pending": 0}
    if not ended:
        line = {"due_time": now + timedelta(seconds=settled.pause_seconds), "claim_time": None, "pending": pending}
    elif following is not None:
        line = {"due_time": now, "claim_time": now + timedelta(seconds=seconds), "pending": max(pending - 1, 1)}
    connection.execute(_UPDATE_LINE, {"key_target_key": held.target_key, "update_time": now, **line})
    return following


def give_back(connection: Connection, held: Claim, now: datetime) -> None:
    """Ends a claim: the line is due if a message waits. A claim that was lost is no matter."""
    try:
        pending = _hold(connection, held)
    except ClaimLost:
        return
    waits = first(connection, held.target_key) is not None
    connection.execute(
        _UPDATE_LINE,
        {
            "key_target_key": held.target_key,
            "update_time": now,
            "due_time": now if waits else None,
            "claim_time": None,
            "pending": pending if waits else 0,
        },
    )


def _hold(connection: Connection, held: Claim) -> int:
    row = connection.execute(_LOCK_LINE, {"target_key": held.target_key, "epoch": held.epoch}).first()
    if row is None:
        raise ClaimLost()
    return int(row.pending)


def requeue_dead(
    connection: Connection, scope_key: str, message_ids: Sequence[str], count: int, now: datetime
) -> tuple[int, bool]:
    """Puts dead letters at the end of their lines. Returns how many, and whether more are left (if none was named)."""
    found, has_more = _dead(connection, scope_key, message_ids, count)
    if not found:
        return 0, False
    # Another call may requeue the same ones: what is still dead shows once the lines are locked.
    connection.execute(_LOCK_LINES, {"target_keys": padded(sorted({row.target_key for row in found}))}).all()
    found, has_more = _dead(connection, scope_key, message_ids, count)
    if not found:
        return 0, False
    places = take_places(connection, found, now)
    write_rows(
        connection,
        _REQUEUE,
        [
            {
                "key_thread_key": row.thread_key,
                "key_message_id": row.message_id,
                "state": PENDING,
                "sequence": next(places[row.target_key]),
                "attempt": 0,
                "settle_time": None,
            }
            for row in found
        ],
    )
    return len(found), has_more


def purge_dead(connection: Connection, scope_key: str, message_ids: Sequence[str], count: int) -> tuple[int, bool]:
    """Deletes dead letters. Returns how many, and whether more are left (if none was named)."""
    found, has_more = _dead(connection, scope_key, message_ids, count)
    if found:
        connection.execute(_PURGE, {"pairs": padded([(row.thread_key, row.message_id) for row in found])})
    return len(found), has_more


def _dead(connection: Connection, scope_key: str, message_ids: Sequence[str], count: int) -> tuple[list[Any], bool]:
    if message_ids:
        wanted = {"scope_key": scope_key, "message_ids": padded(sorted(set(message_ids))), "count": count}
        return list(connection.execute(_DEAD_NAMED, wanted)), False
    rows = list(connection.execute(_DEAD_OF_SCOPE, {"scope_key": scope_key, "count": count + 1}))
    return rows[:count], len(rows) > count


def purge_delivered_of(connection: Connection, scope_key: str, before: datetime, count: int) -> int:
    """Deletes messages of a scope that were delivered before then, so many at most; returns how many."""
    return _purge_delivered(connection, before, count, outbox.c.scope_key == scope_key)


def purge_delivered(connection: Connection, before: datetime, count: int, spared: Sequence[str] = ()) -> int:
    """Deletes messages that were delivered before then, but none of some scopes, and lines idle since; so many of each.

    Returns the greater number.
    """
    done = _purge_delivered(connection, before, count, outbox.c.scope_key.not_in(spared) if spared else sa.true())
    idle = sa.select(outbox_lines.c.target_key).where(
        outbox_lines.c.due_time.is_(None), outbox_lines.c.update_time < before
    )
    keys = list(connection.scalars(locked_skipping_others(idle.limit(count))))
    if keys:
        connection.execute(
            sa.delete(outbox_lines).where(outbox_lines.c.target_key.in_(keys), outbox_lines.c.due_time.is_(None))
        )
    return max(done, len(keys))


def _purge_delivered(connection: Connection, before: datetime, count: int, which: sa.ColumnElement[bool]) -> int:
    old = sa.select(outbox.c.thread_key, outbox.c.message_id).where(_IS_DELIVERED, outbox.c.settle_time < before, which)
    pairs = [tuple(row) for row in connection.execute(old.limit(count))]
    if pairs:
        connection.execute(sa.delete(outbox).where(sa.tuple_(outbox.c.thread_key, outbox.c.message_id).in_(pairs)))
    return len(pairs)


__all__ = [
    "DEAD",
    "DELIVERED",
    "PENDING",
    "Claim",
    "ClaimLost",
    "Settlement",
    "claim",
    "first",
    "give_back",
    "has_lost_claims",
    "next_due",
    "purge_dead",
    "purge_delivered",
    "purge_delivered_of",
    "requeue_dead",
    "scope_of",
    "settle",
]
