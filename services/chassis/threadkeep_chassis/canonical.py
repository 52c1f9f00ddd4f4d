"""Canonical JSON (RFC 8785), strict JSON parsing, and SHA-256: the one encoder behind scope keys and digests (X1, X8).

Deviation from RFC 8785, kept by every language's client: integers of any size are written exactly, in decimal, instead
of passing through an IEEE double. NaN, Infinity, lone surrogates and duplicate keys are refused: two readers could
disagree about them. Shared vectors: clients/vectors/canonical_json.json.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring as _quote
from typing import Any

MAX_DEPTH = 200
"""Nesting beyond this is refused, so that no document can exhaust a reader's stack."""

_HIGH = re.compile("[\ud800-\uffff]|[\U00010000-\U0010ffff]")


class JsonInvalid(ValueError):
    """The document is not JSON as we accept it. The message says why, and never quotes the document."""


def canonical_json(value: Any) -> bytes:
    """Returns the canonical form of a JSON value (None, bool, int, float, str, list, tuple, Mapping with str keys).

    Raises JsonInvalid for NaN, Infinity, lone surrogates, keys that are no strings, other types, or too deep nesting.
    """
    parts: list[str] = []
    _write(value, parts, 0)
    try:
        return "".join(parts).encode("utf-8")
    except UnicodeEncodeError as error:
        raise JsonInvalid("holds a lone surrogate") from error


def canonical_text(value: Any) -> str:
    """The same as text."""
    return canonical_json(value).decode("utf-8")


def exact_text(value: Any) -> str:
    """JSON text that `parse_json` turns into the same value again: unlike the canonical form it keeps 1.0 and -0.0 as
    floats and the order of keys. Raises JsonInvalid."""
    try:
        text = _ENCODER.encode(value)
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise JsonInvalid("holds a lone surrogate") from error
    except (TypeError, RecursionError) as error:
        raise JsonInvalid("the value has no JSON form") from error
    except ValueError as error:
        raise JsonInvalid("NaN and Infinity have no JSON form") from error
    return text


def parse_json(document: bytes | str) -> Any:
    """Parses strictly (RFC 8259, UTF-8): integers stay exact, floats are doubles.

    Raises JsonInvalid for NaN, Infinity, numbers that overflow a double, duplicate keys, lone surrogates, a byte order
    mark, integers beyond 4,300 digits, and nesting beyond MAX_DEPTH.
    """
    try:
        text = document if isinstance(document, str) else bytes(document).decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonInvalid("is not UTF-8") from error
    try:
        value = _DECODER.decode(text)
    except JsonInvalid:
        raise
    except json.JSONDecodeError as error:
        raise JsonInvalid(f"is not JSON (at character {error.pos}: {error.msg})") from error
    except ValueError as error:
        raise JsonInvalid("holds a number that is too long") from error
    except RecursionError as error:
        raise JsonInvalid(f"is nested deeper than {MAX_DEPTH}") from error
    # The document's brackets bound its depth, so most documents are never walked.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise JsonInvalid(f"is nested deeper than {MAX_DEPTH}")
    # A lone surrogate can only come from an escape: raw ones are not UTF-8.
    if "\\ud" in text or "\\uD" in text or isinstance(document, str):
        _refuse_surrogates(value)
    return value


def sha256_hex(content: bytes) -> str:
    """SHA-256 in lower-case hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def canonical_digest(value: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical form."""
    return sha256_hex(canonical_json(value))


def _write(value: Any, parts: list[str], depth: int) -> None:
    kind = type(value)
    if kind is str:
        parts.append(_quote(value))
    elif value is None:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif kind is int:
        parts.append(_integer(value))
    elif kind is float:
        parts.append(_number(value))
    elif isinstance(value, Mapping):
        _write_object(value, parts, depth + 1)
    elif isinstance(value, (list, tuple)):
        _check_depth(depth + 1)
        parts.append("[")
        for index, item in enumerate(value):
            if index:
                parts.append(",")
            _write(item, parts, depth + 1)
        parts.append("]")
    elif isinstance(value, str):
        parts.append(_quote(str(value)))
    elif isinstance(value, int):
        parts.append(_integer(int(value)))
    elif isinstance(value, float):
        parts.append(_number(float(value)))
    else:
        raise JsonInvalid(f"a {kind.__name__} has no JSON form")


def _write_object(value: Mapping[str, Any], parts: list[str], depth: int) -> None:
    _check_depth(depth)
    try:
        keys = _sorted_keys(value)
    except TypeError as error:
        raise JsonInvalid("an object's keys must be strings") from error
    parts.append("{")
    first = True
    for key in keys:
        if not first:
            parts.append(",")
        first = False
        parts.append(_quote(key))
        parts.append(":")
        _write(value[key], parts, depth)
    parts.append("}")


def _sorted_keys(keys: Iterable[str]) -> list[str]:
    ordered = list(keys)
    if any(not isinstance(key, str) for key in ordered):
        raise TypeError
    # RFC 8785 sorts by UTF-16 code units. That is the order of code points except where surrogates are involved.
    if any(_HIGH.search(key) for key in ordered):
        return sorted(ordered, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return sorted(ordered)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise JsonInvalid(f"is nested deeper than {MAX_DEPTH}")


def _integer(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise JsonInvalid("holds a number that is too long") from error


def _number(value: float) -> str:
    """ECMAScript's Number::toString, which RFC 8785 prescribes; Python's repr has the same shortest digits."""
    if value != value or value in (float("inf"), float("-inf")):
        raise JsonInvalid("NaN and Infinity have no JSON form")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    # The decimal point stands after `point` digits of `digits`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    scale = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return sign + digits[0] + ("." + digits[1:] if count > 1 else "") + scale


def _refuse_constant(_: str) -> Any:
    raise JsonInvalid("holds NaN or Infinity")


def _parse_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise JsonInvalid("holds a number that overflows a double")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise JsonInvalid("holds an object with a duplicate key")
    return result


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, (dict, list)) for item in level)


def _refuse_surrogates(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError as error:
                raise JsonInvalid("holds a lone surrogate") from error
        elif isinstance(item, dict):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_parse_float, object_pairs_hook=_object, strict=True
)
