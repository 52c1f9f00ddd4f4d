"""The servicer of ProjectionAdminService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import grpc

from threadkeep.projection.v1 import admin_service_pb2 as pb
from threadkeep.projection.v1 import admin_service_pb2_grpc
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.scope import current_call
from threadkeep_projection.service.convert import timestamp
from threadkeep_projection.service.rooms import Rooms

MAX_PAUSE = timedelta(days=365)
"""A pause for longer is one until Resume."""


class ProjectionAdminService(admin_service_pb2_grpc.ProjectionAdminServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms

    async def GetStatus(self, request: pb.GetStatusRequest, context: grpc.aio.ServicerContext) -> pb.GetStatusResponse:
        """See the contract."""
        response = pb.GetStatusResponse(poison_count=await self.rooms.following.poison_count())
        shares, now = await self.rooms.following.shares()
        for share in shares:
            shown = response.shares.add(
                share=share.share, cursor=share.cursor, applied_count=share.applied_count, owner=share.owner
            )
            shown.is_paused = share.is_paused
            if share.apply_time is not None:
                shown.apply_time.CopyFrom(timestamp(share.apply_time))
            if share.pause_expire_time is not None:
                shown.pause_expire_time.CopyFrom(timestamp(share.pause_expire_time))
            if share.reach_time is not None:
                shown.reach_time.CopyFrom(timestamp(share.reach_time))
                shown.lag.FromTimedelta(max(now - share.reach_time, timedelta()))
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

    async def Rebuild(
        self, request: pb.RebuildRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.RebuildResponse]:
        """See the contract."""
        frames = self.rooms.rebuilding.rebuild_many(
            current_call(),
            request,
            pb.RebuildResponse,
            lambda is_done, sessions, events, removed: pb.RebuildResponse(
                is_done=is_done, session_count=sessions, event_count=events, removed_count=removed
            ),
            everything=request.everything,
        )
        async for frame in frames:
            yield frame

    async def Pause(self, request: pb.PauseRequest, context: grpc.aio.ServicerContext) -> pb.PauseResponse:
        """See the contract."""
        duration = None
        if request.HasField("duration"):
            duration = timedelta(seconds=request.duration.seconds, microseconds=request.duration.nanos // 1000)
            if not timedelta() < duration <= MAX_PAUSE:
                raise FieldInvalid("duration", f"must lie above 0 and not above {MAX_PAUSE.days} days")

        def answer(expire: datetime | None) -> pb.PauseResponse:
            return pb.PauseResponse(pause_expire_time=None if expire is None else timestamp(expire))

        return await self.rooms.following.pause(current_call(), request, duration, pb.PauseResponse, answer)

    async def Resume(self, request: pb.ResumeRequest, context: grpc.aio.ServicerContext) -> pb.ResumeResponse:
        """See the contract."""
        return await self.rooms.following.resume(
            current_call(),
            request,
            pb.ResumeResponse,
            lambda was_paused: pb.ResumeResponse(was_paused=was_paused),
        )

    async def ListPoisonEvents(
        self, request: pb.ListPoisonEventsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListPoisonEventsResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        builder: PageBuilder[pb.PoisonEvent] = PageBuilder(page)
        wanted = request.session_id if request.HasField("session_id") else None
        for session_id, one in await rooms.reading.poison(call.scope_key, wanted, page.after, builder.wanted):
            shown = pb.PoisonEvent(
                session_id=session_id,
                sequence=one.sequence,
                type=one.type,
                reason=one.reason,
                create_time=timestamp(one.time),
            )
            if not builder.add(shown, (session_id, one.sequence)):
                break
        return pb.ListPoisonEventsResponse(
            events=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def RetryPoisonEvents(
        self, request: pb.RetryPoisonEventsRequest, context: grpc.aio.ServicerContext
    ) -> pb.RetryPoisonEventsResponse:
        """See the contract."""
        return await self.rooms.rebuilding.retry_poison(
            current_call(),
            request,
            request.session_id if request.HasField("session_id") else None,
            pb.RetryPoisonEventsResponse,
            lambda sessions, projected, has_more: pb.RetryPoisonEventsResponse(
                session_count=sessions, projected_count=projected, has_more=has_more
            ),
        )
