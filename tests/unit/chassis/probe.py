"""The probe service of these tests: its messages, its servicer, and a hosted one.

`probe.proto` is compiled when this module is imported, so that the contract and the client stay free of it.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

# Loads what probe.proto imports into the pool.
from threadkeep.common.v1 import options_pb2, payload_pb2  # noqa: F401
from threadkeep_chassis.hosting import Host, Service
from threadkeep_chassis.peers import call_metadata, open_channel
from threadkeep_chassis.scope import Scope
from threadkeep_chassis.settings import ServerSettings

SERVICE = "threadkeep.probe.v1.ProbeService"
ACME = Scope({"tenant": "acme"})


def _compile() -> SimpleNamespace:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        roots = (here, here.parents[2] / "protos", Path(grpc_tools.__file__).parent / "_proto")
        arguments = [*(f"-I{root}" for root in roots), f"--descriptor_set_out={out}", "probe.proto"]
        if protoc.main(["protoc", *arguments]) != 0:
            raise RuntimeError("probe.proto does not compile")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.Default()
    (file,) = files.file
    pool.Add(file)
    names = [message.name for message in file.message_type]
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
            for name in names
        }
    )


probe: Any = _compile()


class ProbeServicer:
    """Does what the test says: replace its attributes."""

    def __init__(self) -> None:
        self.change: Callable[[Any], Awaitable[Any]] = self._echo
        self.feed: Callable[[Any], AsyncIterator[Any]] = self._count
        self.chat: Callable[[Any], AsyncIterator[Any]] = self._answer

    async def _echo(self, request: Any) -> Any:
        return probe.ChangeResponse(value=request.value)

    async def _count(self, request: Any) -> AsyncIterator[Any]:
        for number in range(request.count):
            yield probe.FeedResponse(number=number)

    async def _answer(self, requests: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield probe.ChatResponse(text=f"hello {request.name}")

    async def Change(self, request: Any, context: Any) -> Any:
        return await self.change(request)

    async def Feed(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for response in self.feed(request):
            yield response

    async def Upload(self, requests: Any, context: Any) -> Any:
        size = 0
        async for request in requests:
            size += len(request.chunk)
        return probe.UploadResponse(size=size)

    async def Chat(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for response in self.chat(requests):
            yield response

    async def Info(self, request: Any, context: Any) -> Any:
        from threadkeep_chassis.scope import current_call

        return probe.InfoResponse(has_scope=current_call().named_scope is not None)

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""

        def codec(name: str) -> dict[str, Any]:
            return {
                "request_deserializer": getattr(probe, f"{name}Request").FromString,
                "response_serializer": getattr(probe, f"{name}Response").SerializeToString,
            }

        handlers = {
            "Change": grpc.unary_unary_rpc_method_handler(self.Change, **codec("Change")),
            "Feed": grpc.unary_stream_rpc_method_handler(self.Feed, **codec("Feed")),
            "Upload": grpc.stream_unary_rpc_method_handler(self.Upload, **codec("Upload")),
            "Chat": grpc.stream_stream_rpc_method_handler(self.Chat, **codec("Chat")),
            "Info": grpc.unary_unary_rpc_method_handler(self.Info, **codec("Info")),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def service(self, **more: Any) -> Service:
        """The servicer as a service."""

        async def nothing(*_: Any) -> None:
            return None

        facts: dict[str, Any] = {"start": nothing, "stop": nothing, **more}
        return Service("probe", [SERVICE], register=self.register, **facts)


class ProbeClient:
    """Calls the probe service, in the scope of ACME unless told otherwise."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def _call(self, kind: str, name: str) -> Any:
        return getattr(self.channel, kind)(
            f"/{SERVICE}/{name}",
            request_serializer=getattr(probe, f"{name}Request").SerializeToString,
            response_deserializer=getattr(probe, f"{name}Response").FromString,
        )

    def change(self, request: Any = None, metadata: Any = None, **more: Any) -> Any:
        """A unary mutation."""
        request = probe.ChangeRequest(request_id="r-1") if request is None else request
        return self._call("unary_unary", "Change")(request, metadata=metadata or call_metadata(ACME), **more)

    def feed(self, count: int = 1, metadata: Any = None, **more: Any) -> Any:
        """A server stream, in one scope or under a grant."""
        request = probe.FeedRequest(count=count)
        return self._call("unary_stream", "Feed")(request, metadata=metadata or call_metadata(ACME), **more)

    def upload(self, requests: Any, metadata: Any = None) -> Any:
        """A client stream that is a mutation."""
        return self._call("stream_unary", "Upload")(requests, metadata=metadata or call_metadata(ACME))

    def chat(self, requests: Any, metadata: Any = None) -> Any:
        """Both ways."""
        return self._call("stream_stream", "Chat")(requests, metadata=metadata or call_metadata(ACME))

    def info(self, metadata: Any = ()) -> Any:
        """Needs no scope."""
        return self._call("unary_unary", "Info")(probe.InfoRequest(), metadata=metadata)


@asynccontextmanager
async def hosted(servicer: ProbeServicer, **settings: Any) -> AsyncIterator[tuple[Host, ProbeClient]]:
    """A host with the probe service on a port of its own, and a client."""
    host = Host([servicer.service()], settings=ServerSettings(**settings))
    async with host:
        channel = open_channel(host.address)
        try:
            yield host, ProbeClient(channel)
        finally:
            await channel.close()
