"""Defaults (C2): they merge field by field, whole fields, the strongest first; agents take what they leave out."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.canonical import canonical_text, parse_json
from threadkeep_config.domain import defaults
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key
from threadkeep_config.store.counting import counting

VALUES: dict[str, list[Any]] = {
    "provider": ["p", "q"],
    "model": ["m"],
    "max_steps": [1, 2],
    "tools": [{}, {"values": ["a"]}, {"values": ["a", "b"]}],
    "middleware": [{"values": [{"name": "x"}]}, {}],
}
BODIES = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})


def entity(place: int, body: dict[str, Any] | None, type: EntityType = EntityType.DEFAULTS) -> Entity:
    """An entity at a place of the order; without a body a hidden one."""
    text = "" if body is None else canonical_text({type.field: body})
    content = Content(API, text, str(place), hidden=body is None)
    now = datetime.now(UTC)
    return Entity(
        Key(type, "x", str(place)), "{}", content, 10 - place, deleted=False, create_time=now, update_time=now
    )


def naive(layers: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The same by hand: field by field, down to what hides."""
    if not layers or layers[0] is None:
        return None
    found: dict[str, Any] = {}
    for name in VALUES:
        for layer in layers:
            if layer is None:
                break
            if name in layer:
                found[name] = layer[name]
                break
    return found


@pytest.mark.rule("C2")
@pytest.mark.case("B84", "B85")
@given(st.lists(st.none() | BODIES, max_size=5))
def test_defaults_merge_as_a_naive_model_does(layers: list[dict[str, Any] | None]) -> None:
    candidates = [entity(place, body) for place, body in enumerate(layers)]
    found, expected = counting(candidates), naive(layers)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert parse_json(found.content.definition) == {"defaults": expected}
    merged = candidates[: [*layers, None].index(None)]
    assert found.revision == max(one.revision for one in merged)
    fields = defaults.counting_fields([parse_json(one.content.definition) for one in merged])
    assert sorted(name for names in fields for name in names) == sorted(expected)
    for names, one in zip(fields, merged, strict=True):
        body = parse_json(one.content.definition)["defaults"]
        assert all(body[name] == expected[name] for name in names)


@pytest.mark.rule("C2")
@pytest.mark.case("B84")
@given(st.lists(BODIES, min_size=1, max_size=4), st.sampled_from([one for one in EntityType if one.name != "DEFAULTS"]))
def test_every_other_type_counts_whole(layers: list[dict[str, Any]], type: EntityType) -> None:
    candidates = [replace(entity(place, body, type)) for place, body in enumerate(layers)]
    assert counting(candidates) is candidates[0]


TABLE: list[tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]] = [
    ({}, None, {}),
    ({"model": "m"}, None, {"model": "m"}),
    ({}, {"model": "d"}, {"model": "d"}),
    ({"model": "m"}, {"model": "d"}, {"model": "m"}),
    ({}, {"provider": "p", "model": "d"}, {"provider": "p", "model": "d"}),
    ({"provider": "own"}, {"provider": "p", "model": "d"}, {"provider": "own"}),
    ({"provider": "own", "model": "m"}, {"provider": "p", "model": "d"}, {"provider": "own", "model": "m"}),
    ({"tools": ["a"]}, {"tools": {"values": ["b"]}}, {"tools": ["a"]}),
    ({}, {"tools": {"values": ["b", "c"]}}, {"tools": ["b", "c"]}),
    ({}, {"tools": {}}, {}),
    ({"max_steps": 3}, {"max_steps": 5, "max_model_calls": 7}, {"max_steps": 3, "max_model_calls": 7}),
    ({}, {"middleware": {"values": [{"name": "x"}]}}, {"middleware": [{"name": "x"}]}),
    ({"system_prompt": "s"}, {"sandbox_profile": "b"}, {"system_prompt": "s", "sandbox_profile": "b"}),
]


@pytest.mark.rule("C2", "C9")
@pytest.mark.case("B84")
@pytest.mark.parametrize(("agent", "given_defaults", "expected"), TABLE)
def test_an_agent_takes_what_it_leaves_out(
    agent: dict[str, Any], given_defaults: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    wrapped = None if given_defaults is None else {"defaults": given_defaults}
    assert defaults.fill_in({"agent": agent}, wrapped) == {"agent": expected}
