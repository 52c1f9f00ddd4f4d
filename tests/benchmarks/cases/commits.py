"""What a ThreadCommit costs."""

from __future__ import annotations

import asyncio
import itertools

import asyncpg

from tests.benchmarks.harness import Case, median_latency, rate
from tests.support.descriptors import fresh_id
from tests.support.runtime import Runtime, commit, event, text

# Three events and 1 KiB in all, as the specification has it.
EVENTS = [event(payload=text(bytes(300))) for _ in range(3)]


async def fill(runtime: Runtime, session_id: str, events: int) -> None:
    """Brings a thread to about this many events."""
    batch = [event(payload=text(bytes(64))) for _ in range(500)]
    for _ in range(events // 500):
        await runtime.commit(session_id, events=batch)


class Commit64(Case):
    """Throughput."""

    name = "commit.64"
    what = "commits with 1 KiB and 3 events, 64 callers, against empty calls"
    unit = "calls/s"
    target = 0.5
    at_least = True

    async def prepare(self) -> None:
        """A session for each caller."""
        self.runtime = Runtime(self.stage)
        self.names = [(await self.runtime.create()).session_id for _ in range(64)]
        self.request = commit(self.names[0], events=EVENTS).SerializeToString()

    async def product(self) -> float:
        """Commits."""
        calls = [lambda name=name: self.runtime.commit(name, events=EVENTS) for name in self.names]
        return await rate(self.scale.seconds, calls)

    async def baseline(self) -> float:
        """E."""
        echo = self.stage.echo
        return await rate(self.scale.seconds, [lambda: echo(self.request)] * 64)


class CommitLatency(Case):
    """One caller."""

    name = "commit.1"
    what = "one caller's median commit, against an empty call and the bare statements in one transaction"
    unit = "s"
    target = 1.5
    at_least = False

    async def prepare(self) -> None:
        """A session, and the same rows for the bare driver."""
        self.runtime = Runtime(self.stage)
        self.name_ = (await self.runtime.create()).session_id
        self.request = commit(self.name_, events=EVENTS).SerializeToString()
        self.driver: asyncpg.Connection = await self.stage.database("runtime")
        await self.driver.execute(
            """
            CREATE TABLE bare_threads (key text PRIMARY KEY, version bigint, events bigint, seen timestamptz);
            CREATE TABLE bare_commits (key text, sequence bigint, kind text, request text, PRIMARY KEY (key, sequence));
            CREATE TABLE bare_events (key text, sequence bigint, partition int, position bigint, type text, body bytea,
                PRIMARY KEY (key, sequence), UNIQUE (partition, position));
            CREATE TABLE bare_receipts (scope text, request text, body bytea, PRIMARY KEY (scope, request));
            CREATE TABLE bare_counters (partition int PRIMARY KEY, position bigint);
            INSERT INTO bare_threads VALUES ('t', 0, 0, now());
            INSERT INTO bare_counters VALUES (0, 0);
            """
        )
        self.numbers = itertools.count(1)

    async def product(self) -> float:
        """A commit."""
        return await median_latency(150, lambda: self.runtime.commit(self.name_, events=EVENTS))

    async def baseline(self) -> float:
        """E and D."""
        echo = self.stage.echo
        return await median_latency(150, lambda: echo(self.request)) + await median_latency(150, self._bare)

    async def _bare(self) -> None:
        driver, number = self.driver, next(self.numbers)
        async with driver.transaction():
            request = fresh_id()
            await driver.fetch("SELECT body FROM bare_receipts WHERE scope = $1 AND request = $2", "s", request)
            await driver.fetch("SELECT * FROM bare_threads WHERE key = $1 FOR NO KEY UPDATE", "t")
            await driver.execute(
                "UPDATE bare_threads SET version = $1, events = events + 3, seen = now() WHERE key = $2", number, "t"
            )
            await driver.execute("INSERT INTO bare_commits VALUES ($1, $2, 'commit', $3)", "t", number, request)
            last = await driver.fetchval(
                "UPDATE bare_counters SET position = position + 3 WHERE partition = 0 RETURNING position"
            )
            await driver.executemany(
                "INSERT INTO bare_events VALUES ($1, $2, 0, $3, 'order.placed', $4)",
                [("t", number * 3 + place, last - place, bytes(300)) for place in range(3)],
            )
            await driver.execute("INSERT INTO bare_receipts VALUES ('s', $1, $2)", request, bytes(100))

    async def clean_up(self) -> None:
        """Closes the driver."""
        await self.driver.close()


class CommitLongThread(Case):
    """Length of the thread."""

    name = "commit.long"
    what = "median commit on a thread with many events, against one on a new thread"
    unit = "s"
    target = 1.2
    at_least = False

    async def prepare(self) -> None:
        """A long thread and an empty one."""
        self.runtime = Runtime(self.stage)
        self.long, self.empty = [(await self.runtime.create()).session_id for _ in range(2)]
        await fill(self.runtime, self.long, self.scale.rows)
        await asyncio.gather(*(self.runtime.commit(self.empty, events=EVENTS) for _ in range(2)))

    async def product(self) -> float:
        """The long one."""
        return await median_latency(150, lambda: self.runtime.commit(self.long, events=EVENTS))

    async def baseline(self) -> float:
        """The empty one."""
        return await median_latency(150, lambda: self.runtime.commit(self.empty, events=EVENTS))
