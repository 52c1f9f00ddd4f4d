"""The shape of a schema: what tells its versions apart when the version row is lost (B39)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database.words import SUFFIX

VERSION_TABLE = "schema_version"
HISTORY_TABLE = "schema_history"


def schema_shape(inspector: sa.Inspector, schema: str | None) -> dict[str, frozenset[str]]:
    """Names of tables, columns and indexes: what is the same on both dialects."""
    shape = {}
    for table in inspector.get_table_names(schema=schema):
        if table in (VERSION_TABLE, HISTORY_TABLE) or SUFFIX in table:
            continue
        columns = {f"column {column['name']}" for column in inspector.get_columns(table, schema=schema)}
        indexes = {
            f"index {index['name']}"
            for index in inspector.get_indexes(table, schema=schema)
            if not index.get("duplicates_constraint") and not str(index["name"]).endswith(SUFFIX)
        }
        shape[table] = frozenset(columns | indexes)
    return shape
