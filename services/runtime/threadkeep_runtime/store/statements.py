"""Small things that several statement files share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.sql.expression import ColumnElement

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


def one_of(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """`column IN (...)` with a list that is bound later under this name; see `padded`."""
    return column.in_(sa.bindparam(name, expanding=True))


def padded(values: Sequence[T]) -> list[T]:
    """The values, the last one repeated up to a power of two: a handful of prepared statements serve all lengths."""
    length = 1
    while length < len(values):
        length *= 2
    return [*values, *[values[-1]] * (length - len(values))]
