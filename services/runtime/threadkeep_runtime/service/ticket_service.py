"""TicketService: read, list, resolve (R10)."""

from __future__ import annotations

from typing import Any

import grpc

from threadkeep.runtime.v1 import ticket_pb2, ticket_service_pb2, ticket_service_pb2_grpc
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.errors import TicketNotFound
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, fill, origin_of
from threadkeep_runtime.service.render import ticket_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.reads import ListQuery

pb = ticket_service_pb2


class TicketServicer(ticket_service_pb2_grpc.TicketServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def GetTicket(self, request: pb.GetTicketRequest, context: grpc.aio.ServicerContext) -> pb.GetTicketResponse:
        """Reads a ticket."""
        scope_key = current_call().scope_key
        async with self.rooms.database.read() as connection:
            ticket = await connection.run(lambda sync: reads.find_ticket(sync, scope_key, request.ticket_id))
        if ticket is None:
            raise TicketNotFound()
        return pb.GetTicketResponse(ticket=ticket_to_proto(ticket))

    async def ListTickets(
        self, request: pb.ListTicketsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListTicketsResponse:
        """Lists tickets, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        states = parse.states_of(request, ticket_pb2.TicketState, "TICKET_STATE_")
        thread_key = parse.session_filter(call.scope_key, request)

        def query(count: int, after: tuple[Any, ...] | None) -> ListQuery:
            return ListQuery(
                call.scope_key,
                count,
                after,
                thread_key=thread_key,
                task_id=request.task_id if request.HasField("task_id") else None,
                states=states,
            )

        builder = await fill(
            self.rooms.database,
            page,
            query,
            reads.list_tickets,
            ticket_to_proto,
            lambda ticket: (ticket.create_time, ticket.ticket_id),
        )
        return pb.ListTicketsResponse(
            tickets=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def ResolveTicket(
        self, request: pb.ResolveTicketRequest, context: grpc.aio.ServicerContext
    ) -> pb.ResolveTicketResponse:
        """Answers a ticket."""
        call = current_call()
        given = parse.answer_of(request.answer)

        def render(applied: Applied) -> bytes:
            (ticket,) = (one for one in applied.decision.closed_tickets if one.ticket_id == request.ticket_id)
            return pb.ResolveTicketResponse(
                ticket=ticket_to_proto(ticket), receipt=self.rooms.receipts.render(applied)
            ).SerializeToString()

        outcome = await self.rooms.commands.resolve_ticket(
            origin_of(call, request, parse.actor_of(request.actor)), request.ticket_id, given, render
        )
        return answer(call, outcome, pb.ResolveTicketResponse)
