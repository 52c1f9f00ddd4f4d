"""What watchers cost: many at once, one that starts cold, and those to whom nothing happens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.benchmarks.cases.config import fill
from tests.benchmarks.cases.idle import IdleStreams
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.harness import Case
from tests.support.config import TOOL, Caller, tool
from tests.support.descriptors import fresh_id
from threadkeep.config.v1 import config_service_pb2 as pb

MANY_STREAMS: Mapping[str, str] = {
    "THREADKEEP_MAX_CONCURRENT_RPCS": "50000",
    "THREADKEEP_LIMITS": '{"max_subscriptions": 20000}',
}
WATCH = "/threadkeep.config.v1.ConfigService/Watch"


class WatchFanOut(Case):
    """One write, many readers."""

    name = "watch.fanout"
    what = "messages per second of one write at a time to 1,000 watchers, against a prebuilt one to as many streams"
    unit = "messages/s"
    target = 0.7
    at_least = True
    services = ("config",)
    environment = MANY_STREAMS
    count = 1000

    async def prepare(self) -> None:
        """Watchers of one definition, and as many streams that hear the bell."""
        self.caller = Caller(self.stage.channel(), {"tenant": fresh_id("tenant")})
        await self.caller.put(TOOL, "t", tool("first"))
        self.rounds = 10 * self.scale.pairs
        self.watchers, self.hearers = Crowd(), Crowd()
        # Both are read as bytes: what a client makes of them is its own affair.
        watch = self.stage.channel().unary_stream(WATCH)
        request = pb.WatchRequest().SerializeToString()
        for _ in range(self.count):
            await self.watchers.join(watch(request, metadata=self.caller.metadata))
            await self.hearers.join(self.stage.hear(b""))
        frames = aiter(self.caller.stub.Watch(pb.WatchRequest(), metadata=self.caller.metadata))
        self.room = bytes((await anext(frames)).ByteSize())

    async def product(self) -> float:
        """Writes, until all have it."""
        return await self.watchers.rate(self.rounds, lambda mark: self.caller.put(TOOL, "t", tool(mark.decode())))

    async def baseline(self) -> float:
        """S, on as many streams."""
        return await self.hearers.rate(self.rounds, lambda mark: self.stage.bell(mark + self.room))

    async def clean_up(self) -> None:
        """Ends the streams."""
        await self.watchers.leave()
        await self.hearers.leave()


class WatchColdStart(Case):
    """A snapshot."""

    name = "watch.cold"
    what = "entities per second until a new watcher is in sync, against a stream of prebuilt ones, one per message"
    unit = "entities/s"
    target = 0.5
    at_least = True
    services = ("config",)

    async def prepare(self) -> None:
        """Entities."""
        self.caller = Caller(self.stage.channel(), {"tenant": fresh_id("tenant")})
        self.count = max(2000, self.scale.rows // 10)
        await fill(self.caller, self.count)
        self.size = (await self.caller.get(TOOL, "t7")).ByteSize()

    async def product(self) -> float:
        """A watch, until it says that it is in sync."""
        started, seen = time.perf_counter(), 0
        watch = self.caller.stub.Watch(pb.WatchRequest(), metadata=self.caller.metadata)
        async for frame in watch:
            seen += len(frame.changes.changes)
            if frame.HasField("synced"):
                break
        seconds = time.perf_counter() - started
        watch.cancel()
        assert seen == self.count
        return seen / seconds

    async def baseline(self) -> float:
        """S."""
        started = time.perf_counter()
        async for _ in self.stage.echo_stream(json.dumps({"count": self.count, "size": self.size}).encode()):
            pass
        return self.count / (time.perf_counter() - started)


class WatchIdle(IdleStreams):
    """Memory of the server."""

    name = "watch.idle"
    what = "server memory of an idle watcher beyond that of an empty stream, against 8 KiB"
    services = ("config",)
    environment: ClassVar[Mapping[str, str]] = MANY_STREAMS
    most = 10_000

    async def prepare(self) -> None:
        """A definition."""
        await super().prepare()
        self.caller = Caller(self.stage.channel(), {"tenant": fresh_id("tenant")})
        await self.caller.put(TOOL, "t", tool())

    def begin(self) -> Any:
        """A watch."""
        return self.caller.stub.Watch(pb.WatchRequest(), metadata=self.caller.metadata)
