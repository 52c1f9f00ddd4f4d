"""JSON Schema 2020-12 at a bounded cost: nobody's schema or answer may hold up a server (X9).

Patterns are RE2's, which need time in proportion to the text; combinations are counted in steps; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import jsonschema
import re2
from jsonschema import validators
from jsonschema.validators import Draft202012Validator
from referencing import Registry

from threadkeep_chassis.canonical import canonical_json

MAX_STEPS = 10_000
"""How many keywords, each with what it lists, one answer may be held against: about a second on a busy machine."""

MAX_PATTERN_CHARACTERS = 1024

_NOTHING_REMOTE: Registry = Registry()
"""A reference to another document is refused: a server fetches nothing that a schema names."""
_STEPS: ContextVar[list[int]] = ContextVar("threadkeep_schema_steps")

Keyword = Callable[[Any, Any, Any, Any], Iterator[jsonschema.ValidationError] | None]


class TooCostly(Exception):
    """The value takes more steps to check than a server spends."""


def unbounded_part(schema: Any) -> str | None:
    """What in a schema can't be checked at a bounded cost, in words, or None.

    Any name counts as a keyword wherever it stands: a reference may lead there.
    """
    pending: list[Any] = [schema]
    names: set[str] = set()
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            names.update(part)
            if part is not schema and isinstance(part.get("$schema"), str):
                return "can't name another $schema inside"
            patterns = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
            if isinstance(part.get("patternProperties"), Mapping):
                patterns.extend(part["patternProperties"])
            if not all(_is_pattern(pattern) for pattern in patterns):
                return (
                    f"has a pattern that RE2 does not take (no look-around, no back-references, at most "
                    f"{MAX_PATTERN_CHARACTERS} characters)"
                )
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)
    if {"patternProperties", "unevaluatedProperties"} <= names:
        return "can't have both patternProperties and unevaluatedProperties; use additionalProperties"
    return None


def first_error(schema: Any, value: Any) -> jsonschema.ValidationError | None:
    """The first rule of the schema that the value breaks, or None.

    Raises TooCostly, and whatever a schema that `unbounded_part` did not see or a reference that leads nowhere brings.
    """
    if isinstance(schema, dict):
        # The library would go on with the named draft's own keywords, which cost what they cost.
        schema = {name: part for name, part in schema.items() if name != "$schema"}
    with nullcontext() if _STEPS.get(None) is not None else one_budget():
        return next(iter(_Bounded(schema, registry=_NOTHING_REMOTE).iter_errors(value)), None)


@contextmanager
def one_budget(steps: int | None = None) -> Iterator[None]:
    """Whatever is checked within costs at most so many steps together: MAX_STEPS, or what is left of one around it."""
    if steps is None and _STEPS.get(None) is not None:
        yield
        return
    token = _STEPS.set([MAX_STEPS if steps is None else steps])
    try:
        yield
    finally:
        _STEPS.reset(token)


def _spend(steps: int) -> None:
    left = _STEPS.get()
    left[0] -= steps
    if left[0] < 0:
        raise TooCostly


def _counted(keyword: Keyword) -> Keyword:
    """The keyword, at the price of what it lists."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        _spend(1 + (len(value) if isinstance(value, (list, dict)) else 0))
        yield from keyword(validator, value, instance, schema) or ()

    return check


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    return re2.compile(pattern, options)


def _is_pattern(pattern: str) -> bool:
    try:
        _compiled(pattern)
    except (re2.error, ValueError):
        return False
    return True


def _matches(pattern: str, text: str) -> bool:
    # A step stands for some ten microseconds; RE2 reads about a kilobyte in that time, whatever the pattern.
    _spend(1 + len(text) // 1024)
    return _compiled(pattern).search(text) is not None


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield jsonschema.ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, part in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name not in known and not any(_matches(pattern, name) for pattern in patterns):
            yield from validator.descend(value, rule, path=name)


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if wanted and isinstance(instance, list):
        _spend(len(instance))
        if len({canonical_json(item) for item in instance}) < len(instance):
            yield jsonschema.ValidationError("has equal elements")


_Bounded = validators.extend(
    Draft202012Validator,
    {
        name: _counted(keyword)
        for name, keyword in {
            **Draft202012Validator.VALIDATORS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "uniqueItems": _unique_items,
        }.items()
    },
)
