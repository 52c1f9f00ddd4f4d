"""The servicer of MessageService."""

from __future__ import annotations

import grpc

from threadkeep.projection.v1 import message_pb2, message_service_pb2_grpc
from threadkeep.projection.v1 import message_service_pb2 as pb
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.scope import current_call
from threadkeep_projection.domain.words import read_query
from threadkeep_projection.service.convert import match_to_proto, message_to_proto, wanted_freshness, wanted_roles
from threadkeep_projection.service.rooms import Rooms


class MessageService(message_service_pb2_grpc.MessageServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms

    async def ListMessages(
        self, request: pb.ListMessagesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListMessagesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        await rooms.freshness.wait(call, *wanted_freshness(request), request.session_id)
        builder: PageBuilder[message_pb2.Message] = PageBuilder(page)
        found = await rooms.reading.messages(
            call.scope_key,
            request.session_id,
            page.after,
            newest_first=request.newest_first,
            limit=builder.wanted,
        )
        for message in found:
            if not builder.add(message_to_proto(request.session_id, message), (message.message_id,)):
                break
        return pb.ListMessagesResponse(
            messages=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def SearchMessages(
        self, request: pb.SearchMessagesRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchMessagesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        roles = wanted_roles(request.roles)
        await rooms.freshness.wait(call, *wanted_freshness(request), request.session_id)
        builder: PageBuilder[pb.MessageMatch] = PageBuilder(page)
        query = read_query(request.query)
        found = await rooms.reading.search(
            call.scope_key,
            request.session_id,
            query,
            roles,
            page.after,
            newest_first=request.newest_first,
            limit=builder.wanted,
        )
        for message in found:
            if not builder.add(match_to_proto(request.session_id, message, query), (message.message_id,)):
                break
        return pb.SearchMessagesResponse(
            matches=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def GetMessage(
        self, request: pb.GetMessageRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetMessageResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        await rooms.freshness.wait(call, *wanted_freshness(request), request.session_id)
        found = await rooms.reading.message(call.scope_key, request.session_id, request.message_id)
        return pb.GetMessageResponse(message=message_to_proto(request.session_id, found))
