"""Sets of words that are found by an index: tsvector with GIN on PostgreSQL, FTS5 on SQLite.

Which words there are is the caller's business: neither database takes text apart, folds it or ranks it here, so both
find the same. A word consists of letters, digits and characters beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement, FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

SUFFIX = "_word_index"
"""How the names of word indexes begin to end: the index on PostgreSQL, a family of tables on SQLite."""


class WordSet(TypeDecorator[Sequence[str]]):
    """A column of words, written only. Declare `word_index` for it."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Picks the native type."""
        return dialect.type_descriptor(_TsVector() if dialect.name == "postgresql" else sa.Text())

    def process_bind_param(self, value: Iterable[str] | None, dialect: Dialect) -> str | None:
        """Each word once."""
        if value is None:
            return None
        words = dict.fromkeys(value)
        return " ".join(f"'{word}'" for word in words) if dialect.name == "postgresql" else " ".join(words)


class _AsText(UserDefinedType[str]):
    cache_ok = True
    name = ""

    def get_col_spec(self, **kw: Any) -> str:
        return self.name

    def bind_expression(self, bindvalue: sa.BindParameter[str]) -> ColumnElement[Any]:
        # The driver knows no such type, but text.
        return sa.cast(sa.cast(bindvalue, sa.Text()), type(self)())


class _TsVector(_AsText):
    name = "TSVECTOR"


class _TsQuery(_AsText):
    name = "TSQUERY"


class _WordQuery(TypeDecorator[Sequence[tuple[str, bool]]]):
    """(word, True for every word that begins with it): all of them."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(_TsQuery() if dialect.name == "postgresql" else sa.Text())

    def process_bind_param(self, value: Sequence[tuple[str, bool]] | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if dialect.name == "postgresql":
            return " & ".join(f"'{word}'{':*' if is_prefix else ''}" for word, is_prefix in value)
        return " AND ".join(f'"{word}"{"*" if is_prefix else ""}' for word, is_prefix in value)


class has_words(FunctionElement[bool]):
    """True where the table's `WordSet` column holds all words, at least one: (word, True for a beginning of one).

    On SQLite it may be true for further rows with the same last key column.
    """

    type = sa.Boolean()
    name = "has_words"
    inherit_cache = False

    def __init__(self, column: sa.Column[Any], words: Sequence[tuple[str, bool]]) -> None:
        self.column = column
        super().__init__(column, sa.bindparam(None, list(words), type_=_WordQuery()))


@compiles(has_words)
def _has_words(element: has_words, compiler: SQLCompiler, **kw: Any) -> str:
    table = element.column.table
    key = list(table.primary_key)[-1]
    index = f"{table.name}{SUFFIX}"
    _, query = list(element.clauses)
    return (
        f"{compiler.process(key, **kw)} IN (SELECT k.{key.name} FROM {index} f JOIN {index}_keys k "
        f"ON k.number = f.rowid WHERE f.{index} MATCH {compiler.process(query, **kw)})"
    )


@compiles(has_words, "postgresql")
def _has_words_pg(element: has_words, compiler: SQLCompiler, **kw: Any) -> str:
    column, query = list(element.clauses)
    return f"({compiler.process(column, **kw)} @@ {compiler.process(query, **kw)})"


def word_index(table: sa.Table, column: str) -> sa.Index:
    """Declares the index of a `WordSet` column. What it consists of on SQLite is only in the migrations."""
    return sa.Index(f"{table.name}{SUFFIX}", table.c[column], postgresql_using="gin").ddl_if(dialect="postgresql")


def word_index_statements(dialect: str, table: str, keys: Sequence[str], column: str) -> list[str]:
    """What makes the index of a `WordSet` column; `keys` is the table's primary key.

    On SQLite: the words of each row under a number, kept up by triggers. Row ids won't do: VACUUM may change them.
    """
    index = f"{table}{SUFFIX}"
    if dialect == "postgresql":
        return [f"CREATE INDEX {index} ON {table} USING gin ({column})"]

    def of(row: str) -> str:
        return " AND ".join(f"{key} = {row}.{key}" for key in keys)

    add = (
        f"INSERT INTO {index}_keys ({', '.join(keys)}) SELECT {', '.join(f'new.{key}' for key in keys)} "
        f"WHERE new.{column} IS NOT NULL; "
        f"INSERT INTO {index} (rowid, words) SELECT number, new.{column} FROM {index}_keys "
        f"WHERE {of('new')} AND new.{column} IS NOT NULL; "
    )
    # The words of before say which entries to take out: the index keeps no copy of them.
    drop = (
        f"INSERT INTO {index} ({index}, rowid, words) SELECT 'delete', number, old.{column} FROM {index}_keys "
        f"WHERE {of('old')} AND old.{column} IS NOT NULL; "
        f"DELETE FROM {index}_keys WHERE {of('old')}; "
    )
    columns = ", ".join(f"{key} TEXT NOT NULL" for key in keys)
    has_changed = f"WHEN old.{column} IS NOT new.{column}"
    return [
        f"CREATE TABLE {index}_keys (number INTEGER PRIMARY KEY, {columns}, UNIQUE ({', '.join(keys)}))",
        f"CREATE VIRTUAL TABLE {index} USING fts5(words, content='', detail=none, columnsize=0, tokenize='ascii')",
        f"CREATE TRIGGER {index}_insert AFTER INSERT ON {table} BEGIN {add}END",
        f"CREATE TRIGGER {index}_delete AFTER DELETE ON {table} BEGIN {drop}END",
        f"CREATE TRIGGER {index}_update AFTER UPDATE OF {column} ON {table} {has_changed} BEGIN {drop}{add}END",
    ]
