"""What a long history of definitions costs: the same calls on a service with many revisions and on an empty one."""

from __future__ import annotations

import itertools
from abc import abstractmethod

from tests.benchmarks.harness import Case, median_latency
from tests.benchmarks.stage import Stage
from tests.support.config import TOOL, Caller, tool
from tests.support.descriptors import fresh_id
from threadkeep.config.v1 import config_service_pb2 as pb

ENTITIES = 1000
"""Among so many definitions the revisions are dealt out."""
CALLS = 150

# As if each of the definitions had been written again and again: each row of the log, and the newest of it.
_HISTORY = f"""
INSERT INTO revisions (revision, type, name, scope_key, deleted, hidden, definition, definition_bytes, digest,
    source_kind, source_path, create_time, update_time)
SELECT counter.revision + place, type, 'old-' || place % {ENTITIES}, scope_key, deleted, hidden, definition,
    definition_bytes, digest, source_kind, source_path, create_time, update_time
FROM counter, generate_series(1, $1) AS place, (SELECT * FROM revisions WHERE name = 'seed') AS seed;
"""
_NEWEST = f"""
INSERT INTO entities
SELECT type, name, scope_key, revision, deleted, hidden, definition, definition_bytes, digest, source_kind, source_path,
    create_time, update_time
FROM revisions WHERE name LIKE 'old-%' ORDER BY revision DESC LIMIT {ENTITIES}
"""
_COUNTED = "UPDATE counter SET revision = (SELECT max(revision) FROM revisions)"


class _History(Case):
    """A service with a history beside one without."""

    unit = "s"
    target = 1.2
    at_least = False
    services = ("config",)

    async def prepare(self) -> None:
        """Writes history beneath the first service, and starts the second."""
        self.empty = Stage(self.services, databases=self.stage.databases)
        await self.empty.open()
        self.callers = []
        for stage in (self.stage, self.empty):
            caller = Caller(stage.channel(), {"tenant": fresh_id("tenant")})
            await caller.put(TOOL, "seed", tool())
            self.callers.append(caller)
        driver = await self.stage.database("config")
        try:
            async with driver.transaction():
                await driver.execute(_HISTORY, self.scale.rows)
                await driver.execute(_NEWEST)
                await driver.execute(_COUNTED)
            await driver.execute("ANALYZE")
        finally:
            await driver.close()
        self.numbers = itertools.count()
        # The first write after it lets the service see what was written beneath it.
        for caller in self.callers:
            await caller.put(TOOL, "seed", tool("again"))

    async def product(self) -> float:
        """With history."""
        return await self.measured(self.callers[0])

    async def baseline(self) -> float:
        """Without."""
        return await self.measured(self.callers[1])

    @abstractmethod
    async def measured(self, caller: Caller) -> float:
        """Seconds of a call."""

    async def clean_up(self) -> None:
        """Ends the second service."""
        await self.empty.close()


class HistoryResolve(_History):
    """Reading."""

    name = "history.resolve"
    what = "median Resolve with many revisions in the history, against one without"

    async def measured(self, caller: Caller) -> float:
        """Resolve."""
        request = pb.ResolveRequest(type=TOOL, name="seed")
        return await median_latency(CALLS, lambda: caller.stub.Resolve(request, metadata=caller.metadata))


class HistoryWrite(_History):
    """Writing."""

    name = "history.write"
    what = "median PutEntity with many revisions in the history, against one without"

    async def measured(self, caller: Caller) -> float:
        """PutEntity, with content that changes."""
        return await median_latency(CALLS, lambda: caller.put(TOOL, "seed", tool(str(next(self.numbers)))))


class HistoryResume(_History):
    """Watching."""

    name = "history.resume"
    what = "median resume of a Watch at the last revision but one, with many revisions in the history, against without"

    async def measured(self, caller: Caller) -> float:
        """From the resume to the one change that was missed."""
        entity = await caller.get(TOOL, "seed")
        request = pb.WatchRequest(after_revision=entity.revision - 1)

        async def resume() -> None:
            frames = caller.stub.Watch(request, metadata=caller.metadata)
            async for frame in frames:
                if frame.HasField("changes"):
                    break
            frames.cancel()

        return await median_latency(CALLS, resume)
