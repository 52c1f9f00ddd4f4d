"""Layers of files (C7): the highest wins, name by name, and faults say the layer that they are in."""

import pytest

from tests.unit.config.test_files import LIMITS
from threadkeep_config.domain.values import EntityType
from threadkeep_config.files import ParsedSet, parse_set
from threadkeep_config.wire import definition_of


def layered(*layers: dict[str, str]) -> ParsedSet:
    """A set of files in layers."""
    return parse_set(
        [(path, text.encode(), number) for number, files in enumerate(layers) for path, text in files.items()], LIMITS
    )


@pytest.mark.rule("C7")
def test_mappings_merge_name_by_name_and_all_else_counts_whole() -> None:
    base = "type: openai\nmodel: small\noptions:\n  a: 1\n  b: [1, 2]\n"
    over = "model: large\noptions:\n  b: [3]\n  c: 4\n"
    parsed = layered({"providers/p.yaml": base, "providers/q.yaml": "type: x"}, {"providers/p.yaml": over})
    assert parsed.problems == []
    assert definition_of(parsed.contents[EntityType.PROVIDER, "p"].definition)["provider"] == {
        "type": "openai",
        "model": "large",
        "options_json": '{"a":1,"b":[3],"c":4}',
    }
    assert (EntityType.PROVIDER, "q") in parsed.contents


@pytest.mark.rule("C7")
def test_markdown_takes_the_highest_text_and_skills_the_highest_file() -> None:
    parsed = layered(
        {
            "agents/a.md": "---\nmodel: m\n---\nBase.",
            "skills/s/SKILL.md": "---\ndescription: d\n---\nHow.",
            "skills/s/x": "0",
        },
        {"agents/a.md": "---\nprovider: p\n---\n", "skills/s/SKILL.md": "---\nlicense: MIT\n---\n", "skills/s/x": "1"},
        {"agents/a.md": "Top."},
    )
    assert parsed.problems == []
    agent = definition_of(parsed.contents[EntityType.AGENT, "a"].definition)["agent"]
    assert agent == {"model": "m", "provider": "p", "system_prompt": "Top."}
    skill = definition_of(parsed.contents[EntityType.SKILL, "s"].definition)["skill"]
    assert (skill["instructions"], skill["license"], skill["files"]) == (
        "How.",
        "MIT",
        [{"path": "x", "content": "MQ=="}],
    )


@pytest.mark.rule("C7")
def test_a_layer_may_hide_what_lies_below_and_show_it_again() -> None:
    base, hides = {"tools/t.yaml": "python: {entry_point: 'a:b'}"}, {"tools/t.yaml": "hidden: true"}
    assert layered(base, hides).contents[EntityType.TOOL, "t"].hidden
    shown = layered(base, hides, {"tools/t.yaml": "python: {entry_point: 'c:d'}"})
    assert not shown.contents[EntityType.TOOL, "t"].hidden


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ("type: x\nmodel: [1]", "endpoint: http://x", (2, 0)),
        ("type: x", "\n\nmodel: [1]", (3, 1)),
        ("type: x\nmodel: [1]", "model: m\n\ncolour: red", (3, 1)),
        ("type: x", "model: [", (1, 1)),
        ("type: x\noptions:\n  a: 1", "options:\n  password: x", (2, 1)),
    ],
)
def test_a_fault_says_the_layer_that_it_is_in(base: str, over: str, expected: tuple[int, int]) -> None:
    (problem,) = layered({"providers/p.yaml": base}, {"providers/p.yaml": over}).problems
    assert (problem.line, problem.layer) == expected
