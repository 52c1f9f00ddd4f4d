"""Answers to tickets are held against their schema and decisions (R10)."""

import json

import pytest

from threadkeep_runtime.domain.values import Answer
from threadkeep_runtime.service.answers import answer_problem, schema_problem

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
