"""What it costs to look at threads: their view, and the list of sessions."""

from __future__ import annotations

import asyncio

from tests.benchmarks.cases.commits import fill
from tests.benchmarks.harness import Case, median_latency
from tests.support.checkpoints import Saver, put, value
from tests.support.runtime import Runtime, event
from threadkeep.runtime.v1 import session_service_pb2


class ViewLongThread(Case):
    """Length of the thread."""

    name = "view.long"
    what = "median GetThreadView of a thread with many events, against one of a new thread"
    unit = "s"
    target = 1.2
    at_least = False

    async def prepare(self) -> None:
        """A long thread and an almost empty one."""
        self.runtime = Runtime(self.stage)
        self.long, self.empty = [(await self.runtime.create()).session_id for _ in range(2)]
        await fill(self.runtime, self.long, self.scale.rows)
        # The last commits are alike: what differs is what lies before them.
        for name in (self.long, self.empty):
            await self.runtime.commit(name, events=[event()])

    async def product(self) -> float:
        """The long one."""
        return await median_latency(150, lambda: self.runtime.view(self.long))

    async def baseline(self) -> float:
        """The empty one."""
        return await median_latency(150, lambda: self.runtime.view(self.empty))


class ListSessions(Case):
    """Number and size of checkpoints."""

    name = "sessions.list"
    what = "median ListSessions beside many checkpoints of 50 KB, against one beside 200"
    unit = "s"
    target = 2.0
    at_least = False

    async def prepare(self) -> None:
        """Two scopes of 50 sessions, one with many checkpoints."""
        self.many, self.few = Runtime(self.stage), Runtime(self.stage)
        for runtime, checkpoints in ((self.many, max(2_000, self.scale.rows // 5)), (self.few, 200)):
            savers = [Saver(runtime.world, (await runtime.create()).session_id) for _ in range(50)]
            for number in range(1, checkpoints // 50 + 1):
                await asyncio.gather(
                    *(saver.put(put(number, value("state", str(number), bytes(50_000)))) for saver in savers)
                )

    async def product(self) -> float:
        """Beside many."""
        return await self._list(self.many)

    async def baseline(self) -> float:
        """Beside few."""
        return await self._list(self.few)

    async def _list(self, runtime: Runtime) -> float:
        request = session_service_pb2.ListSessionsRequest(page_size=50)
        return await median_latency(100, lambda: runtime.call("SessionService.ListSessions", request))
