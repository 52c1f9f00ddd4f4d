"""Which of several entities of one name counts (C2, C3): most scope keys, then the declared precedence of keys.

Scopes are known here by the names of their keys alone: a candidate's values are those of the caller's scope.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

from threadkeep_config.domain.values import Entity, EntityType

Strength = tuple[int, tuple[tuple[int, str], ...]]


@dataclass(frozen=True)
class Precedence:
    """The declared order of scope keys, the strongest first. Keys that are not declared follow by name."""

    keys: tuple[str, ...] = ()

    def rank(self, key: str) -> tuple[int, str]:
        """Sorts keys, the strongest first."""
        return (self.keys.index(key), "") if key in self.keys else (len(self.keys), key)

    def strength(self, scope_keys: Collection[str]) -> Strength:
        """Sorts scopes by the names of their keys, the strongest first.

        Two different sets of keys never compare as equal, so two candidates of one caller never tie.
        """
        return -len(scope_keys), tuple(sorted(self.rank(key) for key in scope_keys))

    def subsets(self, scope_keys: Collection[str]) -> list[tuple[str, ...]]:
        """Every subset of the keys, the strongest first: all of them first, none of them last."""
        ordered = sorted(scope_keys, key=self.rank)
        found = [chosen for size in range(len(ordered) + 1) for chosen in combinations(ordered, size)]
        return sorted(found, key=self.strength)


def is_candidate(type: EntityType, *, is_exact: bool, is_file: bool) -> bool:
    """True if an entity in a subset of the caller's scope may count there.

    An agent that was created over the API counts in its exact scope only; agents from files are the fallback (C3).
    """
    return type is not EntityType.AGENT or is_exact or is_file


def winner(candidates: Sequence[Entity]) -> Entity | None:
    """The one that counts, of candidates with the strongest first. None if there is none, or the first one hides."""
    if not candidates or candidates[0].content.hidden:
        return None
    return candidates[0]


def layers(candidates: Sequence[Entity]) -> Sequence[Entity]:
    """What merges, of candidates with the strongest first: those above the first one that hides the others."""
    hiding = next((place for place, one in enumerate(candidates) if one.content.hidden), len(candidates))
    return candidates[:hiding]


def explanations(candidates: Sequence[tuple[Entity, tuple[str, ...]]], precedence: Precedence) -> list[str]:
    """Says for each candidate (with the names of its scope's keys), the strongest first, why it stands there."""
    texts: list[str] = []
    for place, (entity, keys) in enumerate(candidates):
        scope = f"scope keys ({', '.join(keys)})" if keys else "the empty scope"
        if place == 0:
            why = "the strongest candidate" if len(candidates) > 1 else "the only candidate"
        else:
            above = candidates[place - 1][1]
            if len(above) > len(keys):
                why = f"fewer scope keys than the one above ({len(keys)} of {len(above)})"
            else:
                stronger, weaker = _first_difference(above, keys, precedence)
                why = f"as many scope keys as the one above, but {stronger} comes before {weaker} in the precedence"
        if entity.content.hidden:
            why += "; it is hidden" + (", so nothing counts" if place == 0 else "")
        elif any(above.content.hidden for above, _ in candidates[:place]):
            why += "; a hidden one above hides it"
        elif entity.key.type is EntityType.DEFAULTS and len(candidates) > 1:
            why += "; its fields fill in what those above leave out" if place else "; its fields come first"
        texts.append(f"{scope}: {why}")
    return texts


def _first_difference(above: Sequence[str], below: Sequence[str], precedence: Precedence) -> tuple[str, str]:
    pairs = zip(sorted(above, key=precedence.rank), sorted(below, key=precedence.rank), strict=True)
    return next(pair for pair in pairs if pair[0] != pair[1])
