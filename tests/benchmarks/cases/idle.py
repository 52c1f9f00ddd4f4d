"""What subscriptions cost that nothing happens to."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, ClassVar

from tests.benchmarks.harness import Case
from tests.support.runtime import Runtime
from threadkeep.runtime.v1 import event_service_pb2, event_service_pb2_grpc

BOUND_BYTES = 8 * 1024


class IdleStreams(Case):
    """Memory of the server, with more and more streams of both kinds open."""

    unit = "bytes"
    target = 1.0
    at_least = False
    most: ClassVar[int]
    """How many of each kind are open in the end, at full scale."""

    async def prepare(self) -> None:
        """Nothing is open."""
        self.open: list[tuple[Any, Any]] = []
        self.count = min(self.most, self.most if self.scale.name == "full" else 3000) // (self.scale.pairs + 1)

    @abstractmethod
    def begin(self) -> Any:
        """A call whose first message says that it is open."""

    async def product(self) -> float:
        """Opens as many again of each kind."""
        start = await self._settled()
        for _ in range(self.count):
            await self._hold(self.stage.echo_stream(b'{"count":1,"size":1,"hold":1}'))
        between = await self._settled()
        for _ in range(self.count):
            await self._hold(self.begin())
        end = await self._settled()
        return ((end - between) - (between - start)) / self.count

    async def baseline(self) -> float:
        """The bound."""
        return float(BOUND_BYTES)

    async def clean_up(self) -> None:
        """Ends all of them."""
        for call, _ in self.open:
            call.cancel()

    async def _hold(self, call: Any) -> None:
        frames = aiter(call)
        await anext(frames)
        self.open.append((call, frames))

    async def _settled(self) -> int:
        await asyncio.sleep(0.5)
        return self.stage.resident_bytes()


class EventsIdle(IdleStreams):
    """Subscriptions to a session."""

    name = "events.idle"
    what = "server memory of an idle subscription beyond that of an empty stream, against 8 KiB"
    # The server takes 1,000 subscriptions and 2,000 calls unless it is told otherwise.
    most = 900

    async def prepare(self) -> None:
        """A session."""
        await super().prepare()
        self.runtime = Runtime(self.stage)
        self.session_id = (await self.runtime.create()).session_id
        self.stub = event_service_pb2_grpc.EventServiceStub(self.stage.channel())

    def begin(self) -> Any:
        """A subscription."""
        request = event_service_pb2.SubscribeEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=self.session_id), from_now=True, include_live=True
        )
        return self.stub.SubscribeEvents(request, metadata=self.runtime.metadata)
