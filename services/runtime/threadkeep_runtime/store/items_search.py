"""Searches items and lists namespaces (R21), frame by frame: keys and sizes first, then values in bounded portions.

Filters and similarity are computed on the values, since no two databases compare alike. The cost of a search is the
number of items below its prefix; the memory is a frame, and for a ranked one the keys that it returns.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_runtime.domain.store_items import (
    Labels,
    NamespaceQuery,
    Search,
    StoredItem,
    best_similarity,
    decode_namespace,
    encode_namespace,
    end_of_prefix,
    matches,
)
from threadkeep_runtime.store.items import ITEM_COLUMNS, LIVE, item_of
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import store_items

_ITEM = store_items.c

KEYS_PER_PAGE = 256
FRAME_BYTES = 1024 * 1024
"""Size at which a frame is full, and a portion of values to look at."""
FRAME_NAMESPACES = 1000


@dataclass(slots=True)
class Place:
    """Where a search goes on with its next frame."""

    before: int | None = None
    """Only items of a lower sequence."""
    skipped: int = 0
    taken: int = 0
    ranked: list[tuple[float | None, int]] | None = None
    """Of a ranked search: score and sequence of what is still to come."""


@dataclass(slots=True)
class NamespacePlace:
    """Where a list of namespaces goes on."""

    after: str = ""
    skipped: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class _Portion:
    """Items to look at, together not much larger than a frame."""

    sequences: list[int] = field(default_factory=list)


def find_items(
    connection: Connection, search: Search, place: Place, now: datetime
) -> tuple[list[StoredItem], Place | None]:
    """A frame of what a search finds, and where the next one begins; None at the end."""
    if search.query is not None:
        return _next_ranked(connection, search, place, now)
    found: list[StoredItem] = []
    size = 0
    while search.limit is None or place.taken < search.limit:
        count = _count(search, place)
        keys = _page(connection, search, place.before, now, count, _ITEM.value)
        for portion in _portions(_behind_offset(search, place, keys)):
            for row in _rows(connection, search, portion, now, *ITEM_COLUMNS):
                place.before = row.sequence
                if search.filter is not None:
                    if not matches(parse_value(row.value), search.filter):
                        continue
                    if place.skipped < search.offset:
                        place.skipped += 1
                        continue
                found.append(item_of(row))
                place.taken += 1
                size += len(row.value)
                if place.taken == search.limit:
                    return found, None
                if size >= FRAME_BYTES:
                    return found, place
        if len(keys) < count:
            break
        place.before = keys[-1].sequence
    return found, None


def parse_value(document: bytes | str) -> Any:
    """A JSON document with floats as Decimal: what is compared is what was written."""
    return json.loads(document, parse_float=Decimal)


def _count(search: Search, place: Place) -> int:
    if search.filter is not None or search.limit is None:
        return KEYS_PER_PAGE
    return min(KEYS_PER_PAGE, search.offset - place.skipped + search.limit - place.taken)


def _behind_offset(search: Search, place: Place, keys: Sequence[Any]) -> Sequence[Any]:
    if search.filter is not None:
        return keys
    drop = min(len(keys), search.offset - place.skipped)
    place.skipped += drop
    return keys[drop:]


def _next_ranked(
    connection: Connection, search: Search, place: Place, now: datetime
) -> tuple[list[StoredItem], Place | None]:
    if place.ranked is None:
        assert search.limit is not None
        best = heapq.nlargest(search.offset + search.limit, _scores(connection, search, now))
        place.ranked = [(score if scored else None, sequence) for scored, score, sequence in best[search.offset :]]
    wanted = place.ranked
    found: list[StoredItem] = []
    size = 0
    while wanted:
        step = wanted[:32]
        rows = {
            row.sequence: row
            for row in _rows(connection, search, _Portion([sequence for _, sequence in step]), now, *ITEM_COLUMNS)
        }
        for index, (score, sequence) in enumerate(step):
            row = rows.get(sequence)
            if row is None:
                continue
            found.append(replace(item_of(row), score=score))
            size += len(row.value)
            if size >= FRAME_BYTES:
                place.ranked = wanted[index + 1 :]
                return found, place if place.ranked else None
        wanted = wanted[32:]
    return found, None


def _scores(connection: Connection, search: Search, now: datetime) -> Iterator[tuple[bool, float, int]]:
    """(has a score, score, sequence) of everything that the filter lets through."""
    assert search.query is not None
    looked_at = [_ITEM.vectors] if search.filter is None else [_ITEM.vectors, _ITEM.value]
    before: int | None = None
    while True:
        keys = _page(connection, search, before, now, KEYS_PER_PAGE, *looked_at)
        for portion in _portions(keys):
            for row in _rows(connection, search, portion, now, _ITEM.sequence, _ITEM.dimensions, *looked_at):
                if search.filter is not None and not matches(parse_value(row.value), search.filter):
                    continue
                score = best_similarity(search.query, row.vectors, row.dimensions)
                yield score is not None, 0.0 if score is None else score, row.sequence
        if len(keys) < KEYS_PER_PAGE:
            return
        before = keys[-1].sequence


def _page(
    connection: Connection, search: Search, before: int | None, now: datetime, count: int, *measured: Any
) -> Sequence[Any]:
    """Sequences and sizes (of the measured columns) of the next items, the last put first."""
    sizes = [sa.func.coalesce(sa.func.length(column), 0) for column in measured]
    size = sum(sizes[1:], sizes[0]).label("size")
    statement = sa.select(_ITEM.sequence, size).where(_ITEM.scope_key == search.scope_key, *_below(search.prefix), LIVE)
    if before is not None:
        statement = statement.where(_ITEM.sequence < before)
    return connection.execute(statement.order_by(_ITEM.sequence.desc()).limit(count), {"now": now}).all()


def _below(prefix: Labels) -> tuple[sa.ColumnElement[bool], ...]:
    if not prefix:
        return ()
    return _ITEM.namespace >= encode_namespace(prefix), _ITEM.namespace < end_of_prefix(prefix)


def _portions(keys: Sequence[Any]) -> Iterator[_Portion]:
    portion, size = _Portion(), 0
    for key in keys:
        if portion.sequences and size + key.size > FRAME_BYTES:
            yield portion
            portion, size = _Portion(), 0
        portion.sequences.append(key.sequence)
        size += key.size
    if portion.sequences:
        yield portion


def _rows(connection: Connection, search: Search, portion: _Portion, now: datetime, *columns: Any) -> Sequence[Any]:
    statement = (
        sa.select(*columns)
        .where(_ITEM.scope_key == search.scope_key, _ITEM.sequence.in_(sa.bindparam("sequences", expanding=True)), LIVE)
        .order_by(_ITEM.sequence.desc())
    )
    return connection.execute(statement, {"sequences": padded(portion.sequences), "now": now}).all()


def list_namespaces(
    connection: Connection, wanted: NamespaceQuery, place: NamespacePlace, now: datetime
) -> tuple[list[Labels], NamespacePlace | None]:
    """A frame of the namespaces that hold items, sorted, and where the next one begins; None at the end."""
    found: list[Labels] = []
    while wanted.limit is None or place.taken < wanted.limit:
        names = _names(connection, wanted, place.after, now)
        for name in names:
            if name <= place.after:
                continue
            place.after = name
            labels = decode_namespace(name)
            if not all(match.holds(labels) for match in wanted.matches):
                continue
            if wanted.max_depth is not None and len(labels) >= wanted.max_depth:
                # The others below the cut namespace are the same one.
                labels = labels[: wanted.max_depth]
                place.after = end_of_prefix(labels)
            if place.skipped < wanted.offset:
                place.skipped += 1
                continue
            found.append(labels)
            place.taken += 1
            if place.taken == wanted.limit:
                return found, None
            if len(found) >= FRAME_NAMESPACES:
                return found, place
        if len(names) < KEYS_PER_PAGE:
            break
    return found, None


def _names(connection: Connection, wanted: NamespaceQuery, after: str, now: datetime) -> Sequence[str]:
    statement = (
        sa.select(_ITEM.namespace)
        .distinct()
        .where(_ITEM.scope_key == wanted.scope_key, _ITEM.namespace > after, *_below(wanted.prefix), LIVE)
        .order_by(_ITEM.namespace)
        .limit(KEYS_PER_PAGE)
    )
    return connection.execute(statement, {"now": now}).scalars().all()
