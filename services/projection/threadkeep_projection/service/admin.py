"""The servicer of ProjectionAdminService."""

from __future__ import annotations

import grpc

from threadkeep.projection.v1 import admin_service_pb2 as pb
from threadkeep.projection.v1 import admin_service_pb2_grpc
from threadkeep_chassis.scope import current_call
from threadkeep_projection.service.convert import timestamp
from threadkeep_projection.service.rooms import Rooms


class ProjectionAdminService(admin_service_pb2_grpc.ProjectionAdminServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms

    async def GetStatus(self, request: pb.GetStatusRequest, context: grpc.aio.ServicerContext) -> pb.GetStatusResponse:
        """See the contract."""
        response = pb.GetStatusResponse()
        for share in await self.rooms.following.shares():
            shown = response.shares.add(
                share=share.share, cursor=share.cursor, applied_count=share.applied_count, owner=share.owner
            )
            if share.apply_time is not None:
                shown.apply_time.CopyFrom(timestamp(share.apply_time))
        return response

    async def RebuildSession(
        self, request: pb.RebuildSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.RebuildSessionResponse:
        """See the contract."""
        return await self.rooms.rebuilding.rebuild_session(
            current_call(),
            request,
            request.session_id,
            pb.RebuildSessionResponse,
            lambda events, messages: pb.RebuildSessionResponse(event_count=events, message_count=messages),
        )
