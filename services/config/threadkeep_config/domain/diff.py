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
    _compare("", old or ABSENT, new or ABSENT, changes)
    return sorted(changes, key=lambda change: change.path)


def _compare(path: str, old: Any, new: Any, changes: list[FieldChange]) -> None:
    if old and new and _has_fields(old) and _has_fields(new):
        left = {} if old is ABSENT else old
        right = {} if new is ABSENT else new
        for name in left.keys() | right.keys():
            inner = f"{path}.{name}" if path else name
            _compare(inner, left.get(name, ABSENT), right.get(name, ABSENT), changes)
    elif old is not new and (old is ABSENT or new is ABSENT or old != new):
        changes.append(FieldChange(path, old, new))


def _has_fields(value: Any) -> bool:
    """True for a message, and for one that is not there, whose fields are all absent."""
    return value is ABSENT or isinstance(value, Mapping)
