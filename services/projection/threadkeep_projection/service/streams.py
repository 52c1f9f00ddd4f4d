"""The servicer of StreamService."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from threadkeep.projection.v1 import stream_service_pb2 as pb
from threadkeep.projection.v1 import stream_service_pb2_grpc
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.scope import current_call
from threadkeep_projection.service.rooms import Rooms

_FIELDS = {
    event_pb2.Event: "event",
    event_pb2.LiveObservation: "live",
    event_pb2.LiveGap: "gap",
    event_pb2.Bookmark: "bookmark",
}


class StreamService(stream_service_pb2_grpc.StreamServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open = 0

    async def SubscribeSession(
        self, request: pb.SubscribeSessionRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SubscribeSessionResponse]:
        """See the contract."""
        if request.visibility not in event_pb2.Visibility.values():
            raise FieldInvalid("visibility", "is none that this server knows")
        self._limits.check("max_subscriptions", self._open + 1)
        self._open += 1
        try:
            frames = self.rooms.streaming.relay(
                current_call(),
                request.session_id,
                after=request.after,
                visibility=request.visibility,
                committed_only=request.committed_only,
                until_task_id=request.until_task_id if request.HasField("until_task_id") else None,
            )
            try:
                async for frame in frames:
                    response = pb.SubscribeSessionResponse(cursor=frame.cursor)
                    getattr(response, _FIELDS[type(frame.content)]).CopyFrom(frame.content)
                    yield response
            finally:
                await frames.aclose()  # type: ignore[attr-defined]
        finally:
            self._open -= 1
