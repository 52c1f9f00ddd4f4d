"""What an agent depends on, and the manifest that pins it (C9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep_config.domain.values import Entity, EntityType

Reference = tuple[EntityType, str]


def references(agent: Mapping[str, Any]) -> list[Reference]:
    """What an agent's definition (`{"agent": {...}}`) names: its provider, if any, then its tools in their order."""
    body = agent["agent"]
    provider = body.get("provider")
    named = [(EntityType.PROVIDER, provider)] if provider else []
    return [*named, *((EntityType.TOOL, name) for name in body.get("tools", ()))]


def manifest(entities: Sequence[tuple[Entity, Mapping[str, Any]]]) -> dict[str, Any]:
    """The manifest's JSON value, from the agent and what it references, each with its definition parsed."""
    document: dict[str, Any] = {"tools": []}
    for entity, definition in entities:
        part = {
            "name": entity.key.name,
            "revision": entity.revision,
            "digest": entity.content.digest,
            "definition": definition,
        }
        if entity.key.type is EntityType.TOOL:
            document["tools"].append(part)
        else:
            document[entity.key.type.field] = part
    return document


def pinned_content(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest's digest covers: all of it but the revisions, so that equal contents have equal digests."""

    def without_revision(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name != "revision"}

    return {
        name: [without_revision(part) for part in value] if isinstance(value, list) else without_revision(value)
        for name, value in document.items()
    }
