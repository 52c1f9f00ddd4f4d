"""Column types with one meaning on both dialects.

`Key` sorts by code point everywhere (keyset pages depend on it), `UtcTimestamp` takes aware datetimes only, `JsonText`
keeps values exactly, `JsonDocument` can be filtered on, `Bytes` are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from threadkeep_chassis.canonical import JsonInvalid, canonical_text, exact_text, parse_json

# The escape of NUL, and not an escaped backslash before "u0000".
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def Key() -> TypeEngine[str]:
    """Text that is compared and sorted by code point on every backend: ids, names, keys. COLLATE "C" on PostgreSQL."""
    return sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def Bytes() -> TypeEngine[bytes]:
    """Bytes: bytea, or BLOB."""
    return sa.LargeBinary()


def BigSerialId() -> TypeEngine[int]:
    """A 64-bit integer that SQLite accepts as an autoincrementing primary key. Never an order (X10)."""
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class UtcTimestamp(TypeDecorator[datetime]):
    """An aware datetime in UTC with microseconds: timestamptz, or microseconds since 1970 in SQLite."""

    impl = sa.BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Picks the native type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Refuses naive datetimes with ValueError."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a timestamp needs a time zone")
        if dialect.name == "postgresql":
            return value
        return to_microseconds(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Gives an aware datetime in UTC."""
        if value is None:
            return None
        if isinstance(value, datetime):
            # The driver writes the first and the last microsecond that Python knows as infinities, which it gives back
            # without a zone.
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return from_microseconds(value)


class JsonText(TypeDecorator[Any]):
    """A JSON value as text: numbers (-0.0 and 1.0 too), NUL and key order come back as they were. Not for filtering."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Writes JSON. Raises JsonInvalid. None is SQL NULL."""
        return None if value is None else exact_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Parses it."""
        if value in _EMPTY:
            # Most titles, maps and settings are empty, and every commit reads them.
            return _EMPTY[value]()
        return None if value is None else parse_json(value)


_EMPTY: dict[str, Callable[[], Any]] = {"{}": dict, "[]": list, '""': str}


class JsonDocument(TypeDecorator[Any]):
    """A JSON value that the database can look into: jsonb, or text with SQLite's JSON functions.

    Refuses the character NUL, which jsonb can't hold. jsonb also rewrites numbers such as 1e22 and -0.0. Use JsonText
    where either matters.
    """

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Picks the native type."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(JsonbText())
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Writes canonical JSON. Raises JsonInvalid. None is SQL NULL."""
        if value is None:
            return None
        text = canonical_text(value)
        if "\\u0000" in text and _NUL.search(text):
            raise JsonInvalid("holds the character NUL, which a filterable document can't")
        return text

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Parses it (the PostgreSQL driver has done so by then)."""
        return value if value is None or dialect.name == "postgresql" else parse_json(value)


class JsonbText(UserDefinedType[str]):
    """jsonb that takes JSON text; what comes back was parsed by the driver with our parser (see `postgres`)."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **kw: Any) -> str:
        """The type's name."""
        return "JSONB"


def to_microseconds(value: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    return (value - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """The datetime, in UTC."""
    return _EPOCH + timedelta(microseconds=value)
