"""The schema that all tables of the runtime belong to, and how its constraints are named."""

from __future__ import annotations

import sqlalchemy as sa

OUTLIVES_THREAD = "outlives_thread"
"""Key in a table's `info`: its rows of a thread stay when the thread is deleted (R19). All other tables with a
`thread_key` or `thread_id` are emptied then."""

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_N_name)s",
        "uq": "%(table_name)s_one_%(column_0_N_name)s",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_of_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)


def one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    """Holds an enum's column to its names."""
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")
