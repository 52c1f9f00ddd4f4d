"""What differs between a database's schema and the tables that the code declares (B42)."""

from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.engine import Connection

from threadkeep_chassis.database.words import SUFFIX

OURS = ("schema_version", "schema_history")


def schema_differences(connection: Connection, metadata: sa.MetaData) -> list[str]:
    """Tables, columns, types, nullability, defaults, keys and indexes that differ, in words; empty if none does.

    The connection's default schema is the one compared.
    """

    def include(item: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:
        if SUFFIX in str(name) and connection.dialect.name != "postgresql":
            # SQLite keeps an index of words as a family of tables.
            return False
        return not (kind == "table" and name in OURS)

    options = {"compare_type": True, "compare_server_default": _default_differs, "include_object": include}
    context = MigrationContext.configure(connection, opts=options)
    found = [str(difference) for difference in compare_metadata(context, metadata)]
    inspector = sa.inspect(connection)
    for table in metadata.sorted_tables:
        if not inspector.has_table(table.name):
            continue
        # Alembic compares neither primary keys nor, on SQLite, collations.
        real = inspector.get_pk_constraint(table.name)["constrained_columns"]
        declared = [column.name for column in table.primary_key.columns]
        if real != declared:
            found.append(f"primary key of {table.name}: {real} in the database, {declared} declared")
        found.extend(_collations(connection, table))
    return found


def _default_differs(context: Any, inspected: Any, declared: Any, real: Any, _: Any, rendered: Any) -> bool:
    """Compares defaults as text: dialects give them back with quotes, casts and parentheses of their own."""
    return _plain(real) != _plain(rendered)


def _plain(default: Any) -> str | None:
    if default is None:
        return None
    text = str(default).strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return text.split("::", 1)[0].strip("'")


def _collations(connection: Connection, table: sa.Table) -> list[str]:
    if connection.dialect.name != "postgresql":
        return []
    rows = connection.execute(
        sa.text(
            "SELECT a.attname, c.collname FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation "
            "WHERE a.attrelid = to_regclass(:table) AND a.attnum > 0"
        ),
        {"table": f'"{table.name}"'},
    )
    real = dict(tuple(row) for row in rows)
    found = []
    for column in table.columns:
        native = column.type.dialect_impl(connection.dialect)
        declared = getattr(native, "collation", None) or getattr(getattr(native, "impl", None), "collation", None)
        if declared is not None and real.get(column.name) != declared:
            found.append(f"collation of {table.name}.{column.name}: {real.get(column.name)}, {declared} declared")
    return found
