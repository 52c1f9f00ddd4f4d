"""What subscriptions cost that nothing happens to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.benchmarks.harness import Case
from tests.support.runtime import Runtime
from threadkeep.runtime.v1 import event_service_pb2, event_service_pb2_grpc

BOUND_BYTES = 8 * 1024


class EventsIdle(Case):
    """Memory of the server, with more and more of both kinds open."""

    name = "events.idle"
    what = "server memory of an idle subscription beyond that of an empty stream, against 8 KiB"
    unit = "bytes"
    target = 1.0
    at_least = False
    environment: ClassVar[Mapping[str, str]] = {
        "THREADKEEP_MAX_CONCURRENT_RPCS": "30000",
        "THREADKEEP_LIMITS": '{"max_subscriptions": 30000}',
    }

    async def prepare(self) -> None:
        """A session, and the first of both kinds."""
        self.runtime = Runtime(self.stage)
        self.session_id = (await self.runtime.create()).session_id
        self.stub = event_service_pb2_grpc.EventServiceStub(self.stage.channel())
        self.open: list[tuple[Any, Any]] = []
        # Of each kind, over all measurements: 900, or 10,000 at full scale.
        self.count = (10_000 if self.scale.name == "full" else 900) // (self.scale.pairs + 1)

    async def product(self) -> float:
        """Opens as many again of each kind."""
        start = await self._settled()
        for _ in range(self.count):
            await self._hold(self.stage.echo_stream(b'{"count":1,"size":1,"hold":1}'))
        between = await self._settled()
        for _ in range(self.count):
            request = event_service_pb2.SubscribeEventsRequest(
                filter=event_service_pb2.EventFilter(session_id=self.session_id), from_now=True, include_live=True
            )
            await self._hold(self.stub.SubscribeEvents(request, metadata=self.runtime.metadata))
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
