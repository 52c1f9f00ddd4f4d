"""Questions as tickets, answers as values: by interrupt id, and only while the question is open."""

import json
from typing import Any

import pytest
from langgraph.types import Interrupt

from threadkeep._api.values import to_answer
from threadkeep.runtime.v1 import ticket_pb2
from threadkeep.worker import interrupts

REVIEW = {
    "action_requests": [{"name": "send", "args": {}}, {"name": "drop", "args": {}}],
    "review_configs": [
        {"action_name": "send", "allowed_decisions": ["approve", "edit", "reject"]},
        {"action_name": "drop", "allowed_decisions": ["reject", "approve"]},
    ],
}


def _ticket(interrupt_id: str | None, answer: ticket_pb2.TicketAnswer) -> ticket_pb2.Ticket:
    ticket = ticket_pb2.Ticket(ticket_id=f"k-{interrupt_id}", answer=answer)
    if interrupt_id is not None:
        ticket.interrupt_id = interrupt_id
    return ticket


@pytest.mark.rule("R10")
def test_an_answer_goes_to_the_open_question_of_its_id_alone() -> None:
    answered = [_ticket("q1", to_answer("one")), _ticket("gone", to_answer("late")), _ticket(None, to_answer("no id"))]
    found = interrupts.resumption([Interrupt("?", "q1"), Interrupt("?", "q2")], answered)
    assert found.answers == {"q1": "one"}
    assert [one.id for one in found.unasked] == ["q2"]


@pytest.mark.rule("R10")
def test_no_answer_is_left_for_a_question_that_is_not_open() -> None:
    found = interrupts.resumption([], [_ticket("q1", to_answer("one"))])
    assert (found.answers, found.unasked) == ({}, [])


@pytest.mark.rule("R10")
@pytest.mark.case("B71")
def test_null_is_delivered_as_null() -> None:
    found = interrupts.resumption([Interrupt("?", "q1")], [_ticket("q1", to_answer(None))])
    assert found.answers == {"q1": None}


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (to_answer("yes"), "yes"),
        (to_answer({"id": None}), {"id": None}),
        (to_answer(decision="approve"), "approve"),
        (to_answer(3, "approve"), {"decision": "approve", "value": 3}),
    ],
)
def test_a_plain_question_gets_value_decision_or_both(answer: Any, value: Any) -> None:
    assert interrupts.answer_value(answer, {"q": 1}) == value


@pytest.mark.parametrize(
    ("answer", "decisions"),
    [
        (to_answer(decision="approve"), [{"type": "approve"}] * 2),
        (to_answer("too late", "reject"), [{"type": "reject", "message": "too late"}] * 2),
        (to_answer({"message": "no"}, "reject"), [{"type": "reject", "message": "no"}] * 2),
        (
            to_answer({"decisions": [{"type": "approve"}, {"type": "reject"}]}),
            [{"type": "approve"}, {"type": "reject"}],
        ),
    ],
)
def test_a_review_gets_the_decisions_that_its_middleware_expects(answer: Any, decisions: Any) -> None:
    assert interrupts.answer_value(answer, REVIEW) == {"decisions": decisions}


@pytest.mark.rule("R10")
def test_a_review_asks_for_approval_with_the_decisions_that_all_actions_allow() -> None:
    draft = interrupts.to_draft(Interrupt(REVIEW, "q1"))
    assert draft.kind == ticket_pb2.TICKET_KIND_APPROVAL
    assert [*draft.allowed_decisions] == ["approve", "reject"]
    assert draft.interrupt_id == "q1"
    assert json.loads(draft.prompt.data) == REVIEW


@pytest.mark.rule("R10")
def test_a_question_may_say_what_it_takes() -> None:
    value = {"kind": "auth", "answer_schema": {"type": "string"}, "assignee": "ada", "text": "log in"}
    draft = interrupts.to_draft(Interrupt(value, "q1"))
    assert draft.kind == ticket_pb2.TICKET_KIND_AUTH
    assert json.loads(draft.answer_schema_json) == {"type": "string"}
    assert draft.assignee == "ada"
    plain = interrupts.to_draft(Interrupt("how old?", "q2", response_schema={"type": "integer"}))
    assert (plain.kind, plain.prompt.data) == (ticket_pb2.TICKET_KIND_INPUT, b'"how old?"')
    assert json.loads(plain.answer_schema_json) == {"type": "integer"}
    chosen = interrupts.to_draft(Interrupt({"allowed_decisions": ["left", "right"]}, "q3"))
    assert chosen.kind == ticket_pb2.TICKET_KIND_APPROVAL


def test_a_question_that_json_can_not_hold_is_shown_as_text() -> None:
    draft = interrupts.to_draft(Interrupt({"at": object()}, "q1"))
    assert draft.prompt.content_type == "text/plain"
