"""Keyset pages (X5): an opaque token holds the last row's key, bound to method, scope and query.

A list asks `pager.page(call, request)` for size and start, selects rows after `page.after` in key order, collects them
in a PageBuilder, and answers `pager.token(call, request, last_key)` if there is more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from google.protobuf.message import Message
from sqlalchemy.sql.expression import ColumnElement

from threadkeep_chassis import tokens
from threadkeep_chassis.canonical import JsonInvalid, exact_text, parse_json
from threadkeep_chassis.database.columns import from_microseconds, to_microseconds
from threadkeep_chassis.errors import FieldInvalid, PageTokenInvalid
from threadkeep_chassis.scope import Call

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
MAX_PAGE_BYTES = 3 * 1024 * 1024
"""Below the 4 MiB that gRPC clients receive by default."""

_NOT_THE_QUERY = ("page_token", "page_size", "freshness")

KeyValue = str | int | float | bool | bytes | datetime | None
ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Page:
    """What a list shall return: at most `size` rows after the key `after` (None: from the start)."""

    size: int
    after: tuple[Any, ...] | None


class Pager:
    """Makes and reads the page tokens of one service."""

    def __init__(self, secret: bytes, *, default_size: int = DEFAULT_PAGE_SIZE, max_size: int = MAX_PAGE_SIZE) -> None:
        """`secret` comes from `meta.load_token_secret`, so that every replica reads every token."""
        self._key = tokens.derive_key(secret, "page")
        self._default_size = default_size
        self._max_size = max_size

    def page(self, call: Call, request: Message) -> Page:
        """Reads `page_size` and `page_token` of the request.

        An absent or 0 size is the default, one above the maximum is the maximum. Raises FieldInvalid (negative size)
        and PageTokenInvalid.
        """
        size: int = request.page_size  # type: ignore[attr-defined]
        if size < 0:
            raise FieldInvalid("page_size", "must not be negative")
        token: str = request.page_token  # type: ignore[attr-defined]
        after = None if not token else self._open(call, request, token)
        return Page(min(size or self._default_size, self._max_size), after)

    def token(self, call: Call, request: Message, last_key: Sequence[KeyValue]) -> str:
        """The `next_page_token` for the page that ended with the row of this key."""
        body = exact_text([_pack(value) for value in last_key]).encode()
        return tokens.to_text(tokens.seal(self._key, body, self._bound_to(call, request)))

    def _open(self, call: Call, request: Message, token: str) -> tuple[Any, ...]:
        raw = tokens.from_text(token)
        body = tokens.unseal(self._key, raw, self._bound_to(call, request)) if raw is not None else None
        if body is None:
            raise PageTokenInvalid()
        try:
            return tuple(_unpack(value) for value in parse_json(body))
        except (JsonInvalid, TypeError, ValueError) as error:
            raise PageTokenInvalid() from error

    def _bound_to(self, call: Call, request: Message) -> bytes:
        query = type(request)()
        query.CopyFrom(request)
        for name in _NOT_THE_QUERY:
            if name in query.DESCRIPTOR.fields_by_name:
                query.ClearField(name)
        bound = hashlib.sha256(call.method.encode() + b"\x00" + call.receipt_key.encode() + b"\x00")
        bound.update(query.SerializeToString(deterministic=True))
        return bound.digest()


class PageBuilder(Generic[ItemT]):
    """Collects the rows of a page up to a number and up to a size; the first one always fits.

    Select `builder.wanted` rows (one more than the size, to see whether there is more), `add` each until it says False.
    """

    def __init__(self, page: Page, max_bytes: int = MAX_PAGE_BYTES) -> None:
        self._page = page
        self._max_bytes = max_bytes
        self._bytes = 0
        self.items: list[ItemT] = []
        self.last_key: tuple[KeyValue, ...] | None = None
        self.has_more = False

    @property
    def wanted(self) -> int:
        """How many rows to select."""
        return self._page.size + 1

    def add(self, item: ItemT, key: Sequence[KeyValue], size: int | None = None) -> bool:
        """Takes the item, whose row has this key, or returns False: the page is full and there is more.

        `size` is in bytes; for a protobuf message it is measured.
        """
        measured = size if size is not None else item.ByteSize() if isinstance(item, Message) else 0
        if self.items and (len(self.items) >= self._page.size or self._bytes + measured > self._max_bytes):
            self.has_more = True
            return False
        self.items.append(item)
        self._bytes += measured
        self.last_key = tuple(key)
        return True

    def token(self, pager: Pager, call: Call, request: Message) -> str:
        """The next page's token, or an empty string at the end."""
        if not self.has_more or self.last_key is None:
            return ""
        return pager.token(call, request, self.last_key)


def after_key(
    columns: Sequence[ColumnElement[Any]], after: Sequence[Any] | None, *, descending: bool = False
) -> ColumnElement[bool]:
    """The condition for rows behind the key `after`, in the order of the columns (which together are unique)."""
    if after is None:
        return sa.true()
    row = sa.tuple_(*columns)
    bound = sa.tuple_(
        *(sa.bindparam(None, value, type_=column.type) for column, value in zip(columns, after, strict=True))
    )
    return row < bound if descending else row > bound


def _pack(value: KeyValue) -> Any:
    if isinstance(value, datetime):
        return {"t": to_microseconds(value)}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if "t" in value:
            return from_microseconds(value["t"])
        return bytes.fromhex(value["b"])
    return value
