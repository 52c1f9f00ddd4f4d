"""Servers on the loopback that agents' tools call: an MCP server over HTTP, and a plain HTTP endpoint."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


class Seen:
    """What a server was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []


@asynccontextmanager
async def mcp_over_http(token: str | None = None) -> AsyncIterator[str]:
    """The URL of an MCP server with the tools of tests.support.mcp_files; with `token` it takes no other."""
    from mcp.server.fastmcp import FastMCP

    from tests.support.mcp_files import environment, fails, read

    server = FastMCP("files", stateless_http=True)
    for function in (read, environment, fails):
        server.tool()(function)
    inner = server.streamable_http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", []))
        if scope["type"] == "http" and token and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await inner(scope, receive, send)

    async with _served(app) as origin:
        yield f"{origin}/mcp"


@asynccontextmanager
async def endpoint(answer: str = "done", status: int = 200, location: str = "") -> AsyncIterator[tuple[str, Seen]]:
    """The origin of an HTTP endpoint that answers the same to everything, and what it was asked."""
    seen = Seen()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen.requests.append(
            {
                "method": scope["method"],
                "query": scope["query_string"].decode(),
                "json": json.loads(body) if body else None,
                "headers": headers,
            }
        )
        more = [(b"location", location.encode())] if location else []
        await send({"type": "http.response.start", "status": status, "headers": more})
        await send({"type": "http.response.body", "body": answer.encode()})

    async with _served(app) as origin:
        yield origin, seen


@asynccontextmanager
async def _served(app: Any) -> AsyncIterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="auto", loop="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign, attr-defined]
    serving = asyncio.create_task(server._serve() if hasattr(server, "_serve") else server.serve())
    try:
        async with asyncio.timeout(30):
            while not server.started:
                await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving
