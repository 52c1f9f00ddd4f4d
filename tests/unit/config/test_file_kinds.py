"""Files of the types beside agents, tools and providers (C7): skills as folders, hidden entities, YAML forms."""

from typing import Any

import pytest

from tests.unit.config.test_files import LIMITS, body, faults
from threadkeep_config.domain.values import EntityType
from threadkeep_config.files import ParsedSet, parse_set
from threadkeep_config.wire import definition_of

SKILL = """---
name: pdf
description: Reads PDF files.
license: MIT
allowed-tools: Read, Bash
metadata:
  version: "1"
---

# How
See scripts/read.py.
"""


def parsed(**files: str | bytes) -> ParsedSet:
    """A set of files in the folder of the skill `pdf`; `_` in names stands for `/`, and `_md` ends in `.md`."""
    pairs = [(path, one.encode() if isinstance(one, str) else one) for path, one in files.items()]
    return parse_set(pairs, LIMITS)


@pytest.mark.rule("C7")
def test_a_skill_is_its_folder() -> None:
    found = parsed(**{"skills/pdf/SKILL.md": SKILL, "skills/pdf/scripts/read.py": b"\x00\xff", "skills/pdf/a.md": "x"})
    assert found.problems == []
    content = found.contents[EntityType.SKILL, "pdf"]
    assert content.source.path == "skills/pdf/SKILL.md"
    assert definition_of(content.definition)["skill"] == {
        "description": "Reads PDF files.",
        "instructions": "# How\nSee scripts/read.py.",
        "license": "MIT",
        "allowed_tools": ["Read", "Bash"],
        "metadata": {"version": "1"},
        "files": [{"path": "a.md", "content": "eA=="}, {"path": "scripts/read.py", "content": "AP8="}],
    }


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    ("files", "line", "said"),
    [
        ({"skills/pdf/read.py": "x"}, 0, "is missing"),
        ({"skills/pdf/SKILL.md": "---\nname: other\ndescription: d\n---\n"}, 2, "name"),
        ({"skills/pdf/SKILL.md": "no front matter"}, 0, "description"),
        ({"skills/pdf/SKILL.md": "---\ndescription: d\nfiles: []\n---\n"}, 3, "files"),
        ({"skills/pdf/SKILL.md": "---\ndescription: d\ncolour: red\n---\n"}, 3, "colour"),
        ({"skills/pdf/SKILL.md": "---\ndescription: [d]\n---\n"}, 2, "description"),
        ({"skills/pdf/SKILL.md": b"\n\n\xff"}, 3, "UTF-8"),
        ({"skills/pdf/SKILL.md": "---\ndescription: d\nmetadata:\n  password: x\n---\n"}, 4, "password"),
    ],
)
def test_a_fault_of_a_skill_is_told_by_line_and_spares_it(files: dict[str, Any], line: int, said: str) -> None:
    found = parsed(**files)
    assert found.contents == {}
    assert found.broken == {(EntityType.SKILL, "pdf")}
    (problem,) = found.problems
    assert (problem.path, problem.line) == ("skills/pdf/SKILL.md", line)
    assert said in problem.message


@pytest.mark.rule("C7")
def test_a_skill_in_one_file_and_one_in_a_folder_are_the_same_key() -> None:
    found = parsed(**{"skills/pdf.yaml": "description: d", "skills/pdf/SKILL.md": SKILL})
    assert [problem.message for problem in found.problems] == [
        "defines the same skill as skills/pdf.yaml, which counts"
    ]
    assert list(found.contents) == [(EntityType.SKILL, "pdf")]


@pytest.mark.rule("C7")
@pytest.mark.case("B85")
@pytest.mark.parametrize(
    ("path", "type"),
    [
        ("tools/x.yaml", EntityType.TOOL),
        ("agents/x.md", EntityType.AGENT),
        ("skills/x/SKILL.md", EntityType.SKILL),
        ("mcp_servers/x.yaml", EntityType.MCP_SERVER),
        ("defaults/x.yaml", EntityType.DEFAULTS),
    ],
)
def test_a_file_may_hide_what_its_scope_would_inherit(path: str, type: EntityType) -> None:
    text = "hidden: true"
    found = parsed(**{path: f"---\n{text}\n---\n" if path.endswith(".md") else text})
    assert found.problems == []
    content = found.contents[type, "x"]
    assert content.hidden
    assert content.definition == ""
    assert content.source.path == path


@pytest.mark.rule("C7")
def test_a_file_that_hides_defines_nothing() -> None:
    assert [line for line, _ in faults("tools/x.yaml", "description: d\nhidden: true")] == [2]
    assert [line for line, _ in faults("agents/x.md", "---\nhidden: true\n---\nBe brief.")] == [2]
    assert [line for line, _ in faults("tools/x.yaml", "hidden: false\npython: {entry_point: 'a:b'}")] == [1]


@pytest.mark.rule("C7")
def test_lists_maps_and_numbers_have_their_yaml_forms() -> None:
    assert body("defaults/d.yaml", "tools: [a, b]\nskills: []\nmiddleware: [{name: x, options: {n: 1}}]") == {
        "tools": {"values": ["a", "b"]},
        "skills": {},
        "middleware": {"values": [{"name": "x", "options_json": '{"n":1}'}]},
    }
    profile = "kind: k\ncpus: 2\nmemory_bytes: 9007199254740993\nlifetime: 90\nenvironment: {A: b}"
    assert body("sandbox_profiles/s.yaml", profile) == {
        "kind": "k",
        "cpus": 2,
        "memory_bytes": "9007199254740993",
        "lifetime": "90s",
        "environment": {"A": "b"},
    }
    server = "http:\n  url: https://x.example\n  headers: {X-A: b}\n  bearer_token_reference: env:T\ntools: [a]"
    assert body("mcp_servers/m.yaml", server)["tools"] == ["a"]


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    ("path", "content", "line"),
    [
        ("defaults/d.yaml", "max_steps: 1\ntools:\n  - a\n  - a", 4),
        ("sandbox_profiles/s.yaml", "kind: k\ncpus: many", 2),
        ("sandbox_profiles/s.yaml", "kind: k\nenvironment:\n  A: 1", 3),
        ("sandbox_profiles/s.yaml", "kind: k\nenvironment: [A]", 2),
        ("mcp_servers/m.yaml", "http:\n  url: https://x.example\n  headers:\n    Authorization: Bearer x", 4),
        ("custom_schemas/s.yaml", "schema:\n  type: nonsense", 1),
        ("agents/a.yaml", "middleware:\n  - name: x\n  - options: {}", 3),
    ],
)
def test_a_fault_inside_a_part_has_its_line(path: str, content: str, line: int) -> None:
    assert [found for found, _ in faults(path, content)] == [line]
