"""JSON Schemas of tickets: are they schemas, and does an answer match (R10).

Schemas and answers come from others, so what holding one against the other costs is bounded: see the chassis'
`bounded_schemas`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jsonschema
from jsonschema.validators import Draft202012Validator

from threadkeep_chassis.bounded_schemas import TooCostly, first_error, one_budget, unbounded_part
from threadkeep_chassis.canonical import parse_json
from threadkeep_runtime.domain.values import Answer, Ticket

P = ParamSpec("P")
T = TypeVar("T")


def schema_problem(schema_json: str) -> str | None:
    """What is wrong with a schema, in words, or None."""
    schema = parse_json(schema_json)
    if not isinstance(schema, (dict, bool)):
        return "must be a JSON Schema: an object, true or false"
    try:
        Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"must be a JSON Schema (2020-12): {error.json_path} {_short(error)}"
    except RecursionError:
        return "must be a JSON Schema that is nested less deeply"
    return unbounded_part(schema)


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
    rule = breach(parse_json(schema_json), parse_json(answer.value_json), "the ticket's schema")
    return None if rule is None else (f"{field}.value_json", rule)


def breach(schema: Any, value: Any, name: str) -> str | None:
    """What a value breaks of a schema that is called so, in words that don't quote the value (X11), or None."""
    try:
        error = first_error(schema, value)
    except TooCostly:
        return f"takes too many steps to hold against {name}; make it smaller"
    except Exception:  # a reference that leads nowhere, or in circles
        return f"can't be held against {name}"
    return None if error is None else f"must match {name}: {error.json_path} breaks {error.validator}"


def check_answer(ticket: Ticket, answer: Answer) -> tuple[str, str] | None:
    """(field, rule broken) if the answer does not match its ticket, else None."""
    return answer_problem(answer, ticket.allowed_decisions, ticket.answer_schema_json, "answer")


def bounded(check: Callable[P, T], steps: int) -> Callable[P, T]:
    """The check at the cost of so many steps at most (X9)."""

    @wraps(check)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with one_budget(steps):
            return check(*args, **kwargs)

    return run


def _short(error: jsonschema.SchemaError) -> str:
    return f"breaks {error.validator}"
