"""Runs calls on synchronous channels. Safe for many threads, and inside a running event loop (where it blocks)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
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


class Transport:
    """One channel per address, made when first used."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._callables: dict[tuple[str, str], Any] = {}
        self._closed = False

    def unary(self, call: Call[T], context: CallContext, options: CallOptions) -> T:
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
                    response = bound(call.request, timeout=remaining, metadata=metadata)
                except grpc.RpcError as error:
                    failure = typed_error(error)
                    if options.retry is None or not options.retry.retries(failure):
                        raise failure from error
                    delay = options.retry.delay(attempt, failure)
                    if time.monotonic() + delay >= deadline:
                        raise failure from error
                    time.sleep(delay)
                else:
                    return call.take(response)

    def frames(self, call: Call[Any], context: CallContext) -> Iterator[Any]:
        """Runs a server-streaming call once; gives its responses. Closing the generator cancels the call."""
        with CallSpan(call.method.path) as span:
            stream = self._bind(call.method, "unary_stream")(call.request, metadata=_metadata(call, context, span))
            try:
                for response in stream:
                    yield call.take(response)
            except grpc.RpcError as error:
                raise typed_error(error) from error
            finally:
                stream.cancel()

    def listed(self, call: Call[Any], context: CallContext, options: CallOptions) -> Iterator[Any]:
        """The same for a list: it is tried again as long as nothing of it came."""
        deadline = time.monotonic() + options.timeout
        attempt, began = 0, False
        while True:
            attempt += 1
            frames = self.frames(call, context)
            try:
                for frame in frames:
                    began = True
                    yield frame
            except ThreadkeepError as failure:
                if began or options.retry is None or not options.retry.retries(failure):
                    raise
                delay = options.retry.delay(attempt, failure)
                if time.monotonic() + delay >= deadline:
                    raise
                time.sleep(delay)
            else:
                return
            finally:
                frames.close()  # type: ignore[attr-defined]

    def upload(
        self, method: Method, requests: Iterable[Message], context: CallContext, timeout: float | None = None
    ) -> Any:
        """Runs a client-streaming call once; gives its response."""
        with CallSpan(method.path) as span:
            try:
                metadata = context.metadata + span.metadata
                return self._bind(method, "stream_unary")(iter(requests), timeout=timeout, metadata=metadata)
            except grpc.RpcError as error:
                raise typed_error(error) from error

    def close(self) -> None:
        """Closes the channels; calls that run on them fail."""
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._callables.clear()
        for channel in channels:
            channel.close()

    def _bind(self, method: Method, kind: str) -> Any:
        address = self.targets.address(method.service)
        with self._lock:
            bound = self._callables.get((address, method.path))
            if bound is None:
                bound = self._callables[address, method.path] = getattr(self._channel(address), kind)(
                    method.path,
                    request_serializer=method.request.SerializeToString,
                    response_deserializer=method.response.FromString,
                )
            return bound

    def _channel(self, address: str) -> grpc.Channel:
        if self._closed:
            raise RuntimeError("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            credentials = self.targets.credentials
            channel = self._channels[address] = (
                grpc.insecure_channel(address, CHANNEL_OPTIONS)
                if credentials is None
                else grpc.secure_channel(address, credentials, CHANNEL_OPTIONS)
            )
        return channel


def _metadata(call: Call[Any], context: CallContext, span: CallSpan) -> tuple[tuple[str, str | bytes], ...]:
    return (context.metadata if call.scoped else context.grant_metadata) + span.metadata
