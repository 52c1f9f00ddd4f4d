"""Position order is commit order, whoever writes: readers skip nothing and see threads in order (R14, B50)."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from sqlalchemy.engine import Connection

from tests.store.runtime_feeds.conftest import Log, reading, take
from tests.support.waiting import PATIENCE_SECONDS, eventually
from threadkeep_chassis.ids import new_id
from threadkeep_runtime.domain.commands import CommitThread, CreateSession, SessionDraft
from threadkeep_runtime.domain.feeds import SCOPE, WideExtent
from threadkeep_runtime.domain.values import BUILDER, Event, partition_of, thread_key_of
from threadkeep_runtime.pipeline import Work
from threadkeep_runtime.pipeline.transaction import Transactor
from threadkeep_runtime.pipeline.work import clock_of
from threadkeep_runtime.store.apply import Known
from threadkeep_runtime.store.events_read import EventRow

pytestmark = pytest.mark.suite(backends=["postgres"])

SCOPE_KEY = "scope-of-writers"
ALL = WideExtent(SCOPE, frozenset({SCOPE_KEY}), SCOPE_KEY)


class Writers:
    """What several replicas would do to one database, each transaction held open as a test likes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._transactor = Transactor(log.partitions, new_id, clock_of(log.database), Known())

    def sessions(self, count: int, partition: int | None = None) -> list[str]:
        """Session ids, of one partition if it is given."""
        names = (f"session-{number}" for number in range(100_000))
        wanted = (
            name
            for name in names
            if partition is None or partition_of(thread_key_of(SCOPE_KEY, name), self._log.partitions) == partition
        )
        return [next(wanted) for _ in range(count)]

    async def create(self, session_id: str) -> None:
        """Creates a session."""
        await self.write(CreateSession(**_to(session_id), draft=SessionDraft()))

    async def append(self, session_id: str, type_: str, hold: Callable[[], Any] | None = None) -> None:
        """Appends an event in a transaction of its own; before it commits, `hold` is awaited."""
        event = Event(new_id(), False, type_, BUILDER, None, None, None)
        await self.write(CommitThread(**_to(session_id), events=(event,)), hold)

    async def write(self, command: Any, hold: Callable[[], Any] | None = None) -> None:
        def work(connection: Connection) -> None:
            written = self._transactor.process(connection, [Work(command)])
            assert written.applied, written.outcomes

        async with self._log.database.write() as connection:
            await connection.run(work)
            if hold is not None:
                await hold()
        self._log.signals.notify(
            f"log/{partition_of(thread_key_of(SCOPE_KEY, command.session_id), self._log.partitions)}"
        )


def _to(session_id: str) -> dict[str, Any]:
    return {
        "scope_key": SCOPE_KEY,
        "scope": b"{}",
        "session_id": session_id,
        "thread_key": thread_key_of(SCOPE_KEY, session_id),
    }


async def is_waiting_for_a_lock(log: Log) -> bool:
    connection: asyncpg.Connection = await log.database.postgres.connect("watch")  # type: ignore[union-attr]
    try:
        return bool(
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )
    finally:
        await connection.close()


@pytest.mark.rule("R14")
@pytest.mark.case("B50")
async def test_who_takes_a_position_first_commits_first_and_the_reader_misses_neither(log: Log) -> None:
    """A takes its position and waits; B, of the same partition, wants to commit; a reader follows meanwhile."""
    writers = Writers(log)
    slow, quick = writers.sessions(2, partition=0)
    for session in (slow, quick):
        await writers.create(session)
    took_its_position, may_commit = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        took_its_position.set()
        await may_commit.wait()

    async with reading(log.feeds(), ALL, from_now=True) as frames:
        await anext(frames)
        first = asyncio.ensure_future(writers.append(slow, "of-the-slow", hold))
        await took_its_position.wait()
        second = asyncio.ensure_future(writers.append(quick, "of-the-quick"))

        async def is_settled() -> bool:
            return second.done() or await is_waiting_for_a_lock(log)

        await eventually(is_settled)
        overtaken = second.done()
        may_commit.set()
        await asyncio.gather(first, second)
        assert not overtaken
        seen = [row.type for row in await take(frames, 2)]
    assert seen == ["of-the-slow", "of-the-quick"]


@pytest.mark.rule("R14")
@pytest.mark.case("B50")
async def test_many_writers_with_random_delays_leave_no_gap_and_no_reorder(log: Log) -> None:
    writers, chance = Writers(log), random.Random(50)
    # Most of them meet in one partition.
    sessions = [*writers.sessions(16, partition=0), *writers.sessions(8, partition=1)]
    for session in sessions:
        await writers.create(session)
    wanted = 24 * 12
    narrow_feed, wide_feed, resuming_feed = log.feeds(), log.feeds(queue_events=16), log.feeds(frame_events=5)

    async def write(session: str) -> None:
        for number in range(12):
            # One in eight dawdles between its position and its commit.
            pause = chance.random() * 0.04 if chance.random() < 0.125 else 0.0
            await writers.append(session, f"n{number}", lambda pause=pause: asyncio.sleep(pause))

    async def resume() -> list[EventRow]:
        """Reads some frames, leaves, and goes on from its last cursor."""
        found: list[EventRow] = []
        cursor = start
        while len(found) < wanted:
            async with reading(resuming_feed, ALL, cursor) as frames:
                for _ in range(3):
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        frame = await anext(frames)
                    cursor = frame.cursor
                    found += [row for row, _ in getattr(frame, "items", ())]
                    if len(found) >= wanted:
                        break
        return found

    start = (await wide_feed.reader.start(ALL, b"", from_now=True)).cursor()
    async with reading(wide_feed, ALL, start) as wide:
        extent = await narrow_feed.reader.find(SCOPE_KEY, "session", sessions[0])
        async with reading(narrow_feed, extent, from_now=True) as narrow:
            await anext(narrow)
            resuming = asyncio.ensure_future(resume())
            reads = asyncio.ensure_future(take(wide, wanted)), asyncio.ensure_future(take(narrow, 12))
            await asyncio.gather(*(write(session) for session in sessions))
            of_all, of_one = await asyncio.gather(*reads)
            resumed = await resuming
    for found in (of_all, resumed):
        by_session: dict[str, list[int]] = defaultdict(list)
        for row in found:
            by_session[row.session_id].append(row.sequence)
        assert {name: numbers == list(range(2, 14)) for name, numbers in by_session.items()} == dict.fromkeys(
            sessions, True
        )
    assert [row.sequence for row in of_one] == list(range(2, 14))
