"""HTTP in this process: a Starlette application behind uvicorn, on an address of its own.

The host owns signals, logs and the stop; of uvicorn only the protocol is used.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from threadkeep_chassis.errors import MethodUnknown
from threadkeep_projection.transports.sse.answers import refusal
from threadkeep_projection.transports.sse.endpoint import TRANSPORT
from threadkeep_projection.transports.sse.requests import GRANT, RESUME, SCOPE

_CLOSE_SECONDS = 2
"""How long a stop waits for answers under way; streams have ended with the host's drain by then."""


def application(events: ASGIApp, allowed_origins: Sequence[str], more: Sequence[Route] = ()) -> ASGIApp:
    """The routes, with those of other protocols.

    `allowed_origins`: whose pages may read answers, besides those that come from here.
    """
    cross_origin = Middleware(
        CORSMiddleware,
        allow_origins=list(allowed_origins),
        allow_methods=["GET"],
        allow_headers=[RESUME, SCOPE, GRANT, "traceparent", "tracestate"],
    )
    routes = Starlette(
        # An id may hold a slash, which arrives decoded.
        routes=[Route("/v1/sessions/{session_id:path}/events", events, methods=["GET"]), *more],
        middleware=[cross_origin] if allowed_origins else [],
        exception_handlers={HTTPException: _unknown},
    )

    async def reached(scope: Scope, receive: Receive, send: Send) -> None:
        # Only whoever holds the transport can drop a connection whose reader takes nothing.
        scope[TRANSPORT] = send.__self__.transport  # type: ignore[attr-defined]
        await routes(scope, receive, send)

    return reached


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(MethodUnknown(), status=error.status_code, headers=error.headers)


class Listener:
    """A bound address, and the server behind it."""

    def __init__(self, listen: str, *, reuse_port: bool, most_connections: int, max_head_bytes: int) -> None:
        """Binds. Raises OSError."""
        try:
            self._socket, self.address = _bind(listen, reuse_port)
        except OSError as error:
            raise OSError(f"can't listen on {listen} (http_listen): {error.strerror or error}") from error
        self._most_connections = most_connections
        self._max_head_bytes = max_head_bytes
        self._server: uvicorn.Server | None = None

    async def serve(self, app: ASGIApp) -> None:
        """Answers from now on; who connected since the address was bound has waited."""
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=self._most_connections,
            h11_max_incomplete_event_size=self._max_head_bytes,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        config.load()
        self._server = server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Neither its signal handlers nor its clock: `serve` would bring both.
        await server.startup(sockets=[self._socket])
        await server.on_tick(0)

    async def close(self) -> None:
        """Stops listening, waits a little for answers under way, and drops the rest."""
        server, self._server = self._server, None
        if server is not None:
            await server.shutdown(sockets=[self._socket])
            for connection in list(server.server_state.connections):
                _transport_of(connection).abort()
        self._socket.close()
        if self.address.startswith("unix:"):
            _forget(self.address.removeprefix("unix:"))


def _transport_of(connection: Any) -> asyncio.Transport:
    transport: asyncio.Transport = connection.transport
    return transport


def _forget(path: str) -> None:
    """Removes a socket's file; anything else is not ours."""
    if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
        os.unlink(path)


def _bind(listen: str, reuse_port: bool) -> tuple[socket.socket, str]:
    """(the listening socket, its address with the real port)"""
    if listen.startswith("unix"):
        kind, _, path = listen.partition(":")
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if kind == "unix-abstract":
            bound.bind(f"\0{path}")
        else:
            # What a server that was killed left behind.
            _forget(path)
            bound.bind(path)
        bound.listen(512)
    else:
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, int(port)), family=family, backlog=512, reuse_port=reuse_port)
        listen = f"{listen.rpartition(':')[0]}:{bound.getsockname()[1]}"
    bound.setblocking(False)
    return bound, listen
