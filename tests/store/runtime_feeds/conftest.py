"""Feeds without a server: a migrated database of each backend, and events put into the log by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.support.databases import Databases
from tests.support.suite import migrate_one
from tests.support.waiting import PATIENCE_SECONDS
from threadkeep_chassis.database import Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.signals import Signals, signals_for
from threadkeep_runtime.domain.feeds import SCOPE, SESSION, EventFilter, Extent, ThreadExtent, WideExtent
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.feeds.frames import EventsFrame, Frame
from threadkeep_runtime.feeds.settings import FeedSettings
from threadkeep_runtime.store.events_read import EventRow, log_head
from threadkeep_runtime.tables import events, log_floors, log_partitions, threads

T = TypeVar("T")

SCOPE_KEY = "scope-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCOPED = WideExtent(SCOPE, frozenset({SCOPE_KEY}), SCOPE_KEY)


class Log:
    """The event log, written by hand and read by feeds."""

    def __init__(self, database: Database, signals: Signals, partitions: int) -> None:
        self.database = database
        self.signals = signals
        self.partitions = partitions
        self._made: list[Feeds] = []

    def feeds(self, **settings: Any) -> Feeds:
        """Feeds with these settings."""
        made = Feeds(
            self.database, self.signals, b"s" * 32, self.partitions, limits=Limits(), settings=FeedSettings(**settings)
        )
        self._made.append(made)
        return made

    def session(self, number: int) -> ThreadExtent:
        """The extent of a session; `thread` puts it into the database."""
        return ThreadExtent(SESSION, SCOPE_KEY, f"session-{number}", f"thread-{number}", number % self.partitions)

    async def thread(self, number: int) -> ThreadExtent:
        """A new thread without events."""
        extent = self.session(number)
        await self.write(lambda c: c.execute(sa.insert(threads), [_thread(extent)]))
        return extent

    async def append(self, extent: ThreadExtent, count: int = 1, payload: bytes = b"{}", type_: str = "t") -> None:
        """Appends events in one transaction, and signals."""

        def work(connection: Connection) -> None:
            moved = (
                sa.update(log_partitions)
                .where(log_partitions.c.partition == extent.partition)
                .values(position=log_partitions.c.position + count)
                .returning(log_partitions.c.position)
            )
            counted = (
                sa.update(threads)
                .where(threads.c.thread_key == extent.thread_key)
                .values(event_sequence=threads.c.event_sequence + count)
                .returning(threads.c.event_sequence)
            )
            sequence = connection.execute(counted).scalar_one() - count
            position = connection.execute(moved).scalar_one() - count
            connection.execute(
                sa.insert(events),
                [_event(extent, sequence + n, position + n, payload, type_) for n in range(1, count + 1)],
            )

        await self.write(work)
        self.signals.notify(f"log/{extent.partition}")

    async def purge(self, extent: ThreadExtent, upto: int) -> None:
        """Removes the events up to a sequence of a thread that is alone in its partition, as retention does."""

        def work(connection: Connection) -> None:
            connection.execute(sa.delete(events).where(events.c.sequence <= upto))
            of_thread = threads.c.thread_key == extent.thread_key
            connection.execute(sa.update(threads).where(of_thread).values(event_floor=upto))
            connection.execute(sa.delete(log_floors))
            row = {"scope_key": extent.scope_key, "partition": extent.partition, "position": upto}
            connection.execute(sa.insert(log_floors).values(row))

        await self.write(work)

    async def rewind(self, extent: ThreadExtent, number: int) -> None:
        """Sets the counters of a thread that is alone in its partition."""

        def work(connection: Connection) -> None:
            of_partition = log_partitions.c.partition == extent.partition
            connection.execute(sa.update(log_partitions).where(of_partition).values(position=number))
            of_thread = threads.c.thread_key == extent.thread_key
            connection.execute(sa.update(threads).where(of_thread).values(event_sequence=number))

        await self.write(work)

    async def write(self, work: Callable[[Connection], Any]) -> None:
        """Changes the database."""
        async with self.database.write() as connection:
            await connection.run(work)

    async def close(self) -> None:
        """Closes every feeds."""
        for one in self._made:
            await one.close()


@asynccontextmanager
async def reading(
    feeds: Feeds, extent: Extent, after: bytes = b"", *, from_now: bool = False, wanted: EventFilter | None = None
) -> AsyncIterator[AsyncIterator[Frame]]:
    """The frames of a subscription."""
    place = await feeds.reader.start(extent, after, from_now=from_now)
    async with feeds.subscribe(
        extent, wanted or EventFilter(), place, include_live=False, drain=Drain()
    ) as frames, aclosing(frames):  # fmt: skip
        yield frames


async def take(frames: AsyncIterator[Frame], count: int) -> list[EventRow]:
    """The next events. An AssertionError says so when they don't come."""
    found: list[EventRow] = []
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(found) < count:
                frame = await anext(frames)
                if isinstance(frame, EventsFrame):
                    found += [row for row, _ in frame.items]
    except TimeoutError:
        raise AssertionError(f"{len(found)} of {count} events came") from None
    return found


@pytest.fixture
async def log(databases: Databases, backend: str) -> AsyncIterator[Log]:
    """The log of one backend."""
    if backend == "postgres":
        url = await databases.migrated("runtime", lambda url: migrate_one(url, "runtime"))
    else:
        url = await databases.empty(backend)
        if backend == "sqlite":
            await migrate_one(url, "runtime")
    database = await Database.open(url, "runtime")
    await prepare(database, MigrationSet("runtime", "threadkeep_runtime"))
    signals = signals_for(database, poll_seconds=0.5)
    await signals.start()
    async with database.read() as connection:
        partitions = len((await connection.run(log_head)).positions)
    made = Log(database, signals, partitions)
    yield made
    await made.close()
    await signals.close()
    await database.close()
    await databases.drop(url)


def _event(extent: ThreadExtent, sequence: int, position: int, payload: bytes, type_: str) -> dict[str, Any]:
    return {
        "thread_key": extent.thread_key,
        "sequence": sequence,
        "partition": extent.partition,
        "position": position,
        "scope_key": extent.scope_key,
        "session_id": extent.session_id,
        "commit_sequence": sequence,
        "event_id": f"{extent.thread_key}/{sequence}",
        "is_named": False,
        "type": type_,
        "visibility": 2,
        "content_type": "application/json",
        "payload": payload,
        "schema_version": 1,
        "traceparent": "",
        "tracestate": "",
        "create_time": NOW,
    }


def _thread(extent: ThreadExtent) -> dict[str, Any]:
    return {
        "thread_key": extent.thread_key,
        "scope_key": extent.scope_key,
        "session_id": extent.session_id,
        "partition": extent.partition,
        "commit_sequence": 0,
        "event_sequence": 0,
        "title": "",
        "agent_name": "",
        "metadata": {},
        "settings": {},
        "task_count": 0,
        "run_count": 0,
        "checkpoint_top": "",
        "checkpoint_floor": "",
        "revision": 1,
        "create_time": NOW,
        "update_time": NOW,
        "last_activity_time": NOW,
    }
