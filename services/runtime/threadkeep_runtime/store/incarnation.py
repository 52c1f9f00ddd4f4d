"""The log's incarnation: which life of it a cursor belongs to (R14)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_runtime.tables import log_partitions

_LOCK = sa.select(log_partitions.c.partition).order_by(log_partitions.c.partition).with_for_update()


def set_incarnation(connection: Connection, incarnation: str) -> None:
    """Begins a new life, in every partition at once. A commit belongs to one life or the other."""
    connection.execute(_LOCK).all()
    connection.execute(sa.update(log_partitions).values(incarnation=incarnation))
