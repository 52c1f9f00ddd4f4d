"""What a call sees: which scopes, and of the agents in them which ones (C3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from threadkeep_config.domain.resolution import is_candidate
from threadkeep_config.domain.values import Entity, Key


@dataclass(frozen=True)
class View:
    """The scopes that a call sees."""

    scope_keys: tuple[str, ...] | None
    """Their keys; in the view of one scope the strongest first. None for every scope."""
    own_key: str | None = None
    """The one scope that the call works in: the others are what it inherits from. None if it inherits nothing."""
    key_names: Mapping[str, tuple[str, ...]] | None = None
    """In the view of one scope: the names of each scope's keys."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each scope stands in the order of resolution, by scope key; 0 is the strongest."""
        return {key: place for place, key in enumerate(self.scope_keys or ())}

    def covers(self, scope_key: str) -> bool:
        """True if entities of the scope can be seen at all."""
        return self.scope_keys is None or scope_key in self.places

    def sees(self, entity: Entity) -> bool:
        """True if the entity can be seen."""
        key: Key = entity.key
        if not self.covers(key.scope_key):
            return False
        return self.own_key is None or is_candidate(
            key.type, is_exact=key.scope_key == self.own_key, is_file=entity.content.source.is_file
        )

    def ordered(self, entities: Sequence[Entity]) -> list[Entity]:
        """The candidates among entities of one type and name, the strongest first."""
        seen = [entity for entity in entities if entity.exists and self.sees(entity)]
        return sorted(seen, key=lambda entity: self.places[entity.key.scope_key])
