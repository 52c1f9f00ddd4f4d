"""The tail of each log partition, read once per server and handed to every reader who has caught up with it.

A signal wakes it and the poll interval bounds what a lost one costs; what it hands out it has read from the log, from
its own position. A reader registers first, reads the log up to the committed end, and then takes over from its sink: no
event falls in between, and one that comes twice is known by its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import DatabaseUnavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.domain.feeds import Extent, ThreadExtent
from threadkeep_runtime.feeds.settings import FeedSettings
from threadkeep_runtime.feeds.sink import Sink
from threadkeep_runtime.store import events_read

_log = structlog.get_logger("threadkeep.feeds")

_EVERYTHING = ("all", "")


class Tails:
    """The tails of all partitions. Each runs while somebody follows it."""

    def __init__(self, database: Database, signals: Signals, settings: FeedSettings, partitions: int) -> None:
        self._tails = [_Tail(database, signals, settings, number) for number in range(partitions)]
        self._settings = settings

    async def attach(self, sink: Sink, extent: Extent) -> None:
        """From now on the sink gets every event of the extent's threads or scopes that is committed after this returns.

        Raises DatabaseUnavailable. `detach` it in the end, also after an error.
        """
        for tail in self._of(extent):
            for route in _routes(extent):
                tail.add(route, sink)
        try:
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                for tail in self._of(extent):
                    await tail.ready.wait()
        except TimeoutError as error:
            raise DatabaseUnavailable() from error

    def detach(self, sink: Sink, extent: Extent) -> None:
        """Forgets the sink."""
        for tail in self._of(extent):
            for route in _routes(extent):
                tail.remove(route, sink)

    def positions(self) -> tuple[int, ...]:
        """How far each tail has handed out. Of those that the caller is attached to, everything up to there."""
        return tuple(tail.position for tail in self._tails)

    @property
    def followers(self) -> int:
        """How many sinks are attached, for metrics and tests."""
        return sum(tail.followers for tail in self._tails)

    async def close(self) -> None:
        """Stops the tails."""
        tasks = [tail.task for tail in self._tails if tail.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, extent: Extent) -> list[_Tail]:
        if isinstance(extent, ThreadExtent):
            return [self._tails[extent.partition]]
        return [tail for partition, tail in enumerate(self._tails) if extent.holds(partition)]


def _routes(extent: Extent) -> Iterator[tuple[str, str]]:
    if isinstance(extent, ThreadExtent):
        yield "thread", extent.thread_key
    elif extent.scope_keys is None:
        yield _EVERYTHING
    else:
        for key in extent.scope_keys:
            yield "scope", key


class _Tail:
    def __init__(self, database: Database, signals: Signals, settings: FeedSettings, partition: int) -> None:
        self._database = database
        self._signals = signals
        self._settings = settings
        self._partition = partition
        self._sinks: dict[tuple[str, str], dict[Sink, None]] = {}
        self.position = 0
        self._is_behind = False
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def followers(self) -> int:
        return sum(len(sinks) for sinks in self._sinks.values())

    def add(self, route: tuple[str, str], sink: Sink) -> None:
        self._sinks.setdefault(route, {})[sink] = None
        if self.task is None or self.task.done():
            # What was committed while nobody followed was handed to nobody, so it starts at the committed end anew.
            self.ready.clear()
            self.task = asyncio.create_task(self._run(), name=f"log tail {self._partition}")

    def remove(self, route: tuple[str, str], sink: Sink) -> None:
        sinks = self._sinks.get(route)
        if sinks is not None:
            sinks.pop(sink, None)
            if not sinks:
                del self._sinks[route]

    async def _run(self) -> None:
        delay = 0.05
        while True:
            try:
                async with self._signals.subscribe(f"log/{self._partition}") as changed:
                    if not self.ready.is_set():
                        async with self._database.read() as connection:
                            self.position = await connection.run(
                                lambda c: events_read.partition_head(c, self._partition)
                            )
                        self.ready.set()
                    idle_since: float | None = None
                    while True:
                        is_full = await self._hand_out()
                        delay = 0.05
                        now = asyncio.get_running_loop().time()
                        idle_since = None if self._sinks else idle_since or now
                        if idle_since is not None and now - idle_since >= self._settings.tail_linger_seconds:
                            self.ready.clear()
                            return
                        if not is_full:
                            await changed.wait()
            except Exception as error:
                _log.warning("log tail stumbles", partition=self._partition, **fault_facts(error))
                await asyncio.sleep(delay)
                delay = min(delay * 2, 2.0)

    async def _hand_out(self) -> bool:
        """Reads on and routes. Returns True if there may be more at once."""
        # Usually one or two events wait; what is far behind is read in large pieces of a bounded size.
        count = self._settings.tail_events if self._is_behind else events_read.FEW
        async with self._database.read() as connection:
            rows = await connection.run(lambda c: events_read.read_tail(c, self._partition, self.position, count))
        for row in rows:
            # No await until the end: a reader who looks at `position` has been offered everything up to it.
            for route in (("thread", row.thread_key), ("scope", row.scope_key), _EVERYTHING):
                for sink in self._sinks.get(route, ()):
                    sink.offer(row)
            self.position = row.position
        self._is_behind = events_read.is_cut(rows, count)
        return self._is_behind
