"""Lists checkpoints page by page: keys and sizes first, so that whoever reads can bound what it loads (B21, B92).

A page is one statement and holds no transaction. The order is the greatest checkpoint id first, on every backend alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import JsonSource, Key, json_contains, json_entries, json_member
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints, threads

EVERY_VALUE = 2**31 - 1
"""No value is larger."""


@dataclass(frozen=True, slots=True)
class CheckpointQuery:
    """What to list: one thread's checkpoints, or all of a scope."""

    scope_key: str
    thread_key: str | None = None
    checkpoint_ns: str | None = None
    """None: all namespaces. Empty: the root graph's."""
    checkpoint_id: str | None = None
    before_checkpoint_id: str | None = None
    metadata_filter: str | None = None
    """A JSON object without NUL; only checkpoints whose metadata contains it (jsonb `@>`)."""


class PageKey(NamedTuple):
    """A checkpoint's place in a list."""

    checkpoint_id: str
    thread_key: str
    checkpoint_ns: str
    size: int
    """Bytes of its documents, values and writes together, without the values that replies leave out."""


def page_keys(
    connection: Connection, query: CheckpointQuery, after: PageKey | None, count: int, inline_bytes: int = EVERY_VALUE
) -> list[PageKey]:
    """The next `count` keys behind `after` (None: from the greatest id). Values over `inline_bytes` are not counted."""
    shape = _Shape(
        query.thread_key is not None,
        query.checkpoint_ns is not None,
        query.checkpoint_id is not None,
        query.before_checkpoint_id is not None,
        query.metadata_filter is not None,
        after is not None,
    )
    values: dict[str, Any] = {"count": count, "inline_bytes": inline_bytes}
    values["thread_key" if shape.thread else "scope_key"] = query.thread_key if shape.thread else query.scope_key
    for name in ("checkpoint_ns", "checkpoint_id", "before_checkpoint_id", "metadata_filter"):
        value = getattr(query, name)
        if value is not None:
            values["of_" + name] = value
    if after is not None:
        values |= {"after_id": after.checkpoint_id, "after_thread": after.thread_key, "after_ns": after.checkpoint_ns}
    return [PageKey(*row) for row in connection.execute(_statement(shape), values)]


class _Shape(NamedTuple):
    """Which conditions a list has: lists of one shape share a statement."""

    thread: bool
    checkpoint_ns: bool
    checkpoint_id: bool
    before: bool
    filter: bool
    after: bool


@cache
def _statement(shape: _Shape) -> sa.Select[Any]:
    picked = _picked(shape).cte("picked")
    p = picked.c
    return sa.select(p.checkpoint_id, p.thread_id, p.checkpoint_ns, _size(p)).order_by(
        p.checkpoint_id.desc(), p.thread_id.desc(), p.checkpoint_ns.desc()
    )


def _picked(shape: _Shape) -> sa.Select[Any]:
    c = checkpoints.c
    order = [c.checkpoint_id, c.thread_id, c.checkpoint_ns]
    statement = sa.select(*order)
    if shape.thread:
        statement = statement.where(c.thread_id == sa.bindparam("thread_key"))
    else:
        statement = statement.join(threads, threads.c.thread_key == c.thread_id).where(
            threads.c.scope_key == sa.bindparam("scope_key"), threads.c.delete_time.is_(None)
        )
    if shape.checkpoint_ns:
        statement = statement.where(c.checkpoint_ns == sa.bindparam("of_checkpoint_ns"))
    if shape.checkpoint_id:
        statement = statement.where(c.checkpoint_id == sa.bindparam("of_checkpoint_id"))
    if shape.before:
        statement = statement.where(c.checkpoint_id < sa.bindparam("of_before_checkpoint_id"))
    if shape.filter:
        statement = statement.where(json_contains(c.metadata, sa.bindparam("of_metadata_filter", type_=JsonSource())))
    if shape.after:
        # The first condition is implied by the second; an index can use it.
        place = [sa.bindparam(name, type_=Key()) for name in ("after_id", "after_thread", "after_ns")]
        statement = statement.where(c.checkpoint_id <= place[0], sa.tuple_(*order) < sa.tuple_(*place))
    count = sa.bindparam("count", type_=sa.Integer())
    if shape.thread and shape.checkpoint_ns:
        return statement.order_by(c.checkpoint_id.desc()).limit(count)
    return statement.order_by(*(column.desc() for column in order)).limit(count)


def _size(p: Any) -> sa.Label[int]:
    """Sums lengths, which no backend needs to read the values for.

    Each row is looked up by its key in a scalar query of its own: joins are planned from guesses about how many rows a
    thread has, and go wrong for the few large threads that matter.
    """
    c, b, w = checkpoints.c, checkpoint_blobs.c, checkpoint_writes.c
    entries = json_entries(sa.func.coalesce(c.value_versions, json_member(c.checkpoint, "channel_versions")), "entries")
    value = (
        sa.select(_inline_size(b.blob))
        .where(
            b.thread_id == c.thread_id,
            b.checkpoint_ns == c.checkpoint_ns,
            b.channel == entries.c.key,
            b.version == entries.c.value,
        )
        .correlate(checkpoints, entries)
        .scalar_subquery()
    )
    values = sa.select(_total(value)).select_from(entries).correlate(checkpoints).scalar_subquery()
    writes = (
        sa.select(_total(_inline_size(w.blob)))
        .where(w.thread_id == c.thread_id, w.checkpoint_ns == c.checkpoint_ns, w.checkpoint_id == c.checkpoint_id)
        .correlate(checkpoints)
        .scalar_subquery()
    )
    documents = sa.func.coalesce(sa.func.length(c.checkpoint_bytes), sa.func.length(sa.cast(c.checkpoint, sa.Text())))
    whole = (
        sa.select(documents + sa.func.coalesce(sa.func.length(c.metadata_bytes), 0) + values + writes)
        .where(c.thread_id == p.thread_id, c.checkpoint_ns == p.checkpoint_ns, c.checkpoint_id == p.checkpoint_id)
        .scalar_subquery()
    )
    return sa.cast(whole, sa.BigInteger()).label("size")


def _inline_size(blob: Any) -> sa.ColumnElement[Any]:
    size = sa.func.length(blob)
    return sa.case((size <= sa.bindparam("inline_bytes", type_=sa.Integer()), size), else_=0)


def _total(length: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.coalesce(sa.func.sum(length), 0)
