"""Event feeds for tests: lists and subscriptions over the stubs, and the orders that they promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tests.support.calls import Metadata
from tests.support.examples.world import World, json_payload
from threadkeep.runtime.v1 import event_pb2, event_service_pb2, event_service_pb2_grpc

pb = event_service_pb2

PATIENCE_SECONDS = 30.0


class Feed:
    """One subscription, read frame by frame."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._frames = aiter(call)
        self._events: list[event_pb2.Event] = []
        self.cursor = b""
        """Of the last frame that had one."""
        self.frames: list[pb.SubscribeEventsResponse] = []
        """Every frame so far."""

    async def frame(self) -> pb.SubscribeEventsResponse:
        """The next frame. Raises StopAsyncIteration at the end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            frame = await anext(self._frames)
        self.frames.append(frame)
        if frame.cursor:
            self.cursor = frame.cursor
        return frame

    async def until(self, kind: str) -> Any:
        """The content of the next frame of this kind; others are passed over."""
        while True:
            frame = await self.frame()
            if frame.WhichOneof("frame") == kind:
                return getattr(frame, kind)

    async def event(self) -> event_pb2.Event:
        """The next event."""
        while not self._events:
            self._events.extend((await self.until("events")).events)
        return self._events.pop(0)

    async def events(self, count: int) -> list[event_pb2.Event]:
        """The next events."""
        return [await self.event() for _ in range(count)]

    async def rest(self) -> list[event_pb2.Event]:
        """Every event until the stream ends."""
        found, self._events = self._events, []
        while True:
            try:
                found += (await self.until("events")).events
            except StopAsyncIteration:
                return found

    async def failure(self) -> grpc.aio.AioRpcError:
        """The error that ends the stream; what comes before is read."""
        try:
            while True:
                await self.frame()
        except grpc.aio.AioRpcError as error:
            return error


@asynccontextmanager
async def subscribed(
    channel: grpc.aio.Channel, metadata: Metadata, request: pb.SubscribeEventsRequest | None = None, **parts: Any
) -> AsyncIterator[Feed]:
    """A subscription; `parts` build the request: `session_id="s", after=cursor`."""
    stub = event_service_pb2_grpc.EventServiceStub(channel)
    call = stub.SubscribeEvents(request or subscription(**parts), metadata=metadata)
    try:
        yield Feed(call)
    finally:
        call.cancel()


_STARTS = ("after", "from_start", "from_now", "after_sequence")


def subscription(
    types: tuple[str, ...] = (), visibility: int = 0, include_live: bool = False, **parts: Any
) -> pb.SubscribeEventsRequest:
    """A request: the extent and the start by their fields' names."""
    starts = {name: parts.pop(name) for name in _STARTS if name in parts}
    wanted = pb.EventFilter(types=types, visibility=visibility, **parts)  # type: ignore[arg-type]
    return pb.SubscribeEventsRequest(filter=wanted, include_live=include_live, **starts)


def follow(world: World, **parts: Any) -> Any:
    """A subscription in the world's scope."""
    return subscribed(world.suite.channel("runtime"), world.metadata, **parts)


def draft(type_: str = "order.placed", **parts: Any) -> event_pb2.EventDraft:
    """An event to append."""
    return event_pb2.EventDraft(type=type_, payload=parts.pop("payload", json_payload()), **parts)


async def append(world: World, session_id: str, *types: str) -> None:
    """Appends events of these types in one commit."""
    await world.commit(session_id=session_id, events=[draft(one) for one in types])


async def listed(world: World, metadata: Metadata | None = None, **parts: Any) -> list[event_pb2.Event]:
    """All events of a list, page by page."""
    request = list_request(**parts)
    found: list[event_pb2.Event] = []
    while True:
        page = await world.bind("EventService.ListEvents")(request, metadata=metadata or world.metadata)
        found += page.events
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def list_request(
    types: tuple[str, ...] = (), visibility: int = 0, after: bytes = b"", page_size: int = 0, **extent: Any
) -> pb.ListEventsRequest:
    """A request of a page."""
    wanted = pb.EventFilter(types=types, visibility=visibility, **extent)  # type: ignore[arg-type]
    return pb.ListEventsRequest(filter=wanted, after=after, page_size=page_size)


def is_dense(events: list[event_pb2.Event], key: Callable[[event_pb2.Event], int] = lambda one: one.sequence) -> bool:
    """True if the numbers are 1, 2, 3, ... in this order."""
    return [key(one) for one in events] == list(range(1, len(events) + 1))
