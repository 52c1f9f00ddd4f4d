"""LangGraph's questions as tickets, and tickets' answers as what `interrupt()` returns. Pure.

An answer goes to the interrupt whose id its ticket carries, and only while the loaded head still holds that interrupt
open (R10). LangGraph gives each `interrupt()` call of a task an id of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.types import Interrupt

from threadkeep._api.values import JSON, TEXT, strict_json
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import ticket_pb2

_KINDS = {
    "input": ticket_pb2.TICKET_KIND_INPUT,
    "approval": ticket_pb2.TICKET_KIND_APPROVAL,
    "auth": ticket_pb2.TICKET_KIND_AUTH,
}
MAX_DECISIONS = 16
"""The contract's bound of a ticket's allowed decisions."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What becomes of the questions that the head holds open."""

    answers: Mapping[str, Any]
    """Answers by interrupt id, for `Command(resume=...)`."""
    unasked: Sequence[Interrupt]
    """Questions that no ticket asks yet: they get tickets before any node runs."""


def resumption(open_interrupts: Iterable[Interrupt], answered: Iterable[ticket_pb2.Ticket]) -> Resumption:
    """Matches the open questions of the head with the run's answered tickets; the latest answer of an id counts."""
    tickets = {ticket.interrupt_id: ticket for ticket in answered if ticket.HasField("interrupt_id")}
    answers: dict[str, Any] = {}
    unasked = []
    for interrupt in open_interrupts:
        ticket = tickets.get(interrupt.id)
        if ticket is None:
            unasked.append(interrupt)
        else:
            answers[interrupt.id] = answer_value(ticket.answer, interrupt.value)
    return Resumption(answers, unasked)


def to_draft(interrupt: Interrupt) -> ticket_pb2.TicketDraft:
    """The ticket that asks a question.

    The prompt is the interrupt's value. A value that is a map may say more: `kind` ("input", "approval", "auth"),
    `allowed_decisions`, `answer_schema`, `assignee`; a request of HumanInTheLoopMiddleware says its decisions itself.
    """
    value = interrupt.value
    draft = ticket_pb2.TicketDraft(interrupt_id=interrupt.id, prompt=_prompt(value), kind=ticket_pb2.TICKET_KIND_INPUT)
    schema = interrupt.response_schema
    if isinstance(value, Mapping):
        decisions = _review_decisions(value) if _is_review(value) else _texts(value.get("allowed_decisions"))
        if decisions or _is_review(value):
            draft.kind = ticket_pb2.TICKET_KIND_APPROVAL
        draft.allowed_decisions.extend(decisions[:MAX_DECISIONS])
        kind = value.get("kind")
        draft.kind = _KINDS.get(kind, draft.kind) if isinstance(kind, str) else draft.kind
        schema = schema if schema is not None else value.get("answer_schema")
        assignee = value.get("assignee")
        if isinstance(assignee, str) and assignee:
            draft.assignee = assignee
    # Where there are decisions, the schema is of the value that may go with one, not of the whole answer.
    if isinstance(schema, Mapping | bool):
        draft.answer_schema_json = strict_json(schema)
    return draft


def answer_value(answer: ticket_pb2.TicketAnswer, question: Any) -> Any:
    """What `interrupt()` returns for an answer.

    A value alone is that value, null included; a decision alone is its name; both are `{"decision", "value"}`. For a
    request of HumanInTheLoopMiddleware they become the decisions that it expects.
    """
    has_value = answer.HasField("value_json")
    value = json.loads(answer.value_json) if has_value else None
    decision = answer.decision if answer.HasField("decision") else None
    if isinstance(question, Mapping) and _is_review(question):
        return _review_answer(decision, value, len(question["action_requests"]))
    if decision is None:
        return value
    return {"decision": decision, "value": value} if has_value else decision


def _is_review(value: Mapping[str, Any]) -> bool:
    """True for the request of LangChain's HumanInTheLoopMiddleware."""
    return isinstance(value.get("action_requests"), Sequence) and isinstance(value.get("review_configs"), Sequence)


def _review_decisions(value: Mapping[str, Any]) -> list[str]:
    """The decisions that every action under review allows, so that one decision can hold for all of them."""
    allowed: list[str] | None = None
    for config in value["review_configs"]:
        names = _texts(config.get("allowed_decisions"))
        allowed = names if allowed is None else [one for one in allowed if one in names]
    return allowed or []


def _review_answer(decision: str | None, value: Any, count: int) -> Any:
    if isinstance(value, Mapping) and "decisions" in value:
        return value
    if decision is None:
        return value
    details: dict[str, Any] = {}
    if isinstance(value, Mapping):
        details = dict(value)
    elif isinstance(value, str):
        details = {"message": value}
    return {"decisions": [{"type": decision, **details} for _ in range(count)]}


def _texts(value: Any) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return list(dict.fromkeys(one for one in value if isinstance(one, str) and one))


def _prompt(value: Any) -> payload_pb2.Payload:
    try:
        return payload_pb2.Payload(content_type=JSON, data=strict_json(value).encode())
    except (TypeError, ValueError):
        # What JSON can't hold is still shown to whoever answers.
        return payload_pb2.Payload(content_type=TEXT, data=repr(value).encode("utf-8", "replace"))
