"""The baselines E and S inside the measured server: a unary call and a stream that do no work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc

UNARY = "/bench.Echo/Unary"
STREAM = "/bench.Echo/Stream"


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


class EchoHandlers(grpc.GenericRpcHandler):
    """Both calls, on raw bytes."""

    def service(self, details: Any) -> Any:
        """Finds the handler of a call."""
        if details.method == UNARY:
            return grpc.unary_unary_rpc_method_handler(_unary)
        if details.method == STREAM:
            return grpc.unary_stream_rpc_method_handler(_stream)
        return None
