"""Steps of migrations that differ by dialect, so that migrations need not."""

from __future__ import annotations

from typing import Any

from alembic import op


def add_index(name: str, table: str, columns: list[Any], *, unique: bool = False) -> None:
    """Adds an index to a table in use, without blocking its writers. Repeatable, in case the step was killed."""
    if op.get_bind().dialect.name != "postgresql":
        op.create_index(name, table, columns, unique=unique, if_not_exists=True)
        return
    with op.get_context().autocommit_block():
        op.create_index(name, table, columns, unique=unique, postgresql_concurrently=True, if_not_exists=True)
