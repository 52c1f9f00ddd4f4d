"""Small things that several statement files share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.expression import ColumnElement

from threadkeep_runtime.tables import tombstones

T = TypeVar("T")

# Partial indexes are found only by a literal: a bound value hides from the planner that the index covers the query.
ENDED: ColumnElement[str] = sa.literal_column("'ENDED'")
QUEUED: ColumnElement[str] = sa.literal_column("'QUEUED'")
RUNNING: ColumnElement[str] = sa.literal_column("'RUNNING'")
AWAITING: ColumnElement[str] = sa.literal_column("'AWAITING'")
OPEN: ColumnElement[str] = sa.literal_column("'OPEN'")
SUBMITTED: ColumnElement[str] = sa.literal_column("'SUBMITTED'")
NO_RUN: ColumnElement[str] = sa.literal_column("''")
"""What `tasks.run_id` holds while a task is enqueued."""


_UNSWEPT = sa.select(tombstones.c.thread_key).where(tombstones.c.swept_time.is_(None))


def of_living(thread_key: ColumnElement[str]) -> ColumnElement[bool]:
    """True for a row whose thread is not deleted. What is being swept away is hidden from every reader (R19)."""
    return thread_key.not_in(_UNSWEPT)


def one_of(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """`column IN (...)` with a list that is bound later under this name; see `padded`."""
    return column.in_(sa.bindparam(name, expanding=True))


def padded(values: Sequence[T]) -> list[T]:
    """The values, the last one repeated up to a power of two: a handful of prepared statements serve all lengths."""
    length = 1
    while length < len(values):
        length *= 2
    return [*values, *[values[-1]] * (length - len(values))]


def update_by(table: sa.Table, *keys: str) -> sa.Update:
    """UPDATE by key. A parameter `key_<column>` finds the row, one named like a column is its new value."""
    return sa.update(table).where(*(table.c[name] == sa.bindparam("key_" + name) for name in keys))


def keyed(row: dict[str, Any], keys: Sequence[str], changes: Sequence[str]) -> dict[str, Any]:
    """The parameters of an `update_by`: the row's keys, and the columns that change."""
    return {**{"key_" + name: row[name] for name in keys}, **{name: row[name] for name in changes}}
