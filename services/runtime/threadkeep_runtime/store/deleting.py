"""Deleted threads: the mark and the tombstone, written by the commit; then the sweep of the rows, some at a time (R19).

Every table of the thread's is swept, those that are declared tomorrow too: what names a thread and does not say that it
outlives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order, locked_skipping_others, write_rows
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.store.statements import one_of, padded, update_by
from threadkeep_runtime.tables import (
    OUTLIVES_THREAD,
    commits,
    events,
    metadata,
    receipts,
    threads,
    tombstones,
)

PAIRS_AT_ONCE = 500

_MARK = update_by(threads, "thread_key")
_INSERT = sa.insert(tombstones)
_DEAD = sa.select(tombstones.c.thread_key).where(one_of(tombstones.c.thread_key, "thread_keys"))
_UNSWEPT = (
    sa.select(tombstones.c.thread_key)
    .where(tombstones.c.swept_time.is_(None))
    .order_by(tombstones.c.thread_key)
    .limit(sa.bindparam("count"))
)
_ONE = sa.select(tombstones).where(
    tombstones.c.thread_key == sa.bindparam("thread_key"), tombstones.c.swept_time.is_(None)
)
_LOCK = locked_in_key_order(_ONE, tombstones.c.thread_key)
_TRY_LOCK = locked_skipping_others(_ONE)
_SWEPT = update_by(tombstones, "thread_key")
_SOME_COMMITS = (
    sa.select(commits.c.sequence, commits.c.request_id, commits.c.receipt_key)
    .where(commits.c.thread_key == sa.bindparam("thread_key"))
    .order_by(commits.c.sequence)
    .limit(sa.bindparam("count"))
)
_ERASE = (
    sa.update(receipts)
    .where(sa.tuple_(receipts.c.scope_key, receipts.c.request_id).in_(sa.bindparam("pairs", expanding=True)))
    .values(response=b"", is_erased=True)
)


class Swept(NamedTuple):
    """What one transaction of a sweep came to."""

    rows: int
    is_done: bool
    """True if nothing is left; also if nothing was, or another replica is at it."""


def write_deletions(connection: Connection, writing: Sequence[Decision]) -> None:
    """Marks the threads that are deleted, and writes their tombstones."""
    deleted = [decision for decision in writing if decision.deletes_thread]
    write_rows(
        connection,
        _MARK,
        [
            {"key_thread_key": decision.thread.thread_key, "delete_time": decision.now}
            for decision in deleted
            if decision.thread is not None
        ],
    )
    write_rows(
        connection,
        _INSERT,
        [
            {
                "thread_key": thread.thread_key,
                "scope_key": thread.scope_key,
                "session_id": thread.session_id,
                "commit_sequence": thread.commit_sequence,
                "event_sequence": thread.event_sequence,
                "delete_time": decision.now,
            }
            for decision in deleted
            if (thread := decision.thread) is not None
        ],
    )


def dead_among(connection: Connection, thread_keys: Iterable[str]) -> frozenset[str]:
    """Those that were deleted."""
    keys = sorted(thread_keys)
    return frozenset(connection.scalars(_DEAD, {"thread_keys": padded(keys)})) if keys else frozenset()


def unswept(connection: Connection, count: int) -> list[str]:
    """Keys of deleted threads that still have rows."""
    return list(connection.scalars(_UNSWEPT, {"count": count}))


def sweep(connection: Connection, thread_key: str, now: datetime, rows: int, *, waits: bool) -> Swept:
    """Deletes up to about `rows` rows of a deleted thread, in one transaction of its own.

    It holds the tombstone meanwhile; with `waits` it waits for whoever does, else it leaves the thread to them.
    """
    tombstone = connection.execute(_LOCK if waits else _TRY_LOCK, {"thread_key": thread_key}).first()
    if tombstone is None:
        return Swept(0, True)
    done = 0
    for table, column in _owned_tables():
        if table is commits:
            done += _erase_receipts(connection, tombstone, rows - done)
        done += _delete_own(connection, table, column, tombstone, rows - done)
        if done >= rows:
            return Swept(done, False)
    connection.execute(_SWEPT, {"key_thread_key": thread_key, "swept_time": now})
    return Swept(done, True)


def _owned_tables() -> list[tuple[sa.Table, sa.Column[Any]]]:
    """Tables whose rows go with their thread, with the column that names it; those that refer to others first."""
    found = []
    for table in reversed(metadata.sorted_tables):
        if table.info.get(OUTLIVES_THREAD):
            continue
        column = table.c.get("thread_key", table.c.get("thread_id"))
        if column is not None:
            found.append((table, column))
    return found


def _erase_receipts(connection: Connection, tombstone: Any, rows: int) -> int:
    """Takes the answers out of the receipts of the next commits, and deletes these commits. The deletion's own stays.

    The commits know the receipts: they go together.
    """
    found = connection.execute(_SOME_COMMITS, {"thread_key": tombstone.thread_key, "count": max(rows, 1)}).all()
    pairs = sorted(
        {
            (row.receipt_key or tombstone.scope_key, row.request_id)
            for row in found
            if row.request_id is not None and row.sequence != tombstone.commit_sequence
        }
    )
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        connection.execute(_ERASE, {"pairs": padded(pairs[start : start + PAIRS_AT_ONCE])})
    if found:
        connection.execute(
            sa.delete(commits).where(
                commits.c.thread_key == tombstone.thread_key, commits.c.sequence <= found[-1].sequence
            )
        )
    return len(found)


def _delete_own(connection: Connection, table: sa.Table, column: sa.Column[Any], tombstone: Any, rows: int) -> int:
    mine = [column == tombstone.thread_key]
    if table is events:
        mine.append(events.c.sequence < tombstone.event_sequence)
    return delete_some(connection, table, mine, [one for one in table.primary_key.columns if one is not column], rows)


def delete_some(
    connection: Connection,
    table: sa.Table,
    conditions: Sequence[sa.ColumnElement[bool]],
    order: Sequence[sa.Column[Any]],
    rows: int,
) -> int:
    """Deletes up to `rows` of the rows, the lowest first; returns how many. `order` is the rest of the primary key."""
    if rows <= 0:
        return 0
    chosen = [*conditions]
    if order:
        # A range of keys is found by the primary key however many rows there are; a list of keys, or a LIMIT in a
        # subquery, is planned from guesses.
        last = connection.execute(sa.select(*order).where(*chosen).order_by(*order).limit(1).offset(rows - 1)).first()
        if last is not None:
            chosen.append(sa.tuple_(*order) <= sa.tuple_(*last, types=[one.type for one in order]))
    return connection.execute(sa.delete(table).where(*chosen)).rowcount
