"""Tickets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadkeep._api.values import UNSET, given, to_answer
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import ticket_pb2, ticket_service_pb2
from threadkeep.runtime.v1.ticket_pb2 import Ticket

_GET = method(ticket_service_pb2, "TicketService", "GetTicket")
_LIST = method(ticket_service_pb2, "TicketService", "ListTickets")
_RESOLVE = method(ticket_service_pb2, "TicketService", "ResolveTicket")


def get(ticket_id: str) -> Call[Ticket]:
    """Reads a ticket. Raises TicketNotFound."""
    return Call(_GET, ticket_service_pb2.GetTicketRequest(ticket_id=ticket_id), lambda response: response.ticket)


def list(
    *,
    session_id: str | None = None,
    task_id: str | None = None,
    states: Sequence[ticket_pb2.TicketState.ValueType] = (),
    page_size: int = 0,
) -> PagedCall[Ticket]:
    """Tickets of the scope, newest first."""
    request = ticket_service_pb2.ListTicketsRequest(
        page_size=page_size, states=states, **given(session_id=session_id, task_id=task_id)
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.tickets)


def resolve(
    ticket_id: str,
    value: Any = UNSET,
    *,
    decision: str | None = None,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[ticket_service_pb2.ResolveTicketResponse]:
    """Answers a ticket; gives `ticket` and `receipt`. `value` None is the answer null. Raises TicketNotFound,
    TicketNotOpen, TicketAnswerInvalid."""
    request = ticket_service_pb2.ResolveTicketRequest(
        request_id=request_id or new_request_id(),
        ticket_id=ticket_id,
        answer=to_answer(value, decision),
        **given(actor=actor),
    )
    # An answer without decision and value is still an answer that the server must see, to refuse it by name.
    request.answer.SetInParent()
    return Call(_RESOLVE, request, whole)
