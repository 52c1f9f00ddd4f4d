"""What resolving a definition costs."""

from __future__ import annotations

import asyncio

from tests.benchmarks.harness import Case, median_latency, rate
from tests.support.config import TOOL, Caller, tool
from tests.support.descriptors import fresh_id
from threadkeep.config.v1 import config_service_pb2 as pb


async def fill(caller: Caller, count: int) -> None:
    """Makes tools `t0` and so on."""
    for start in range(0, count, 64):
        await asyncio.gather(
            *(caller.put(TOOL, f"t{number}", tool(str(number))) for number in range(start, min(count, start + 64)))
        )


class ConfigResolve(Case):
    """Throughput."""

    name = "resolve.64"
    what = "Resolve among many entities, 64 callers, against empty calls"
    unit = "calls/s"
    target = 0.6
    at_least = True

    async def prepare(self) -> None:
        """Entities."""
        self.caller = Caller(self.stage.channel(), {"tenant": fresh_id("tenant")})
        await fill(self.caller, max(500, self.scale.rows // 10))
        self.request = pb.ResolveRequest(type=TOOL, name="t7")

    async def product(self) -> float:
        """Resolve."""
        stub, metadata = self.caller.stub, self.caller.metadata
        return await rate(self.scale.seconds, [lambda: stub.Resolve(self.request, metadata=metadata)] * 64)

    async def baseline(self) -> float:
        """E."""
        echo, data = self.stage.echo, self.request.SerializeToString()
        return await rate(self.scale.seconds, [lambda: echo(data)] * 64)


class ConfigResolveMany(Case):
    """Number of entities."""

    name = "resolve.many"
    what = "median Resolve among many entities, against one among 100"
    unit = "s"
    target = 1.2
    at_least = False

    async def prepare(self) -> None:
        """A scope with many and one with few."""
        self.many, self.few = (Caller(self.stage.channel(), {"tenant": fresh_id("tenant")}) for _ in range(2))
        await fill(self.many, max(500, self.scale.rows // 10))
        await fill(self.few, 100)
        self.request = pb.ResolveRequest(type=TOOL, name="t7")

    async def product(self) -> float:
        """Among many."""
        return await self._resolve(self.many)

    async def baseline(self) -> float:
        """Among few."""
        return await self._resolve(self.few)

    async def _resolve(self, caller: Caller) -> float:
        return await median_latency(300, lambda: caller.stub.Resolve(self.request, metadata=caller.metadata))
