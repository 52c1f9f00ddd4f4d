"""Compares two definitions field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = object()
"""Stands for a field that is not there (which is not the same as null)."""


@dataclass(frozen=True)
class FieldChange:
    """One field that differs. Values are JSON values, or ABSENT."""

    path: str
    old: Any
    new: Any


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldChange]:
    """The fields that differ, by path such as `agent.system_prompt`. Lists count whole."""
    changes: list[FieldChange] = []
    _compare("", old, new, changes)
    return sorted(changes, key=lambda change: change.path)


def _compare(path: str, old: Any, new: Any, changes: list[FieldChange]) -> None:
    left, right = _fields(old, new), _fields(new, old)
    if left is not None and right is not None:
        for name in left.keys() | right.keys():
            inner = f"{path}.{name}" if path else name
            _compare(inner, left.get(name, ABSENT), right.get(name, ABSENT), changes)
    elif old is not new and (old is ABSENT or new is ABSENT or old != new):
        changes.append(FieldChange(path, old, new))


def _fields(value: Any, other: Any) -> Mapping[str, Any] | None:
    """The fields of a message, none for an absent one beside a message that has some; None for a plain value."""
    if value is ABSENT:
        return {} if isinstance(other, Mapping) and other else None
    return value if isinstance(value, Mapping) and (value or other is not ABSENT) else None
