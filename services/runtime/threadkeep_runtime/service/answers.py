"""JSON Schemas of tickets: are they schemas, and does an answer match (R10)."""

from __future__ import annotations

import jsonschema
from jsonschema.validators import Draft202012Validator
from referencing import Registry

from threadkeep_chassis.canonical import parse_json
from threadkeep_runtime.domain.values import Answer, Ticket

_NOTHING_REMOTE: Registry = Registry()
"""A reference to another document is refused: a server fetches nothing that a schema names."""


def schema_problem(schema_json: str) -> str | None:
    """What is wrong with a schema, in words, or None."""
    schema = parse_json(schema_json)
    if not isinstance(schema, (dict, bool)):
        return "must be a JSON Schema: an object, true or false"
    try:
        Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"must be a JSON Schema (2020-12): {error.json_path} {_short(error)}"
    return None


def answer_problem(
    answer: Answer, allowed_decisions: tuple[str, ...], schema_json: str | None, field: str
) -> tuple[str, str] | None:
    """(field, rule broken) if the answer does not match, else None. The rule never quotes the answer (X11)."""
    if allowed_decisions and answer.decision is None:
        return f"{field}.decision", "is required: one of the ticket's allowed decisions"
    if allowed_decisions and answer.decision not in allowed_decisions:
        return f"{field}.decision", "must be one of the ticket's allowed decisions"
    if not allowed_decisions and answer.decision is not None:
        return f"{field}.decision", "must be absent: the ticket asks for no decision"
    if answer.value_json is None:
        return None if allowed_decisions else (f"{field}.value_json", "is required: the ticket asks for no decision")
    if schema_json is None:
        return None
    validator = Draft202012Validator(parse_json(schema_json), registry=_NOTHING_REMOTE)
    try:
        error = next(iter(validator.iter_errors(parse_json(answer.value_json))), None)
    except Exception:  # a reference that leads nowhere, a pattern that Python does not know
        return f"{field}.value_json", "can't be held against the ticket's schema"
    if error is None:
        return None
    return f"{field}.value_json", f"must match the ticket's schema: {error.json_path} breaks {error.validator}"


def check_answer(ticket: Ticket, answer: Answer) -> tuple[str, str] | None:
    """(field, rule broken) if the answer does not match its ticket, else None."""
    return answer_problem(answer, ticket.allowed_decisions, ticket.answer_schema_json, "answer")


def _short(error: jsonschema.SchemaError) -> str:
    return f"breaks {error.validator}"
