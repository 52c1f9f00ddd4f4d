"""The baselines E and S inside the measured server: a unary call and a stream that do no work.

For many streams that get a message at once there is a bell: what it is rung with goes out on each stream that hears it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc

UNARY = "/bench.Echo/Unary"
STREAM = "/bench.Echo/Stream"
BELL = "/bench.Echo/Bell"
HEAR = "/bench.Echo/Hear"


async def _unary(request: bytes, context: Any) -> bytes:
    return b""


async def _stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """`{"count": messages, "size": bytes}`: the same prebuilt message each time; with "hold" it then stays open."""
    wanted = json.loads(request)
    message = bytes(wanted["size"])
    for _ in range(wanted["count"]):
        yield message
    if wanted.get("hold"):
        # An empty stream that stays open, until its caller goes.
        await asyncio.get_running_loop().create_future()


_hearers: set[asyncio.Queue[bytes]] = set()


async def _bell(request: bytes, context: Any) -> bytes:
    """Sends the request, as it is, on every stream that hears the bell."""
    for hearer in _hearers:
        hearer.put_nowait(request)
    return b""


async def _hear(request: bytes, context: Any) -> AsyncIterator[bytes]:
    """An empty message, then what the bell is rung with."""
    rung: asyncio.Queue[bytes] = asyncio.Queue()
    _hearers.add(rung)
    try:
        yield b""
        while True:
            yield await rung.get()
    finally:
        _hearers.discard(rung)


class EchoHandlers(grpc.GenericRpcHandler):
    """The calls, on raw bytes."""

    def service(self, details: Any) -> Any:
        """Finds the handler of a call."""
        if details.method == UNARY:
            return grpc.unary_unary_rpc_method_handler(_unary)
        if details.method == STREAM:
            return grpc.unary_stream_rpc_method_handler(_stream)
        if details.method == BELL:
            return grpc.unary_unary_rpc_method_handler(_bell)
        if details.method == HEAR:
            return grpc.unary_stream_rpc_method_handler(_hear)
        return None
