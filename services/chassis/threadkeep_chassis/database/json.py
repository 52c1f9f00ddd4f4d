"""JSON inside statements: documents kept as they came, looked into the same way on both dialects.

Containment is PostgreSQL's jsonb `@>`. SQLite gets it as a function of our own, which `register_functions` adds to each
of its connections.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement, FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeDecorator, TypeEngine

from threadkeep_chassis.database.columns import JsonbText


class JsonSource(TypeDecorator[str]):
    """A JSON document given as text that was already checked: jsonb, or text. No parsing on the way in or out.

    jsonb refuses the character NUL and rewrites numbers and the order of keys: keep the bytes beside it if they matter.
    """

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Picks the native type."""
        return dialect.type_descriptor(JsonbText() if dialect.name == "postgresql" else sa.Text())


class json_contains(FunctionElement[bool]):
    """True where a document contains another, as jsonb `@>` has it; see `is_contained`."""

    type = sa.Boolean()
    name = "threadkeep_json_contains"
    inherit_cache = True

    def __init__(self, document: ColumnElement[Any], part: ColumnElement[Any]) -> None:
        super().__init__(document, part)


@compiles(json_contains)
def _contains(element: json_contains, compiler: SQLCompiler, **kw: Any) -> str:
    return f"threadkeep_json_contains({compiler.process(element.clauses, **kw)})"


@compiles(json_contains, "postgresql")
def _contains_pg(element: json_contains, compiler: SQLCompiler, **kw: Any) -> str:
    document, part = list(element.clauses)
    return f"({compiler.process(document, **kw)} @> {compiler.process(part, **kw)})"


class json_member(FunctionElement[Any]):
    """The member of an object, an object or array itself, as a document; NULL if it is absent."""

    type: TypeEngine[Any] = JsonSource()
    name = "json_member"
    inherit_cache = True

    def __init__(self, document: ColumnElement[Any], member: str) -> None:
        """`member` is a plain name of our own choice."""
        self.member = member
        super().__init__(document, sa.literal_column(f"'{member}'"))


@compiles(json_member)
def _member(element: json_member, compiler: SQLCompiler, **kw: Any) -> str:
    document = compiler.process(next(iter(element.clauses)), **kw)
    return f"json_extract({document}, '$.{element.member}')"


@compiles(json_member, "postgresql")
def _member_pg(element: json_member, compiler: SQLCompiler, **kw: Any) -> str:
    document = compiler.process(next(iter(element.clauses)), **kw)
    return f"({document} -> '{element.member}')"


class _json_each_text(FunctionElement[Any]):
    name = "json_each_text"
    inherit_cache = True


@compiles(_json_each_text)
def _each(element: _json_each_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(_json_each_text, "postgresql")
def _each_pg(element: _json_each_text, compiler: SQLCompiler, **kw: Any) -> str:
    return f"jsonb_each_text({compiler.process(element.clauses, **kw)})"


def json_entries(document: ColumnElement[Any], name: str) -> TableValuedAlias:
    """The entries of an object as rows `key`, `value` (text); none for NULL. Join it laterally to the document's row.

    On SQLite the values of text members only are exact: it rewrites numbers.
    """
    rows = _json_each_text(document).table_valued(
        sa.column("key", sa.Text()), sa.column("value", sa.Text()), joins_implicitly=True
    )
    return rows.alias(name)


def is_contained(part: Any, whole: Any) -> bool:
    """True if a JSON value contains another, both containers at the top.

    An object contains one whose every key it has with a value that contains the other's; an array contains one whose
    every element it contains somewhere; scalars contain their equals. None is the explicit null only, true is not 1.
    https://www.postgresql.org/docs/current/datatype-json.html#JSON-CONTAINMENT
    """
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and is_contained(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(is_contained(item, one) for one in whole) for item in part)
    if isinstance(whole, (dict, list)):
        return False
    if isinstance(part, (bool, str, type(None))) or isinstance(whole, (bool, str, type(None))):
        return type(part) is type(whole) and bool(part == whole)
    return bool(part == whole)


def register_functions(connection: Any) -> None:
    """Adds our functions to a SQLite connection (the driver's, as SQLAlchemy's connect event gives it)."""
    connection.create_function("threadkeep_json_contains", 2, _sqlite_contains, deterministic=True)


def _sqlite_contains(document: str | None, part: str | None) -> int | None:
    if document is None or part is None:
        return None
    return int(is_contained(_parsed(part), json.loads(document, parse_float=Decimal)))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    # Decimal: 0.1 is not 0.1000000000000000055, and 1e22 is the integer.
    return json.loads(text, parse_float=Decimal)
