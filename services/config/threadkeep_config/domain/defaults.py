"""Defaults (C2): how those of several scopes merge, and how an agent takes what it leaves out.

Definitions come as the JSON of their messages: `{"defaults": {...}}`, `{"agent": {...}}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

USUAL = "default"
"""The name of the Defaults that agents take when they name none."""


def merge(definitions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One definition from several, the strongest first: each field is the first one's that has it. Lists are whole."""
    merged: dict[str, Any] = {}
    for definition in reversed(definitions):
        merged.update(definition["defaults"])
    return {"defaults": merged}


def counting_fields(definitions: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The fields that count from each of several definitions, the strongest first; each sorted."""
    seen: set[str] = set()
    counting = []
    for definition in definitions:
        counting.append(sorted(definition["defaults"].keys() - seen))
        seen.update(definition["defaults"])
    return counting


def fill_in(agent: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """The agent's definition with the defaults for every field that it leaves out."""
    body = dict(agent["agent"])
    names_provider = "provider" in body
    for field, value in (defaults or {"defaults": {}})["defaults"].items():
        # A model belongs to its provider: who names another one gets that one's own.
        if field not in body and not (field == "model" and names_provider):
            body[field] = value.get("values", []) if isinstance(value, Mapping) else value
    return {"agent": {name: value for name, value in body.items() if value != []}}
