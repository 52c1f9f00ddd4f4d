"""`GET /v1/sessions/{session_id}/events`: admits a reader, and waits for the first frame before it says 200.

An error before that is an HTTP answer with the reason that a gRPC caller gets. A browser comes back after a broken
stream but never after an error's status; so a reader that asks for an event stream is told of what passes by itself in
one, and comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from threadkeep_chassis.errors import DeadlineExceeded, MethodUnknown, ShuttingDown, ThreadkeepError, Unavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_projection.commands.streaming import SSE, Relayed, Streaming, wanted_stream
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.transports.sse.answers import NO_STORE, refusal
from threadkeep_projection.transports.sse.requests import Requests
from threadkeep_projection.transports.sse.streams import EVENT_STREAM, Connection, Stalled, give_up, serve

TRANSPORT = "threadkeep.transport"
"""Where the ASGI scope holds the connection's asyncio transport."""

FIRST_FRAME_SECONDS = 30.0
"""How long the first frame, which tells whether there is a stream at all, may take."""

_log = structlog.get_logger("threadkeep.http")


class Events:
    """The endpoint, as an ASGI application."""

    def __init__(
        self,
        requests: Requests,
        streaming: Streaming,
        metrics: ProjectionMetrics,
        *,
        heartbeat_seconds: float,
        retry_seconds: float,
    ) -> None:
        self._requests = requests
        self._streaming = streaming
        self._metrics = metrics
        self._heartbeat_seconds = heartbeat_seconds
        self._retry_seconds = retry_seconds
        self._transports: set[asyncio.Transport] = set()
        metrics.stream_buffered.set_function(self.buffered_bytes)

    def buffered_bytes(self) -> int:
        """What waits in this process for all readers together."""
        return sum(transport.get_write_buffer_size() for transport in self._transports)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope)
        begun = False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._metrics.http_requests.labels(str(message["status"])).inc()
            await send(message)

        if request.method != "GET":
            await refusal(MethodUnknown(), status=405, headers={"allow": "GET"})(scope, receive, counted)
            return
        call = self._requests.call(request)
        transport: asyncio.Transport = scope[TRANSPORT]
        connection = Connection(counted, transport, self._streaming.patience_seconds)
        try:
            if call.draining.is_set:
                raise ShuttingDown()
            self._requests.identify(request, call)
            wanted = wanted_stream(self._requests.wanted(request))
            with self._streaming.admit(SSE) as stream:
                async with aclosing(self._streaming.relay(call, wanted)) as frames:
                    first = await _first(frames)
                    if first is None:
                        # The end was reached before: a browser that is told so stays away.
                        await Response(status_code=204, headers=NO_STORE)(scope, receive, counted)
                        return
                    self._transports.add(transport)
                    try:
                        await serve(
                            connection,
                            first,
                            frames,
                            wanted,
                            stream,
                            receive,
                            call,
                            heartbeat_seconds=self._heartbeat_seconds,
                            retry_seconds=self._retry_seconds,
                        )
                    finally:
                        self._transports.discard(transport)
        except Exception as error:
            if not isinstance(error, ThreadkeepError):
                _log.error("request failed", trace_id=call.trace.trace_id, **fault_facts(error))
            if begun:
                transport.abort()
            elif isinstance(error, Unavailable) and EVENT_STREAM in request.headers.get("accept", ""):
                try:
                    await connection.begin()
                    await give_up(connection, error, self._retry_seconds, call.trace.trace_id)
                except Stalled:
                    return
            else:
                await refusal(error, call.trace.trace_id)(scope, receive, counted)


async def _first(frames: AsyncGenerator[Relayed]) -> Relayed | None:
    """The first frame, or None if there is none. Raises DeadlineExceeded, and what `relay` raises."""
    try:
        async with asyncio.timeout(FIRST_FRAME_SECONDS):
            return await anext(frames, None)
    except TimeoutError as error:
        raise DeadlineExceeded("The runtime did not answer in time.") from error
