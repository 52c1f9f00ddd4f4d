"""Statements about leases outside commits: heartbeats in batches, and what the recovery loops look for (R8, R9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order
from threadkeep_runtime.store.statements import RUNNING, one_of, padded
from threadkeep_runtime.tables import leases, runs, tickets

_LEASES = locked_in_key_order(
    sa.select(
        leases.c.thread_key,
        leases.c.scope_key,
        leases.c.run_id,
        leases.c.epoch,
        leases.c.ttl_seconds,
        leases.c.attempt_deadline,
        leases.c.cancel_deadline,
        leases.c.cancel_reason,
    ).where(sa.tuple_(leases.c.scope_key, leases.c.run_id).in_(sa.bindparam("pairs", expanding=True))),
    leases.c.thread_key,
)
_RENEW = sa.update(leases).where(leases.c.thread_key == sa.bindparam("key_thread_key"))
_RUNS = sa.select(runs.c.scope_key, runs.c.run_id).where(
    sa.tuple_(runs.c.scope_key, runs.c.run_id).in_(sa.bindparam("pairs", expanding=True))
)
# B58: a run that is RUNNING has a lease row. One without (a damaged restore, say) would run for ever.
_ORPHANED = (
    sa.select(runs.c.scope_key, runs.c.session_id, runs.c.thread_key, runs.c.run_id, runs.c.epoch)
    .where(
        runs.c.state == RUNNING,
        ~sa.exists().where(leases.c.thread_key == runs.c.thread_key, leases.c.run_id == runs.c.run_id),
    )
    .order_by(runs.c.thread_key, runs.c.run_id)
    .limit(sa.bindparam("count"))
    .offset(sa.bindparam("offset"))
)


def _past(bound: sa.Column[datetime]) -> sa.Select[Any]:
    return (
        sa.select(leases.c.scope_key, runs.c.session_id, leases.c.thread_key, leases.c.run_id, leases.c.epoch)
        .join(runs, sa.and_(runs.c.thread_key == leases.c.thread_key, runs.c.run_id == leases.c.run_id))
        .where(bound <= sa.bindparam("now", type_=leases.c.expire_time.type))
        .order_by(bound, leases.c.thread_key)
        .limit(sa.bindparam("count"))
        .offset(sa.bindparam("offset"))
    )


_EXPIRED = _past(leases.c.expire_time)
_GRACE_OVER = _past(leases.c.cancel_deadline)
_ATTEMPTS_OVER = _past(leases.c.attempt_deadline)
_DEADLINES = (
    sa.select(tickets.c.scope_key, tickets.c.session_id, tickets.c.thread_key, tickets.c.ticket_id)
    .where(
        tickets.c.state == sa.literal_column("'OPEN'"),
        tickets.c.deadline.is_not(None),
        tickets.c.deadline <= sa.bindparam("now", type_=tickets.c.deadline.type),
    )
    .order_by(tickets.c.deadline, tickets.c.thread_key, tickets.c.ticket_id)
    .limit(sa.bindparam("count"))
    .offset(sa.bindparam("offset"))
)
_EXPIRE_TIMES = sa.select(leases.c.thread_key, leases.c.run_id, leases.c.expire_time).where(
    one_of(leases.c.thread_key, "thread_keys")
)


class Beat(NamedTuple):
    """One heartbeat: which lease shall be renewed."""

    scope_key: str
    run_id: str
    epoch: int


class Renewed(NamedTuple):
    """A renewed lease."""

    expire_time: datetime
    cancel_requested: bool
    cancel_reason: str
    seconds_left: float | None = None
    """How long the lease may last, renewed or not; None: without bound."""


class DueLease(NamedTuple):
    """A leased run that a loop has to deal with."""

    scope_key: str
    session_id: str
    thread_key: str
    run_id: str
    epoch: int


class DueTicket(NamedTuple):
    """An open ticket whose deadline has passed."""

    scope_key: str
    session_id: str
    thread_key: str
    ticket_id: str


def renew(connection: Connection, beats: Sequence[Beat], now: datetime) -> list[Renewed | bool | None]:
    """Renews many leases, locked in key order as commits lock them.

    For each: what was renewed, False if the run has another epoch or none (LEASE_LOST), None if there is no such run.
    """
    pairs = [(beat.scope_key, beat.run_id) for beat in beats]
    found = {(row.scope_key, row.run_id): row for row in connection.execute(_LEASES, {"pairs": padded(pairs)})}
    answers: list[Renewed | bool | None] = []
    rows = {}
    for beat in beats:
        row = found.get((beat.scope_key, beat.run_id))
        if row is None or row.epoch != beat.epoch:
            answers.append(False)
            continue
        expire_time = now + timedelta(seconds=row.ttl_seconds)
        rows[row.thread_key] = {"key_thread_key": row.thread_key, "expire_time": expire_time}
        left = None if row.attempt_deadline is None else max(0.0, (row.attempt_deadline - now).total_seconds())
        answers.append(Renewed(expire_time, row.cancel_deadline is not None, row.cancel_reason or "", left))
    if rows:
        connection.execute(_RENEW, list(rows.values()))
    missing = [pair for pair in pairs if pair not in found]
    if missing:
        known = {tuple(row) for row in connection.execute(_RUNS, {"pairs": padded(missing)})}
        answers = [
            None if answer is False and pair not in found and pair not in known else answer
            for answer, pair in zip(answers, pairs, strict=True)
        ]
    return answers


def expired(connection: Connection, now: datetime, count: int, offset: int) -> list[DueLease]:
    """Leases past their time, the longest first."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueLease(*row) for row in connection.execute(_EXPIRED, page)]


def orphaned(connection: Connection, now: datetime, count: int, offset: int) -> list[DueLease]:
    """Runs that have lost their lease row."""
    return [DueLease(*row) for row in connection.execute(_ORPHANED, {"count": count, "offset": offset})]


def grace_over(connection: Connection, now: datetime, count: int, offset: int) -> list[DueLease]:
    """Leases of canceled tasks whose grace period is over."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueLease(*row) for row in connection.execute(_GRACE_OVER, page)]


def attempts_over(connection: Connection, now: datetime, count: int, offset: int) -> list[DueLease]:
    """Leases that have lasted as long as their tasks allow."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueLease(*row) for row in connection.execute(_ATTEMPTS_OVER, page)]


def deadlines_passed(connection: Connection, now: datetime, count: int, offset: int) -> list[DueTicket]:
    """Open tickets whose deadline has passed."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueTicket(*row) for row in connection.execute(_DEADLINES, page)]


def expire_times(connection: Connection, thread_keys: Sequence[str]) -> dict[tuple[str, str], datetime]:
    """When the leases of these threads' runs expire, by (thread_key, run_id)."""
    if not thread_keys:
        return {}
    rows = connection.execute(_EXPIRE_TIMES, {"thread_keys": padded(thread_keys)})
    return {(row.thread_key, row.run_id): row.expire_time for row in rows}
