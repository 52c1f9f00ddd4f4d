"""Files of definitions (C7): what they say, and each fault with its line."""

from itertools import pairwise

import pytest

from threadkeep_chassis.limits import Limit, Limits
from threadkeep_config import files
from threadkeep_config.domain.values import EntityType
from threadkeep_config.files import parse_set
from threadkeep_config.wire import definition_of

LIMITS = Limits(Limit("max_definition_bytes", 2_000_000, "Split it."))


def parse_one(path: str, content: str | bytes) -> files.ParsedSet:
    """Parses a set of one file."""
    return parse_set([(path, content.encode() if isinstance(content, str) else content)], LIMITS)


def faults(path: str, content: str | bytes) -> list[tuple[int, str]]:
    """The problems of one file; it is spared, unless its path says nothing."""
    parsed = parse_one(path, content)
    assert parsed.contents == {}
    assert {problem.path for problem in parsed.problems} == {path}
    return [(problem.line, problem.message) for problem in parsed.problems]


def body(path: str, content: str | bytes) -> dict[str, object]:
    """The definition of one file without faults."""
    parsed = parse_one(path, content)
    assert parsed.problems == []
    (content_of_file,) = parsed.contents.values()
    (found,) = definition_of(content_of_file.definition).values()
    return found


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Be brief.", {"system_prompt": "Be brief."}),
        ("---\nmodel: m\n---\nBe brief.\n\n", {"model": "m", "system_prompt": "Be brief."}),
        ("---\r\nmodel: m\r\n---\r\nOne\r\ntwo\r\n", {"model": "m", "system_prompt": "One\r\ntwo"}),
        ("\ufeff---\nmodel: m\n---\nx", {"model": "m", "system_prompt": "x"}),
        ("---\n---\n", {}),
        ("---\n# nothing\n---\ntext\n---\nmore", {"system_prompt": "text\n---\nmore"}),
        ("--- not front matter", {"system_prompt": "--- not front matter"}),
        ("", {}),
        ("---\ntools: []\nprovider:\n---\n", {}),
        ("---\ntools: [b, a]\nmax_steps: 0x10\n---\n", {"tools": ["b", "a"], "max_steps": 16}),
    ],
)
def test_markdown_is_front_matter_and_a_system_prompt(content: str, expected: dict[str, object]) -> None:
    assert body("agents/clerk.md", content) == expected


@pytest.mark.rule("C7", "X8")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "options: {seed: 9007199254740993, t: 1.0, n: null, b: [true, no]}",
            '{"b":[true,"no"],"n":null,"seed":9007199254740993,"t":1.0}',
        ),
        ('options_json: \'{"b":1,"a":2}\'', '{"a":2,"b":1}'),
        ("options: {day: 2026-01-02, time: 12:30:00, v: '1'}", '{"day":"2026-01-02","time":"12:30:00","v":"1"}'),
        ("options:\n  a: &x [1]\n  b: *x", '{"a":[1],"b":[1]}'),
    ],
)
def test_json_fields_may_be_written_as_yaml(content: str, expected: str) -> None:
    assert body("providers/p.yaml", f"type: scripted\n{content}") == {"type": "scripted", "options_json": expected}


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    ("written", "expected"), [("30", "30s"), ("1.5", "1.500s"), ("'90s'", "90s"), ("0.5s", "0.500s")]
)
def test_a_duration_is_a_number_of_seconds(written: str, expected: str) -> None:
    assert body("providers/p.yaml", f"type: openai\ntimeout: {written}")["timeout"] == expected


