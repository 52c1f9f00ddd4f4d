"""What subscriptions cost."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from tests.benchmarks.cases.commits import fill
from tests.benchmarks.harness import Case, median_latency
from tests.support.runtime import Runtime, event, text
from threadkeep.runtime.v1 import event_service_pb2, event_service_pb2_grpc


class EventsCatchUp(Case):
    """Reading a long log."""

    name = "events.catchup"
    what = "events per second of a catch-up subscription, against a stream of prebuilt messages, one per event"
    unit = "events/s"
    target = 1.0
    at_least = True

    async def prepare(self) -> None:
        """A long thread."""
        self.runtime = Runtime(self.stage)
        self.session_id = (await self.runtime.create()).session_id
        self.count = self.scale.rows
        batch = [event(payload=text(bytes(1024))) for _ in range(500)]
        for _ in range(self.count // 500):
            await self.runtime.commit(self.session_id, events=batch)
        self.stub = event_service_pb2_grpc.EventServiceStub(self.stage.channel())

    async def product(self) -> float:
        """A subscription from the start."""
        request = event_service_pb2.SubscribeEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=self.session_id), from_start=True
        )
        started, seen = time.perf_counter(), 0
        feed = self.stub.SubscribeEvents(request, metadata=self.runtime.metadata)
        async for frame in feed:
            seen += len(frame.events.events)
            if seen >= self.count:
                break
        feed.cancel()
        return seen / (time.perf_counter() - started)

    async def baseline(self) -> float:
        """S."""
        started, seen = time.perf_counter(), 0
        async for _ in self.stage.echo_stream(json.dumps({"count": self.count, "size": 1300}).encode()):
            seen += 1
        return seen / (time.perf_counter() - started)


class EventsMemory(Case):
    """What reading a long log holds in memory."""

    name = "events.memory"
    what = "most server memory during a catch-up subscription beyond that before it, against 64 MiB"
    unit = "bytes"
    target = 1.0
    at_least = False

    async def prepare(self) -> None:
        """A long thread."""
        self.log = EventsCatchUp(self.stage, self.scale)
        await self.log.prepare()
        # Before the first look at it: that is what counts, and what later looks add to it.
        self.before = self.stage.resident_bytes()

    async def product(self) -> float:
        """A subscription from the start, looked at every ten milliseconds."""
        reading = asyncio.ensure_future(self.log.product())
        most = self.before
        while not reading.done():
            most = max(most, self.stage.resident_bytes())
            await asyncio.wait({reading}, timeout=0.01)
        await reading
        return float(most - self.before)

    async def baseline(self) -> float:
        """The bound."""
        return float(64 * 1024 * 1024)


class EventsLive(Case):
    """The way of one event."""

    name = "events.live"
    what = "from a commit's acknowledgement to the frame at one subscriber (median), against an empty call"
    unit = "s"
    target = 3.0
    at_least = False

    async def prepare(self) -> None:
        """A session and its subscriber."""
        self.runtime = Runtime(self.stage)
        self.session_id = (await self.runtime.create()).session_id
        await fill(self.runtime, self.session_id, 500)
        stub = event_service_pb2_grpc.EventServiceStub(self.stage.channel())
        request = event_service_pb2.SubscribeEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=self.session_id), from_now=True
        )
        self.feed = stub.SubscribeEvents(request, metadata=self.runtime.metadata)
        self.frames = aiter(self.feed)
        await anext(self.frames)

    async def product(self) -> float:
        """Waits for what it commits."""
        times = []
        for _ in range(100):
            receipt = (await self.runtime.commit(self.session_id, events=[event()])).receipt
            acknowledged = time.perf_counter()
            while True:
                frame = await anext(self.frames)
                if any(one.sequence == receipt.last_event_sequence for one in frame.events.events):
                    break
            times.append(time.perf_counter() - acknowledged)
        return statistics.median(times)

    async def baseline(self) -> float:
        """E."""
        echo = self.stage.echo
        return await median_latency(100, lambda: echo(b"x"))

    async def clean_up(self) -> None:
        """Ends the subscription."""
        self.feed.cancel()
