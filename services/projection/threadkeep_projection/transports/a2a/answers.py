"""A message as the answer to a ticket. Pure."""

from __future__ import annotations

from typing import Any

from a2a.types import a2a_pb2

from threadkeep.runtime.v1 import ticket_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_projection.transports.a2a.parts import MOST_PARTS, dump, payload_part, plain_value, struct_of

PARTS = "message.parts"


def answer_of(ticket: ticket_pb2.Ticket, message: a2a_pb2.Message) -> ticket_pb2.TicketAnswer:
    """What the message's parts say to the ticket. Raises FieldInvalid.

    A ticket with decisions takes one of them as a text, followed by a value if there is one, or the data
    `{"decision": ..., "value": ...}`. Any other takes the one part as its value, several as a list.
    """
    values = [plain_value(part, f"{PARTS}[{index}]") for index, part in enumerate(message.parts)]
    if not 1 <= len(values) <= MOST_PARTS:
        raise FieldInvalid(PARTS, f"holds 1 to {MOST_PARTS} parts, not {len(values)}")
    if not ticket.allowed_decisions:
        return ticket_pb2.TicketAnswer(value_json=dump(values[0] if len(values) == 1 else values))
    first, rest = values[0], values[1:]
    if isinstance(first, dict) and "decision" in first and set(first) <= {"decision", "value"} and not rest:
        rest = [first["value"]] if "value" in first else []
        first = first["decision"]
    decision = _decision(first, list(ticket.allowed_decisions))
    if not rest:
        return ticket_pb2.TicketAnswer(decision=decision)
    return ticket_pb2.TicketAnswer(decision=decision, value_json=dump(rest[0] if len(rest) == 1 else rest))


def _decision(said: Any, allowed: list[str]) -> str:
    meant = said.strip().casefold() if isinstance(said, str) else None
    for one in allowed:
        if said == one or meant == one.casefold():
            return one
    raise FieldInvalid(PARTS, f"must begin with one of the decisions {', '.join(allowed)}"[:512])


def question_part(ticket: ticket_pb2.Ticket) -> a2a_pb2.Part:
    """What a ticket asks, with what its answer may be in the metadata."""
    shown = payload_part(ticket.prompt) if ticket.HasField("prompt") else a2a_pb2.Part(text="An answer is needed.")
    facts: dict[str, Any] = {
        "ticket_id": ticket.ticket_id,
        "kind": ticket_pb2.TicketKind.Name(ticket.kind).removeprefix("TICKET_KIND_").lower(),
    }
    if ticket.allowed_decisions:
        facts["allowed_decisions"] = list(ticket.allowed_decisions)
    if ticket.HasField("answer_schema_json"):
        facts["answer_schema_json"] = ticket.answer_schema_json
    if ticket.HasField("deadline"):
        facts["deadline"] = ticket.deadline.ToJsonString()
    shown.metadata.CopyFrom(struct_of(facts))
    return shown
