"""A gRPC server of ten lines for tests of clients: it answers methods as a test says, and remembers what it was sent.

It stands for a server that breaks at a chosen moment, which a real one can't be made to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

Answer = Callable[[list[Any]], Message | Iterable[Message]]
"""Gets the requests of one call; gives the response, or frames. It may raise Refusal in between."""


class Refusal(Exception):
    """Ends a call with a status: with a reason it is threadkeep's, without one it is somebody else's."""

    def __init__(self, code: str, reason: str = "", *, retry_after: float | None = None, **metadata: str) -> None:
        super().__init__(code)
        self.status = status_pb2.Status(code=code_pb2.Code.Value(code), message=f"{reason or code} said the test")
        if reason:
            self._add(error_details_pb2.ErrorInfo(reason=reason, domain="threadkeep", metadata=metadata))
        if retry_after is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(int(retry_after * 1000))
            self._add(error_details_pb2.RetryInfo(retry_delay=delay))

    def violate(self, field: str, description: str) -> Refusal:
        """Adds a field violation."""
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=description)
        self._add(error_details_pb2.BadRequest(field_violations=[violation]))
        return self

    def concerning(self, kind: str, name: str) -> Refusal:
        """Adds the resource that it is about."""
        self._add(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name))
        return self

    def _add(self, detail: Message) -> None:
        packed = any_pb2.Any()
        packed.Pack(detail)
        self.status.details.append(packed)


class FarEnd(grpc.GenericRpcHandler):
    """The server. `answers` maps method names to answers; `calls` holds (method, requests, metadata) in order."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[type[Message], Answer]] = {}
        self.calls: list[tuple[str, list[Any], dict[str, Any]]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def answer(self, method: str, request: type[Message], answer: Answer) -> None:
        """Says how calls of a method (`GetTask`) are answered."""
        self.answers[method] = (request, answer)

    def requests(self, method: str) -> list[Any]:
        """The first request of each call of a method."""
        return [requests[0] for name, requests, _ in self.calls if name == method]

    def close(self) -> None:
        """Stops serving."""
        self._server.stop(None).wait()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """gRPC's hook: every method is served, as a stream of both sides, which a client of any kind understands."""
        method = handler_call_details.method.rsplit("/", 1)[1]
        if method not in self.answers:
            return None
        request_type, answer = self.answers[method]

        def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Message]:
            received = [*requests]
            metadata = dict(context.invocation_metadata())
            self.calls.append((method, received, metadata))
            try:
                answered = answer(received)
                if isinstance(answered, Message):
                    yield answered
                else:
                    yield from answered
            except Refusal as refusal:
                context.abort_with_status(rpc_status.to_status(refusal.status))

        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
