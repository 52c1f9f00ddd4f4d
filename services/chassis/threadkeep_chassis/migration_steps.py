"""Steps of migrations that differ by dialect, so that migrations need not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op

from threadkeep_chassis.database.words import word_index_statements


def add_index(name: str, table: str, columns: list[Any], *, unique: bool = False) -> None:
    """Adds an index to a table in use, without blocking its writers. Repeatable, in case the step was killed."""
    if op.get_bind().dialect.name != "postgresql":
        op.create_index(name, table, columns, unique=unique, if_not_exists=True)
        return
    with op.get_context().autocommit_block():
        op.create_index(name, table, columns, unique=unique, postgresql_concurrently=True, if_not_exists=True)


def add_word_index(table: str, keys: Sequence[str], column: str) -> None:
    """Adds the index of a new, still empty WordSet column; `keys` is the table's primary key."""
    for statement in word_index_statements(op.get_bind().dialect.name, table, keys, column):
        op.execute(statement)
