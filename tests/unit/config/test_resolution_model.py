"""Resolution (C2, C3) against a naive model: generated scopes, precedences and entities, one winner, the same order."""

import json
from datetime import UTC, datetime
from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.scope import Scope
from threadkeep_config.domain.resolution import Precedence, explanations
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, Source, SourceKind
from threadkeep_config.store.counting import counting
from threadkeep_config.store.scopes import Views

NAMES = ("env", "org", "project", "tenant", "user")
SCOPES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", "ü_%"]), max_size=5)
ENTITIES = st.lists(
    st.tuples(SCOPES, st.booleans(), st.booleans()),
    max_size=12,
    unique_by=lambda one: json.dumps(one[0], sort_keys=True),
)
TYPES = st.sampled_from([EntityType.TOOL, EntityType.AGENT])
FILE = Source(SourceKind.FILE, "x.yaml")


def is_stronger(one: dict[str, str], other: dict[str, str], precedence: tuple[str, ...]) -> bool:
    """The rule in words: more keys; else the first key in the declared order, then by name, that only one has."""
    if len(one) != len(other):
        return len(one) > len(other)
    undeclared = sorted({*one, *other} - {*precedence})
    first = next(key for key in (*precedence, *undeclared) if (key in one) != (key in other))
    return first in one


def naive(
    caller: dict[str, str], precedence: tuple[str, ...], entities: list[tuple[dict[str, str], Entity]]
) -> list[Entity]:
    """The candidates, the strongest first, by comparing each with each."""
    seen = [
        (scope, entity)
        for scope, entity in entities
        if scope.items() <= caller.items()
        and (entity.key.type is not EntityType.AGENT or scope == caller or entity.content.source.is_file)
    ]
    return [
        entity
        for _, entity in sorted(
            seen, key=cmp_to_key(lambda one, other: -1 if is_stronger(one[0], other[0], precedence) else 1)
        )
    ]


@pytest.mark.rule("C2", "C3")
@pytest.mark.case("B84", "B85")
@given(
    SCOPES, st.permutations(NAMES), st.integers(0, 5), ENTITIES, st.sampled_from([EntityType.TOOL, EntityType.AGENT])
)
def test_resolution_is_what_a_naive_model_says(
    caller: dict[str, str],
    order: list[str],
    declared: int,
    made: list[tuple[dict[str, str], bool, bool]],
    type: EntityType,
) -> None:
    precedence = tuple(order[:declared])
    now = datetime.now(UTC)
    entities = []
    for number, (scope, is_file, is_hidden) in enumerate(made, 1):
        content = Content(FILE if is_file else API, "" if is_hidden else "{}", str(number), hidden=is_hidden)
        key = Key(type, "x", Scope(scope).key)
        entities.append((scope, Entity(key, "{}", content, number, False, now, now)))
    expected = naive(caller, precedence, entities)
    views = Views(Precedence(precedence))
    view = views.inherited(Scope(caller))
    ordered = view.ordered([entity for _, entity in entities])
    assert ordered == expected
    wins = None if not expected or expected[0].content.hidden else expected[0]
    assert counting(ordered) is wins
    names = view.key_names or {}
    texts = explanations([(one, names[one.key.scope_key]) for one in ordered], views.precedence)
    assert len(texts) == len(expected)
    assert len({one.key.scope_key for one in ordered}) == len(ordered), "no two tie: each scope counts once"
