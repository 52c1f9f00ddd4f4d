"""The few SQL forms in which the dialects differ, each under a name that says why it is used.

Statements made here compile on PostgreSQL and SQLite alike, so they can be built once at import.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement, FunctionElement
from sqlalchemy.types import TypeEngine

from threadkeep_chassis.database.columns import UtcTimestamp


def insert_or_ignore(table: sa.Table, keys: Sequence[str] | None = None) -> postgresql.Insert:
    """INSERT that leaves an existing row alone. `keys`: the unique columns meant; None for any.

    With `.returning(...)` it tells the rows that were new.
    """
    # SQLite's grammar is PostgreSQL's here, and SQLAlchemy compiles the one construct for both.
    return postgresql.insert(table).on_conflict_do_nothing(index_elements=keys)


def upsert(
    table: sa.Table, keys: Sequence[str], update: Iterable[str], where: ColumnElement[bool] | None = None
) -> postgresql.Insert:
    """INSERT that overwrites the `update` columns of a row with the same `keys` (if `where` holds for the old row)."""
    statement = postgresql.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={name: statement.excluded[name] for name in update}, where=where
    )


def insert(table: sa.Table) -> postgresql.Insert:
    """An INSERT with `.on_conflict_do_update` and `.excluded`, for what `upsert` does not say."""
    return postgresql.insert(table)


def locked_in_key_order(statement: sa.Select[Any], *keys: ColumnElement[Any]) -> sa.Select[Any]:
    """Locks the selected rows against other writers, in key order so that two batches can't deadlock.

    FOR NO KEY UPDATE: foreign keys to the rows don't block. SQLite has one writer anyway.
    """
    return statement.order_by(*keys).with_for_update(key_share=True)


def locked_skipping_others(statement: sa.Select[Any], of: sa.Table | None = None) -> sa.Select[Any]:
    """Locks the selected rows, passing over those that another transaction holds: competing consumers.

    In a join, `of` names the table whose rows are locked. LIMIT counts the rows that could be locked.
    """
    return statement.with_for_update(key_share=True, skip_locked=True, of=of)


def starts_with(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """True where a `Key` column starts with the prefix. Exact for every character (no LIKE), and an index serves it."""
    if not prefix:
        return sa.true()
    return sa.and_(
        column >= prefix, column <= prefix + "\U0010ffff" * 2, sa.func.substr(column, 1, len(prefix)) == prefix
    )


def contains_text(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """True where the column holds the text somewhere, wildcards taken literally; case-sensitive on every backend."""
    return position_of(column, text) > 0


class position_of(FunctionElement[int]):
    """1-based position of a text in another, 0 if absent."""

    type = sa.Integer()
    name = "position_of"
    inherit_cache = True


@compiles(position_of)
def _position(element: position_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"instr({compiler.process(element.clauses, **kw)})"


@compiles(position_of, "postgresql")
def _position_pg(element: position_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **kw)})"


class utc_day(FunctionElement[str]):
    """The day in UTC of a `UtcTimestamp` column, as YYYY-MM-DD."""

    type = sa.Text()
    name = "utc_day"
    inherit_cache = True


@compiles(utc_day)
def _day(element: utc_day, compiler: SQLCompiler, **kw: Any) -> str:
    return f"strftime('%Y-%m-%d', {compiler.process(element.clauses, **kw)} / 1000000, 'unixepoch')"


@compiles(utc_day, "postgresql")
def _day_pg(element: utc_day, compiler: SQLCompiler, **kw: Any) -> str:
    # COLLATE "C": sorted as every key is.
    return f"to_char({compiler.process(element.clauses, **kw)} AT TIME ZONE 'UTC', 'YYYY-MM-DD') COLLATE \"C\""


class database_now(FunctionElement[Any]):
    """The database's time. On PostgreSQL the statement's: later than the waits for locks of earlier statements."""

    type: TypeEngine[Any] = UtcTimestamp()
    name = "database_now"
    inherit_cache = True


@compiles(database_now)
def _now(element: database_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"


@compiles(database_now, "postgresql")
def _now_pg(element: database_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "statement_timestamp()"


class database_now_plus(FunctionElement[Any]):
    """The database's time plus a number of seconds (a bound value or a column; fractions allowed)."""

    type: TypeEngine[Any] = UtcTimestamp()
    name = "database_now_plus"
    inherit_cache = True


@compiles(database_now_plus)
def _plus(element: database_now_plus, compiler: SQLCompiler, **kw: Any) -> str:
    seconds = compiler.process(element.clauses, **kw)
    return f"CAST((julianday('now') - 2440587.5) * 86400000000.0 + ({seconds}) * 1000000.0 AS INTEGER)"


@compiles(database_now_plus, "postgresql")
def _plus_pg(element: database_now_plus, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(statement_timestamp() + make_interval(secs => CAST({compiler.process(element.clauses, **kw)} AS float8)))"


class transaction_id(FunctionElement[str]):
    """The transaction's id as text, for `Connection.note_transaction_id`; empty on SQLite, which needs none.

    A statement that the transaction runs anyway may return it and so save the round trip before COMMIT.
    """

    type = sa.Text()
    name = "transaction_id"
    inherit_cache = True


@compiles(transaction_id)
def _xid(element: transaction_id, compiler: SQLCompiler, **kw: Any) -> str:
    return "''"


@compiles(transaction_id, "postgresql")
def _xid_pg(element: transaction_id, compiler: SQLCompiler, **kw: Any) -> str:
    return "CAST(pg_current_xact_id() AS text)"


def json_text_at(column: ColumnElement[Any], key: str) -> ColumnElement[str]:
    """The text form of a top-level key of a JsonDocument, the key bound as a value (never spliced into SQL)."""
    return json_at(column, key)


class json_at(FunctionElement[str]):
    """`document ->> key` on both dialects."""

    type = sa.Text()
    name = "json_at"
    inherit_cache = True


@compiles(json_at)
@compiles(json_at, "postgresql")
def _json_at(element: json_at, compiler: SQLCompiler, **kw: Any) -> str:
    document, key = list(element.clauses)
    return f"({compiler.process(document, **kw)} ->> CAST({compiler.process(key, **kw)} AS TEXT))"
