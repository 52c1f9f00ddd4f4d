"""Reads the event log: pages of a thread and of a partition, heads, what is left of the past, and where feeds begin.

Positions and sequences are dense and in commit order (R14), so everything up to a committed counter can be read.
Nothing here filters after the fact: scope, type and visibility are conditions of the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_runtime.domain.feeds import RUN, SESSION_DELETED, TASK, EventFilter, ThreadExtent
from threadkeep_runtime.store.statements import of_living
from threadkeep_runtime.tables import events, log_floors, log_partitions, runs, scopes, tasks, threads, tombstones


class EventRow(NamedTuple):
    """A committed event."""

    partition: int
    position: int
    thread_key: str
    sequence: int
    commit_sequence: int
    scope_key: str
    session_id: str
    event_id: str
    type: str
    visibility: int
    run_id: str | None
    task_id: str | None
    content_type: str | None
    payload: bytes | None
    attributes: Mapping[str, str] | None
    schema_version: int
    causation_id: str | None
    correlation_id: str | None
    traceparent: str
    tracestate: str
    create_time: datetime

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory and on the wire."""
        return 400 + len(self.payload or b"")


class LogHead(NamedTuple):
    """The committed end of the log."""

    incarnation: str
    positions: tuple[int, ...]
    """Of each partition, in their order."""


_COLUMNS = tuple(events.c[name] for name in EventRow._fields)
_HEADS = sa.select(log_partitions.c.incarnation, log_partitions.c.position).order_by(log_partitions.c.partition)
_HEAD = sa.select(log_partitions.c.position).where(log_partitions.c.partition == sa.bindparam("partition"))
# A deleted thread ends with its tombstone's event.
_THREAD_HEAD = sa.union_all(
    sa.select(threads.c.event_sequence).where(threads.c.thread_key == sa.bindparam("thread_key")),
    sa.select(tombstones.c.event_sequence).where(tombstones.c.thread_key == sa.bindparam("thread_key")),
)
_THREAD_FLOOR = sa.select(threads.c.event_floor).where(threads.c.thread_key == sa.bindparam("thread_key"))
_OLDEST_OF_PARTITION = sa.select(sa.func.min(events.c.position)).where(events.c.partition == sa.bindparam("partition"))
READ_BYTES = 4 * 1024 * 1024
"""A read ends with the event that brings its payloads to this size: large events cost no more than many small ones."""
FEW = 8
"""So many events are read without a look at their size."""


def _bounded(
    conditions: Sequence[sa.ColumnElement[bool]], place: sa.ColumnElement[int], count: int | sa.BindParameter[int]
) -> sa.Select[Any]:
    """Events in order, at most `count`, up to the one that makes READ_BYTES. The bound is found without payloads: the
    database knows their lengths."""
    length = sa.func.coalesce(sa.func.length(events.c.payload), 0)
    some = (
        sa.select(place.label("place"), length.label("size"))
        .where(*conditions)
        .order_by(place)
        .limit(count)
        .subquery("some")
    )
    running = sa.func.sum(some.c.size).over(order_by=some.c.place, rows=(None, 0))
    summed = sa.select(some.c.place, (running - some.c.size).label("before")).subquery("summed")
    last = sa.select(sa.func.max(summed.c.place)).where(summed.c.before < READ_BYTES).scalar_subquery()
    return sa.select(*_COLUMNS).where(*conditions, place <= last).order_by(place).limit(count)


def is_cut(rows: Sequence[EventRow], count: int) -> bool:
    """True if there may be more behind these: the read ended for their number or their size."""
    return len(rows) >= count or sum(len(row.payload or b"") for row in rows) >= READ_BYTES


_tail_count: sa.BindParameter[int] = sa.bindparam("count", type_=sa.Integer())
_BEHIND_IN_PARTITION = (events.c.partition == sa.bindparam("partition"), events.c.position > sa.bindparam("after"))
_TAIL_FEW = sa.select(*_COLUMNS).where(*_BEHIND_IN_PARTITION).order_by(events.c.position).limit(_tail_count)
_TAIL_MANY = _bounded(_BEHIND_IN_PARTITION, events.c.position, _tail_count)
_SCOPES = sa.select(scopes.c.scope_key, scopes.c.scope).where(
    scopes.c.scope_key.in_(sa.bindparam("keys", expanding=True))
)


def log_head(connection: Connection) -> LogHead:
    """The committed counter of every partition, in one statement."""
    rows = connection.execute(_HEADS).all()
    return LogHead(rows[0].incarnation if rows else "", tuple(row.position for row in rows))


def partition_head(connection: Connection, partition: int) -> int:
    """The committed counter of one partition."""
    return int(connection.scalar(_HEAD, {"partition": partition}) or 0)


def thread_head(connection: Connection, thread_key: str) -> int:
    """The sequence of the thread's last committed event."""
    return int(connection.scalar(_THREAD_HEAD, {"thread_key": thread_key}) or 0)


def oldest_of_partition(connection: Connection, partition: int) -> int | None:
    """The smallest position that is kept, or None if none is."""
    oldest = connection.scalar(_OLDEST_OF_PARTITION, {"partition": partition})
    return None if oldest is None else int(oldest)


def thread_floor(connection: Connection, thread_key: str) -> int:
    """The sequence up to which the thread's events were purged; 0 if none were."""
    return int(connection.scalar(_THREAD_FLOOR, {"thread_key": thread_key}) or 0)


