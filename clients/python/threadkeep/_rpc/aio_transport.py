"""Runs calls on asyncio channels. Each event loop gets channels of its own, so that loops may share a client."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from threadkeep._errors import ThreadkeepError
from threadkeep._rpc.channels import CHANNEL_OPTIONS, Targets
from threadkeep._rpc.context import CallContext, CallOptions
from threadkeep._rpc.failures import typed_error
from threadkeep._rpc.method import Call, Method
from threadkeep._rpc.spans import CallSpan

T = TypeVar("T")


class _LoopChannels:
    """The channels of one event loop."""

    def __init__(self) -> None:
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.callables: dict[tuple[str, str], Any] = {}


class AioTransport:
    """One channel per address and event loop, made when first used."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self._lock = threading.Lock()
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopChannels] = weakref.WeakKeyDictionary()
        self._closed = False

    async def unary(self, call: Call[T], context: CallContext, options: CallOptions) -> T:
        """Runs a unary call; retries what may be retried while its timeout lasts. Raises typed errors."""
        bound = self._bind(call.method, "unary_unary")
        with CallSpan(call.method.path) as span:
            metadata = _metadata(call, context, span)
            deadline = time.monotonic() + options.timeout + call.wait
            attempt = 0
            while True:
                attempt += 1
                try:
                    remaining = max(0.001, deadline - time.monotonic())
                    response = await bound(call.request, timeout=remaining, metadata=metadata)
                except grpc.RpcError as error:
                    failure = typed_error(error)
                    if options.retry is None or not options.retry.retries(failure):
                        raise failure from error
                    delay = options.retry.delay(attempt, failure)
                    if time.monotonic() + delay >= deadline:
                        raise failure from error
                    await asyncio.sleep(delay)
                else:
                    return call.take(response)

    async def frames(self, call: Call[Any], context: CallContext) -> AsyncIterator[Any]:
        """Runs a server-streaming call once; gives its responses. Closing the generator cancels the call."""
        with CallSpan(call.method.path) as span:
            stream = self._bind(call.method, "unary_stream")(call.request, metadata=_metadata(call, context, span))
            try:
                async for response in stream:
                    yield call.take(response)
            except grpc.RpcError as error:
                raise typed_error(error) from error
            finally:
                stream.cancel()

    async def listed(self, call: Call[Any], context: CallContext, options: CallOptions) -> AsyncIterator[Any]:
        """The same for a list: it is tried again as long as nothing of it came."""
        deadline = time.monotonic() + options.timeout
        attempt, began = 0, False
        while True:
            attempt += 1
            frames = self.frames(call, context)
            try:
                async for frame in frames:
                    began = True
                    yield frame
            except ThreadkeepError as failure:
                if began or options.retry is None or not options.retry.retries(failure):
                    raise
                delay = options.retry.delay(attempt, failure)
                if time.monotonic() + delay >= deadline:
                    raise
                await asyncio.sleep(delay)
            else:
                return
            finally:
                await frames.aclose()  # type: ignore[attr-defined]

    async def upload(
        self, method: Method, requests: AsyncIterable[Message], context: CallContext, timeout: float | None = None
    ) -> Any:
        """Runs a client-streaming call once; gives its response."""
        with CallSpan(method.path) as span:
            try:
                metadata = context.metadata + span.metadata
                return await self._bind(method, "stream_unary")(requests, timeout=timeout, metadata=metadata)
            except grpc.RpcError as error:
                raise typed_error(error) from error

    async def leave(self) -> None:
        """Closes the running loop's channels, for a loop that ends before the client does."""
        with self._lock:
            own = self._loops.pop(asyncio.get_running_loop(), None)
        for channel in own.channels.values() if own is not None else ():
            await channel.close()

    async def close(self) -> None:
        """Closes the channels of the running loop, and lets go of those of other loops."""
        with self._lock:
            self._closed = True
        await self.leave()
        with self._lock:
            self._loops.clear()

    def _bind(self, method: Method, kind: str) -> Any:
        address = self.targets.address(method.service)
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            owned = self._loops.get(loop)
            if owned is None:
                owned = self._loops[loop] = _LoopChannels()
        # From here on only this loop touches `owned`.
        bound = owned.callables.get((address, method.path))
        if bound is None:
            channel = owned.channels.get(address)
            if channel is None:
                channel = owned.channels[address] = self._open(address)
            bound = owned.callables[address, method.path] = getattr(channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return bound

    def _open(self, address: str) -> grpc.aio.Channel:
        credentials = self.targets.credentials
        if credentials is None:
            return grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(address, credentials, CHANNEL_OPTIONS)


def _metadata(call: Call[Any], context: CallContext, span: CallSpan) -> tuple[tuple[str, str | bytes], ...]:
    return (context.metadata if call.scoped else context.grant_metadata) + span.metadata
