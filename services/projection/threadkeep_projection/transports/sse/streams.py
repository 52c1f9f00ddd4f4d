"""Writes one stream until either side ends: frames, heartbeats while there are none, and why it ends.

A reader for whom one write waits too long is cut: what waits for it in this process is at most one frame beyond the
connection's own buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import structlog
from starlette.types import Receive, Send

from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.scope import Call
from threadkeep_projection.commands.streaming import Relayed, Stream, Wanted
from threadkeep_projection.transports.sse import frames as wire
from threadkeep_projection.transports.sse.answers import NO_STORE, error_body

EVENT_STREAM = "text/event-stream"
_HEADERS = {
    "content-type": f"{EVENT_STREAM}; charset=utf-8",
    # Proxies of nginx's kind hold answers back otherwise.
    "x-accel-buffering": "no",
    **NO_STORE,
}

_LAST_WORDS_SECONDS = 0.5
"""How long a reader may take to hear that the server stops; one that stands still would hold up the stop."""

_log = structlog.get_logger("threadkeep.http")


class Stalled(Exception):
    """The reader took nothing for too long."""


class Connection:
    """The way to one reader, and how long a write may wait for it."""

    def __init__(self, send: Send, transport: asyncio.Transport, patience_seconds: float) -> None:
        self._send = send
        self._transport = transport
        self._patience_seconds = patience_seconds
        self._turn = asyncio.Lock()
        self._is_over = False
        self.wrote_at = 0.0
        """When something was last written, by the loop's clock."""

    async def begin(self) -> None:
        """Sends status and headers."""
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        await self._write({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, block: bytes, *, is_last: bool = False) -> None:
        """Sends a block. Raises Stalled, with the connection dropped and what waited for it forgotten."""
        await self._write({"type": "http.response.body", "body": block, "more_body": not is_last})

    def drop(self) -> None:
        """Ends the connection at once. An orderly close would wait for the reader to take what is buffered."""
        self._transport.abort()

    async def _write(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds), self._turn:
                if self._is_over:
                    # A heartbeat that waited for its turn behind the last block.
                    return
                await self._send(message)
                self._is_over = message.get("more_body") is False
        except TimeoutError as error:
            self.drop()
            raise Stalled from error
        self.wrote_at = asyncio.get_running_loop().time()


async def serve(
    connection: Connection,
    first: Relayed,
    frames: AsyncGenerator[Relayed],
    wanted: Wanted,
    stream: Stream,
    receive: Receive,
    call: Call,
    *,
    heartbeat_seconds: float,
    retry_seconds: float,
) -> None:
    """Writes the first frame and those that follow. Returns when they end, when the reader goes, or when it is cut."""
    trace_id = call.trace.trace_id

    async def pump() -> None:
        await connection.begin()
        await connection.write(wire.opening(retry_seconds))
        try:
            relayed: Relayed | None = first
            while relayed is not None:
                stream.gave(relayed)
                await connection.write(wire.frame(relayed, wanted))
                relayed = await anext(frames, None)
        except ThreadkeepError as error:
            await give_up(connection, error, retry_seconds, trace_id)
        except Stalled:
            raise
        except Exception as error:
            _log.error("stream failed", trace_id=trace_id, **fault_facts(error))
            await give_up(connection, error, retry_seconds, trace_id)
        else:
            await connection.write(wire.END, is_last=True)

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        while True:
            wait = connection.wrote_at + heartbeat_seconds - loop.time() if connection.wrote_at else heartbeat_seconds
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                await connection.write(wire.HEARTBEAT)

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def drained() -> None:
        await call.draining.wait()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        connection.drop()
        await gone()

    try:
        await _first_of(pump(), beat(), gone(), drained())
    except Stalled:
        stream.cut()
        # The server behind would call an answer unfinished whose connection is still there.
        await gone()


async def give_up(connection: Connection, error: Exception, retry_seconds: float, trace_id: str) -> None:
    """Says why the stream ends, and when to come back. Raises Stalled."""
    after = error.retry_after if isinstance(error, ThreadkeepError) else None
    block = wire.failure(error_body(error, trace_id), max(retry_seconds, after or 0.0))
    await connection.write(block, is_last=True)


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Returns when one of them ends, and ends the others. Raises what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