@pytest.mark.rule("C7", "C1")
@pytest.mark.parametrize(
    ("path", "content", "line", "says"),
    [
        ("providers/p.yaml", "type: a\nmodel: [x]\n", 2, "model: must be text"),
        ("providers/p.yaml", "type: a\nmodel: 5\n", 2, "quotes"),
        ("providers/p.yaml", "model: x\n", 0, "type: is required"),
        ("providers/p.yaml", "type: ''\n", 1, "type: is required"),
        ("providers/p.yaml", "type: a\n\nnope: 1\n", 3, "nope: is not a field"),
        ("providers/p.yaml", "type: a\nmax_retries: 11\n", 2, "max_retries: must be from 0 to 10"),
        ("providers/p.yaml", "type: a\nmax_retries: many\n", 2, "whole number"),
        ("providers/p.yaml", "type: a\nmax_retries: 99999999999\n", 2, "whole number"),
        ("providers/p.yaml", "type: a\nmax_retries: true\n", 2, "whole number"),
        ("providers/p.yaml", "type: a\ntimeout: soon\n", 2, "timeout: must be a number of seconds"),
        ("providers/p.yaml", "type: a\ntimeout: 7200\n", 2, "timeout: must be from 1 ms to 1 h"),
        ("providers/p.yaml", "type: a\nendpoint: x\n", 2, "endpoint: must be an http or https URL"),
        (
            "providers/p.yaml",
            "type: a\nmodel: m\napi_key_reference: hunter2\n",
            3,
            "api_key_reference: must be a reference",
        ),
        ("providers/p.yaml", "type: a\noptions:\n  x: 1\n  headers:\n    Authorization: hunter2\n", 5, "Authorization"),
        ("providers/p.yaml", "type: a\noptions: {x: .nan}\n", 2, "NaN"),
        ("providers/p.yaml", "type: a\noptions: [1]\n", 2, "options_json: must be a JSON object"),
        ("providers/p.yaml", "type: a\noptions_json: '{'\n", 2, "options_json: must be a JSON document"),
        ("providers/p.yaml", "type: a\noptions: {}\noptions_json: '{}'\n", 3, "set twice"),
        ("providers/p.yaml", "type: a\ntype: b\n", 2, "type is there twice"),
        ("providers/p.yaml", "type: a\n  model: b\n", 2, "is not YAML"),
        ("providers/p.yaml", "type: 'a\n\nmodel: b", 3, "is not YAML"),
        ("providers/p.yaml", "type: !!python/object/apply:os.system ['x']\n", 1, "tags are not accepted"),
        ("providers/p.yaml", "type: !secret x\n", 1, "tags are not accepted"),
        ("providers/p.yaml", "a: &a {type: x}\n<<: *a\n", 2, "plain text"),
        ("providers/p.yaml", "[1]: x\n", 1, "plain text"),
        ("providers/p.yaml", "- type\n", 1, "must be a mapping"),
        ("providers/p.yaml", "just text", 1, "must be a mapping"),
        ("providers/p.yaml", "type: a\n---\ntype: b\n", 2, "is not YAML"),
        ("providers/p.yaml", b"type: a\nmodel: \xff\n", 2, "is not UTF-8"),
        ("providers/p.yaml", 'type: a\nmodel: "a\\0b"\n', 2, "model: must not hold"),
        ("tools/t.yaml", "description: x\n", 0, "python: is required"),
        ("tools/t.yaml", "python: {}\n", 1, "python.entry_point: is required"),
        ("tools/t.yaml", "python:\n  entry_point: os.system\n", 2, "package.module:attribute"),
        ("tools/t.yaml", "python:\n  entry_point: a:b\n  module: c\n", 3, "python.module: is not a field"),
        (
            "tools/t.yaml",
            "python: {entry_point: 'a:b'}\nargs_schema:\n  type: objekt\n",
            2,
            "args_schema_json: must be a JSON schema",
        ),
        ("tools/t.yaml", "python: {entry_point: 'a:b'}\napproval_required: 1\n", 2, "true or false"),
        ("agents/a.yaml", "tools:\n  - x\n  - y\n  - x\n", 4, "tools[2]: must not be named twice"),
        ("agents/a.yaml", "tools: x\n", 1, "must be a list"),
        ("agents/a.yaml", "max_steps: 0\n", 1, "max_steps: must be at least 1"),
        ("agents/a.md", "---\nprovider: p\nmax_steps: 0\n---\ntext", 3, "max_steps: must be at least 1"),
        ("agents/a.md", "---\nsystem_prompt: x\n---\ntext", 2, "below the front matter"),
        ("agents/a.md", "---\nprovider: p\ntext", 1, "no closing line"),
        ("agents/a.md", "---\nprovider: [\n---\ntext", 3, "is not YAML"),
    ],
)
def test_a_fault_is_told_with_its_line_and_field(path: str, content: str | bytes, line: int, says: str) -> None:
    found = faults(path, content)
    assert [fault[0] for fault in found] == [line], found
    assert says in found[0][1]
    assert "hunter2" not in found[0][1]
    assert parse_one(path, content).broken


