"""The servicer of StreamService."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc

from threadkeep.projection.v1 import stream_service_pb2 as pb
from threadkeep.projection.v1 import stream_service_pb2_grpc
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.scope import current_call
from threadkeep_projection.commands.streaming import GRPC, wanted_stream
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

    async def SubscribeSession(  # type: ignore[override]
        self, request: pb.SubscribeSessionRequest, context: grpc.aio.ServicerContext
    ) -> None:
        """Writes frames itself, so that a write that waits for a slow reader can be given up."""
        wanted, streaming = wanted_stream(request), self.rooms.streaming
        with streaming.admit(GRPC) as stream:
            async with aclosing(streaming.relay(current_call(), wanted)) as frames:
                async for frame in frames:
                    response = pb.SubscribeSessionResponse(cursor=frame.cursor)
                    getattr(response, _FIELDS[type(frame.content)]).CopyFrom(frame.content)
                    stream.gave(frame)
                    try:
                        async with asyncio.timeout(streaming.patience_seconds):
                            await context.write(response)
                    except TimeoutError as error:
                        # The frame is on its way: it reaches the reader before the status does.
                        raise stream.cut() from error
