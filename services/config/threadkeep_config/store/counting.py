"""What counts of the candidates that were read: one entity whole, or Defaults merged from several (C2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from threadkeep_chassis.canonical import canonical_text, parse_json, sha256_hex
from threadkeep_config import wire
from threadkeep_config.domain import defaults, resolution
from threadkeep_config.domain.values import Entity, EntityType


def definition_of(entity: Entity) -> dict[str, Any]:
    """The JSON of an entity's definition; empty for one that is hidden or deleted."""
    document: dict[str, Any] = parse_json(entity.content.definition) if entity.content.definition else {}
    return document


def shown_definition(entity: Entity) -> dict[str, Any]:
    """The same for whoever may read it: without secrets."""
    return wire.shown(entity.content, definition_of(entity))


def counting(candidates: Sequence[Entity]) -> Entity | None:
    """The entity that counts, of candidates with the strongest first; None if none does."""
    winner = resolution.winner(candidates)
    if winner is None or winner.key.type is not EntityType.DEFAULTS:
        return winner
    layers = resolution.layers(candidates)
    if len(layers) == 1:
        return winner
    text = canonical_text(defaults.merge([definition_of(one) for one in layers]))
    content = replace(winner.content, definition=text, digest=sha256_hex(text.encode()))
    return replace(winner, content=content, revision=max(one.revision for one in layers))
