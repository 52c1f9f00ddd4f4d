"""Entities as files (C7): whatever is written is read back as exactly the same content."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.config.test_definitions import GOOD, content
from tests.unit.config.test_files import LIMITS
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key
from threadkeep_config.files import export_set, parse_set

ODD = [
    "---\n",
    "a\n---\nb",
    " x",
    "x \n",
    "\n",
    "yes",
    "1.0",
    "~",
    "a: b",
    "# c",
    "'",
    '"',
    "\r\n",
    "\t",
    "- a\n- b",
    "\u2028",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40) | st.sampled_from(ODD)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    TEXT | NUMBERS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def entity(type: EntityType, name: str, made: Content) -> Entity:
    """An entity."""
    now = datetime.now(UTC)
    return Entity(Key(type, name, "s"), "{}", made, 1, deleted=False, create_time=now, update_time=now)


def read_back(one: Entity) -> Content | None:
    """What the exported files say; None if no file can hold it."""
    exported = export_set([one])
    if exported.problems:
        assert exported.files == []
        return None
    parsed = parse_set(exported.files, LIMITS)
    assert parsed.problems == []
    return parsed.contents[one.key.type, one.key.name]


@pytest.mark.rule("C7")
@pytest.mark.parametrize(("kind", "body"), GOOD, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(GOOD)])
def test_every_type_comes_back_as_it_was(kind: str, body: dict[str, Any]) -> None:
    made = content(kind, body)
    found = read_back(entity(EntityType[kind.upper()], "größe 1.0", made))
    assert found is not None
    assert found.definition == made.definition


@pytest.mark.rule("C7", "X8")
@given(TEXT, TEXT, JSON)
def test_any_text_comes_back_as_it_was_or_is_told(prompt: str, description: str, value: Any) -> None:
    made = content("agent", {"system_prompt": prompt, "description": description})
    found = read_back(entity(EntityType.AGENT, "a", made))
    assert found is None or found.definition == made.definition
    schema = content("custom", {"schema": "s", "document_json": json.dumps({"v": value})})
    found = read_back(entity(EntityType.CUSTOM, "c", schema))
    assert found is None or found.definition == schema.definition


@pytest.mark.rule("C7")
@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "x" * 256, "a\\b"])
def test_a_name_that_no_file_can_have_is_told(name: str) -> None:
    made = content("tool", {"python": {"entry_point": "a:b"}})
    exported = export_set([entity(EntityType.TOOL, name, made)])
    assert exported.files == []
    assert len(exported.problems) == 1


@pytest.mark.rule("C7")
def test_files_are_made_for_people() -> None:
    made = content(
        "agent",
        {"system_prompt": "Be brief.\n\nAnd kind.", "provider": "p", "tools": ["a"], "response_schema_json": "{}"},
    )
    ((path, text),) = export_set([entity(EntityType.AGENT, "clerk", made)]).files
    assert path == "agents/clerk.md"
    assert text.decode() == "---\nprovider: p\ntools:\n- a\nresponse_schema: {}\n---\n\nBe brief.\n\nAnd kind.\n"
    hidden = entity(EntityType.TOOL, "x", Content(API, hidden=True))
    assert export_set([hidden]).files == [("tools/x.yaml", b"hidden: true\n")]