@pytest.mark.rule("C7")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "README.md",
            "agents/a.txt",
            "agents/a.yml",
            "tools/a.md",
            "tools/a/b.yaml",
            "nowhere/a.yaml",
            "skills/a/../b",
            "agents/.yaml",
        ),
        *("agents/", "/agents/a.md", "./agents/a.md", "agents/../a.md", "agents//a.md", "agents/..md", "agents\\a.md"),
    ],
)
def test_a_path_that_names_no_definition_is_told(path: str) -> None:
    parsed = parse_one(path, "x")
    assert [(problem.path, problem.line) for problem in parsed.problems] == [(path, 0)]
    assert not parsed.broken
    assert not parsed.contents


@pytest.mark.rule("C7")
def test_of_two_files_of_one_agent_the_first_counts_and_the_other_is_told() -> None:
    parsed = parse_set([("agents/a.yaml", b"model: y"), ("agents/a.md", b"hi")], LIMITS)
    assert parsed.contents[EntityType.AGENT, "a"].source.path == "agents/a.md"
    assert [problem.path for problem in parsed.problems] == ["agents/a.yaml"]
    assert not parsed.broken


@pytest.mark.rule("X9")
def test_a_definition_that_is_too_large_is_told() -> None:
    parsed = parse_set([("agents/a.md", b"x" * 200)], Limits(Limit("max_definition_bytes", 100, "Split it.")))
    assert [(problem.line, "max_definition_bytes" in problem.message) for problem in parsed.problems] == [(0, True)]
    assert parsed.broken == {(EntityType.AGENT, "a")}


def billion_laughs() -> str:
    """Nine lists, each of ten times the one before."""
    lines = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    for before, name in pairwise("abcdefghi"):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.rule("X9", "C7")
def test_of_a_file_full_of_faults_the_first_are_told() -> None:
    parsed = parse_set([("agents/a.yaml", "\n".join(f"k{n}: v" for n in range(100)).encode())], LIMITS)
    assert [problem.line for problem in parsed.problems] == list(range(1, 21))


@pytest.mark.rule("X9")
@pytest.mark.parametrize(
    "content",
    [
        billion_laughs(),
        "options: " + "[" * 500 + "]" * 500,
        "options: " + "{a: " * 100 + "1" + "}" * 100,
        "a: &a [*a]",
        "options: " + "[" * 100_000,
        "options: " + "{" * 100_000,
        "\n".join(f"k{n}: v" for n in range(10_000)),
    ],
    ids=["billion laughs", "deep lists", "deep mappings", "itself", "open lists", "open mappings", "many names"],
)
def test_a_file_that_would_explode_is_refused(content: str) -> None:
    (fault,) = faults("providers/p.yaml", content)
    assert "nested deeper" in fault[1] or "holds more than" in fault[1] or "is not YAML" in fault[1]


@pytest.mark.rule("C7")
def test_problems_come_by_path_and_line() -> None:
    parsed = parse_set([("tools/b.yaml", b"x: 1\ny: 2"), ("README.md", b""), ("tools/a.yaml", b"- 1")], LIMITS)
    assert [(problem.path, problem.line) for problem in parsed.problems] == [
        ("README.md", 0),
        ("tools/a.yaml", 1),
        ("tools/b.yaml", 1),
        ("tools/b.yaml", 2),
    ]