def log_floor(connection: Connection, scope_keys: frozenset[str] | None) -> dict[int, int]:
    """By partition, the position up to which events of these scopes (None: of any) were purged."""
    statement = sa.select(log_floors.c.partition, sa.func.max(log_floors.c.position)).group_by(log_floors.c.partition)
    if scope_keys is not None:
        statement = statement.where(log_floors.c.scope_key.in_(sorted(scope_keys)))
    return {partition: int(position) for partition, position in connection.execute(statement)}


def read_tail(connection: Connection, partition: int, after: int, count: int) -> list[EventRow]:
    """Everything of a partition after a position, in order, at most `count`, and of a bounded size."""
    parameters = {"partition": partition, "after": after, "count": count}
    return [EventRow(*row) for row in connection.execute(_TAIL_FEW if count <= FEW else _TAIL_MANY, parameters)]


def read_thread(
    connection: Connection, extent: ThreadExtent, wanted: EventFilter, after: int, upto: int, count: int
) -> list[EventRow]:
    """Wanted events of an extent with `after` < sequence <= `upto`, in order, at most `count`, and of a bounded size.

    An event that ends the feed is always among them, wanted or not: whoever reads asks `wanted.matches` before showing.
    """
    e = events.c
    conditions: list[sa.ColumnElement[bool]] = [
        e.thread_key == extent.thread_key,
        e.sequence > after,
        e.sequence <= upto,
    ]
    if extent.kind in (RUN, TASK):
        member = e.run_id if extent.kind == RUN else e.task_id
        conditions.append(sa.or_(member == extent.member_id, e.type == SESSION_DELETED))
    matching = _matching(wanted)
    if matching is not None:
        ending = sorted(extent.terminal_types)
        conditions.append(sa.or_(matching, e.type.in_(ending)) if ending else matching)
    statement = _bounded(conditions, e.sequence, count)
    return [EventRow(*row) for row in connection.execute(statement)]


def read_partition(
    connection: Connection,
    partition: int,
    scope_keys: frozenset[str] | None,
    wanted: EventFilter,
    after: int,
    upto: int,
    count: int,
) -> list[EventRow]:
    """Wanted events of these scopes with `after` < position <= `upto`, in order, at most `count`, of a bounded size."""
    e = events.c
    conditions: list[Any] = [e.partition == partition, e.position > after, e.position <= upto]
    # A deleted session's events are gone for readers at once, all but the one that says so.
    conditions.append(sa.or_(of_living(e.thread_key), e.type == SESSION_DELETED))
    if scope_keys is not None and len(scope_keys) == 1:
        conditions.append(e.scope_key == next(iter(scope_keys)))
    elif scope_keys is not None:
        conditions.append(e.scope_key.in_(sorted(scope_keys)))
    matching = _matching(wanted)
    if matching is not None:
        conditions.append(matching)
    statement = _bounded(conditions, e.position, count)
    return [EventRow(*row) for row in connection.execute(statement)]


def find_session(connection: Connection, scope_key: str, session_id: str) -> ThreadExtent | None:
    """The extent of a session, or None if the scope has none of that id."""
    row = connection.execute(
        sa.select(threads.c.thread_key, threads.c.partition).where(
            threads.c.scope_key == scope_key, threads.c.session_id == session_id, threads.c.delete_time.is_(None)
        )
    ).first()
    if row is None:
        return None
    return ThreadExtent("session", scope_key, session_id, row.thread_key, row.partition)


def find_member(connection: Connection, scope_key: str, kind: str, member_id: str) -> ThreadExtent | None:
    """The extent of a run or a task, or None if the scope has none of that id."""
    table, column = (runs, runs.c.run_id) if kind == RUN else (tasks, tasks.c.task_id)
    row = connection.execute(
        sa.select(
            table.c.thread_key,
            table.c.session_id,
            threads.c.partition,
            table.c.first_event_sequence,
            table.c.last_event_sequence,
        )
        .join(threads, threads.c.thread_key == table.c.thread_key)
        .where(table.c.scope_key == scope_key, column == member_id, threads.c.delete_time.is_(None))
    ).first()
    if row is None:
        return None
    return ThreadExtent(
        kind,
        scope_key,
        row.session_id,
        row.thread_key,
        row.partition,
        member_id,
        row.first_event_sequence,
        row.last_event_sequence,
    )


def read_scopes(connection: Connection, scope_keys: Iterable[str]) -> dict[str, bytes]:
    """The scopes' canonical JSON by key."""
    keys: Sequence[str] = sorted(scope_keys)
    if not keys:
        return {}
    return {row.scope_key: bytes(row.scope) for row in connection.execute(_SCOPES, {"keys": keys})}


def _matching(wanted: EventFilter) -> sa.ColumnElement[bool] | None:
    e = events.c
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.visibility < 3:
        conditions.append(e.visibility <= wanted.visibility)
    if wanted.has_types:
        # No LIKE: it knows wildcards, and its case rules differ between backends.
        names: list[sa.ColumnElement[bool]] = [
            sa.func.substr(e.type, 1, len(prefix)) == prefix for prefix in wanted.prefixes
        ]
        if wanted.types:
            names.append(e.type.in_(sorted(wanted.types)))
        conditions.append(sa.or_(*names))
    return sa.and_(*conditions) if conditions else None
