"""Answers to tickets are held against their schema and decisions (R10)."""

import json

import pytest

from threadkeep_runtime.domain.values import Answer
from threadkeep_runtime.service.answers import answer_problem, bounded, schema_problem

NUMBER = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


@pytest.mark.rule("R10")
@pytest.mark.parametrize(
    ("answer", "decisions", "schema", "field"),
    [
        (Answer("yes", None), ("yes", "no"), None, None),
        (Answer("yes", '{"n": 1}'), ("yes",), NUMBER, None),
        (Answer(None, "null"), (), None, None),
        (Answer(None, '{"n": 12345678901234567890}'), (), NUMBER, None),
        (Answer("maybe", None), ("yes", "no"), None, "answer.decision"),
        (Answer(None, "1"), ("yes", "no"), None, "answer.decision"),
        (Answer("yes", "1"), (), None, "answer.decision"),
        (Answer(None, None), (), None, "answer.value_json"),
        (Answer(None, '{"n": "1"}'), (), NUMBER, "answer.value_json"),
        (Answer(None, "{}"), (), NUMBER, "answer.value_json"),
        (Answer("yes", "null"), ("yes",), NUMBER, "answer.value_json"),
        (Answer(None, "1"), (), '{"$ref": "https://example.com/schema"}', "answer.value_json"),
        (Answer(None, "1"), (), '{"$ref": "#/nowhere"}', "answer.value_json"),
        (Answer(None, '"x"'), (), "true", None),
        (Answer(None, '"x"'), (), "false", "answer.value_json"),
    ],
)
def test_an_answer_matches_or_the_field_that_does_not_is_named(
    answer: Answer, decisions: tuple[str, ...], schema: str | None, field: str | None
) -> None:
    problem = answer_problem(answer, decisions, schema, "answer")
    assert (None if problem is None else problem[0]) == field


@pytest.mark.rule("R10", "X11")
def test_a_refusal_never_quotes_the_answer() -> None:
    problem = answer_problem(Answer(None, json.dumps({"n": "my secret"})), (), NUMBER, "answer")
    assert problem is not None
    assert "secret" not in problem[1]


@pytest.mark.rule("R10")
@pytest.mark.parametrize(
    ("schema", "is_schema"),
    [(NUMBER, True), ("true", True), ("{}", True), ('{"type": "number?"}', False), ("3", False), ("[]", False)],
)
def test_only_a_json_schema_is_a_schema(schema: str, is_schema: bool) -> None:
    assert (schema_problem(schema) is None) == is_schema


DRAFT_07 = "http://json-schema.org/draft-07/schema#"


def ladder(keyword: str, leaf: str) -> str:
    """A schema of 25 short steps that a plain walk takes 2 ** 25 ways through."""
    steps = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)}
    return json.dumps({"$defs": {**steps, "d25": {"type": leaf}}, "$ref": "#/$defs/d0"})


@pytest.mark.rule("X9", "R10")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 64 + "!"),
        ({"pattern": "(.*)*x(.*)*y$"}, "x" * 50_000),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 64 + "!": 1}),
        (
            {"$schema": DRAFT_07, "$defs": {"s": {"pattern": "^(a+)+$"}}, "$ref": "#/$defs/s"},
            "a" * 64 + "!",
        ),
        ({"items": {"enum": list(range(5000))}}, [-1 - n for n in range(5000)]),
        ({"uniqueItems": True}, [{"n": n // 2} for n in range(4000)]),
    ],
)  # fmt: skip
def test_no_schema_makes_an_answer_costly(schema: dict[str, object], value: object) -> None:
    assert schema_problem(json.dumps(schema)) is None
    problem = answer_problem(Answer(None, json.dumps(value)), (), json.dumps(schema), "answer")
    assert problem is not None
    assert problem[0] == "answer.value_json"


@pytest.mark.rule("X9", "R10")
@pytest.mark.parametrize("schema", [ladder("anyOf", "string"), ladder("allOf", "integer"), ladder("oneOf", "integer")])
def test_a_schema_with_too_many_ways_through_it_is_given_up(schema: str) -> None:
    problem = answer_problem(Answer(None, "1"), (), schema, "answer")
    assert problem is not None
    assert "too many steps" in problem[1]


@pytest.mark.rule("X9", "R10")
@pytest.mark.parametrize(
    "schema",
    [
        '{"pattern": "(?=x)"}',
        '{"pattern": "((a{1000}){1000}){1000}"}',
        '{"properties": {"a": {"patternProperties": {"(a)\\\\1": true}}}}',
        '{"patternProperties": {"a": true}, "unevaluatedProperties": false}',
        '{"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}',
        '{"not":' * 190 + "{}" + "}" * 190,
    ],
)
def test_a_schema_whose_cost_has_no_bound_is_refused(schema: str) -> None:
    assert schema_problem(schema) is not None


@pytest.mark.rule("R10")
@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"x1": 1}, True),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, {"x1": "1"}, False),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"y": 1}, False),
        ({"properties": {"y": True}, "additionalProperties": {"type": "string"}}, {"y": 1, "z": "a"}, True),
        ({"properties": {"y": True}, "additionalProperties": {"type": "string"}}, {"y": 1, "z": 2}, False),
        ({"pattern": "^\\d{4}-\\d{2}$"}, "2026-01", True),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "b"}, 7, True),
        ({"uniqueItems": True}, [1, True, "1", [1]], True),
        ({"uniqueItems": True}, [1, 1.0], False),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"unevaluatedProperties": False, "properties": {"a": True}}, {"a": 1}, True),
        ({"unevaluatedProperties": False, "properties": {"a": True}}, {"b": 1}, False),
    ],
)
def test_the_keywords_mean_what_json_schema_says(schema: dict[str, object], value: object, fits: bool) -> None:
    assert schema_problem(json.dumps(schema)) is None
    assert (answer_problem(Answer(None, json.dumps(value)), (), json.dumps(schema), "answer") is None) == fits


@pytest.mark.rule("X9", "R10")
def test_the_budget_of_a_check_is_a_setting() -> None:
    schema, value = '{"items": {"type": "integer"}}', json.dumps(list(range(100)))
    check = (Answer(None, value), (), schema, "answer")
    assert answer_problem(*check) is None
    assert bounded(answer_problem, 1000)(*check) is None
    problem = bounded(answer_problem, 10)(*check)
    assert problem is not None
    assert "too many steps" in problem[1]
