"""Memory items: how namespaces are written down, what a filter matches, how near two vectors are (R21).

Everything that could differ between databases is decided here, on parsed values, so that it can't.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import mul
from typing import Any, NamedTuple

Labels = tuple[str, ...]

_END = "\x01"
"""Ends a label. Labels hold no control character, so no label can look like two, and no prefix ends inside one."""
_AFTER_END = "\x02"

OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte")


class ItemKey(NamedTuple):
    """What an item is found by, inside its scope."""

    namespace: str
    """Encoded."""
    key: str


@dataclass(frozen=True, slots=True)
class ItemPut:
    """An item to store."""

    at: ItemKey
    value_json: bytes
    ttl: timedelta | None = None
    vectors: bytes | None = None
    """See `pack_vectors`."""
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is read back."""

    at: ItemKey
    value_json: bytes
    create_time: datetime
    update_time: datetime
    expire_time: datetime | None
    ttl: timedelta | None
    sequence: int
    """Its place in the order of the scope's puts."""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """What to find, in one scope."""

    scope_key: str
    prefix: Labels
    filter: Mapping[str, Any] | None
    """Parsed, floats as Decimal; checked by `filter_problem`."""
    limit: int | None
    offset: int
    query: tuple[float, ...] | None
    refresh_ttl: bool


@dataclass(frozen=True, slots=True)
class NamespaceMatch:
    """Labels that a namespace begins (or ends) with; `*` is any one label."""

    path: Labels
    is_suffix: bool

    def holds(self, labels: Labels) -> bool:
        """True if the namespace matches, label by label."""
        if len(labels) < len(self.path):
            return False
        part = labels[len(labels) - len(self.path) :] if self.is_suffix else labels[: len(self.path)]
        return all(wanted in ("*", label) for label, wanted in zip(part, self.path, strict=True))


@dataclass(frozen=True, slots=True)
class NamespaceQuery:
    """Which namespaces to list, in one scope."""

    scope_key: str
    matches: tuple[NamespaceMatch, ...]
    max_depth: int | None
    limit: int | None
    offset: int

    @property
    def prefix(self) -> Labels:
        """The labels without wildcard that every match begins with."""
        longest: Labels = ()
        for match in self.matches:
            if not match.is_suffix:
                literal = match.path[: match.path.index("*")] if "*" in match.path else match.path
                longest = max(longest, literal, key=len)
        return longest


def encode_namespace(labels: Sequence[str]) -> str:
    """The namespace as one text. Texts sort as the label tuples do, and begin with each other only label by label."""
    return "".join(label + _END for label in labels)


def decode_namespace(text: str) -> Labels:
    """The labels."""
    return tuple(text.split(_END)[:-1])


def end_of_prefix(labels: Sequence[str]) -> str:
    """Sorts behind every namespace that begins with these labels (at least one), and before all that follow."""
    return encode_namespace(labels)[:-1] + _AFTER_END


def label_problem(label: str) -> str | None:
    """What is wrong with a label beyond an id's rules, in words, or None."""
    return "must not hold a dot" if "." in label else None


def filter_problem(wanted: Any) -> str | None:
    """What is wrong with a filter, in words, or None. Operators are not quoted: they came from the caller."""
    if not isinstance(wanted, dict):
        return "must be a JSON object"
    pending = list(wanted.values())
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if _is_operators(value):
                if any(name not in OPERATORS for name in value):
                    return f"holds an operator other than {', '.join(OPERATORS)}"
            else:
                pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return None


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if an item's value has, for each key of the filter, what the filter says."""
    return all(_holds(value, key, condition) for key, condition in wanted.items())


_MISSING = object()


def _holds(value: Mapping[str, Any], key: str, condition: Any) -> bool:
    return _compare(value.get(key, _MISSING), condition)


def _compare(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if _is_operators(wanted):
            return all(_apply(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and matches(value, wanted)
    if isinstance(wanted, list):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_compare(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return _equal(value, wanted)


def _apply(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return _equal(value, operand)
    if operator == "$ne":
        return not _equal(value, operand)
    if not (_are(value, operand, _is_number) or _are(value, operand, _is_text)):
        return False
    if operator == "$gt":
        return bool(value > operand)
    if operator == "$gte":
        return bool(value >= operand)
    if operator == "$lt":
        return bool(value < operand)
    return bool(value <= operand)


def _equal(value: Any, other: Any) -> bool:
    """Equality of JSON values: numbers by their exact value, and nothing else equals a number; true is not 1."""
    if _is_number(value) and _is_number(other):
        return bool(value == other)
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(_equal(value[key], other[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    return bool(value == other)


def _is_operators(value: Mapping[str, Any]) -> bool:
    return any(name.startswith("$") for name in value)


def _is_number(value: Any) -> bool:
    # Floats were parsed as Decimal, whose comparison with integers of any size is exact.
    return value is not _MISSING and not isinstance(value, (bool, str, dict, list, type(None)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are(value: Any, other: Any, kind: Any) -> bool:
    return bool(kind(value) and kind(other))


def pack_vectors(vectors: Sequence[Sequence[float]]) -> bytes:
    """Vectors of one length as 32-bit floats, little-endian, one behind the other."""
    packed = array("f", [component for vector in vectors for component in vector])
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def best_similarity(query: Sequence[float], vectors: bytes | None, dimensions: int | None) -> float | None:
    """The greatest cosine similarity of a query and packed vectors; None without vectors of its length.

    A vector of length 0 is near nothing: its similarity is 0.
    """
    if not vectors or dimensions != len(query):
        return None
    components = array("f")
    components.frombytes(vectors)
    if sys.byteorder == "big":
        components.byteswap()
    length = math.sqrt(sum(map(mul, query, query)))
    best = -math.inf
    for start in range(0, len(components), dimensions):
        vector = components[start : start + dimensions]
        lengths = length * math.sqrt(sum(map(mul, vector, vector)))
        best = max(best, sum(map(mul, query, vector)) / lengths if lengths else 0.0)
    return best
