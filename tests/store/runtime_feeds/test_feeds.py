"""What can't be seen from the wire: retention, restores, slow readers, and what a feed holds (R14)."""

import asyncio
import base64

import pytest
import sqlalchemy as sa

from tests.store.runtime_feeds.conftest import SCOPED, Log, reading, take
from tests.support.waiting import eventually
from threadkeep_chassis.errors import CursorExpired, CursorUnknown, DatabaseUnavailable, LimitExceeded, ShuttingDown
from threadkeep_chassis.scope import Drain
from threadkeep_runtime.domain.feeds import EventFilter, Extent
from threadkeep_runtime.feeds.frames import BookmarkFrame, EventsFrame
from threadkeep_runtime.tables import log_partitions


async def cursors(log: Log, extent: Extent, count: int) -> list[bytes]:
    async with reading(log.feeds(), extent) as frames:
        found: list[bytes] = []
        while len(found) < count:
            frame = await anext(frames)
            if isinstance(frame, EventsFrame):
                found += [cursor for _, cursor in frame.items]
        return found


@pytest.mark.rule("R14")
@pytest.mark.case("B73")
async def test_a_cursor_below_what_is_kept_is_expired_and_names_the_oldest_left(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 6)
    for feed in (extent, SCOPED):
        seen = await cursors(log, feed, 6)
        reader = log.feeds().reader
        await log.purge(extent, 3)
        with pytest.raises(CursorExpired) as expired:
            await reader.start(feed, seen[1])
        assert base64.b64decode(expired.value.metadata["oldest_cursor"]) == seen[2]
        async with reading(log.feeds(), feed, seen[2]) as frames:
            assert [row.sequence for row in await take(frames, 3)] == [4, 5, 6]
        async with reading(log.feeds(), feed) as frames:
            assert [row.sequence for row in await take(frames, 3)] == [4, 5, 6]
        await log.purge(extent, 6)
        await log.purge(extent, 0)
        await log.rewind(extent, 0)
        await log.append(extent, 6)


@pytest.mark.rule("R14")
async def test_when_everything_was_removed_the_end_is_the_oldest_left(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 3)
    seen = await cursors(log, extent, 3)
    await log.purge(extent, 3)
    with pytest.raises(CursorExpired) as expired:
        await log.feeds().reader.start(extent, seen[0])
    assert base64.b64decode(expired.value.metadata["oldest_cursor"]) == seen[2]
    await log.append(extent)
    async with reading(log.feeds(), extent, seen[2]) as frames:
        assert [row.sequence for row in await take(frames, 1)] == [4]


@pytest.mark.rule("R14")
async def test_after_a_restore_a_cursor_is_unknown(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 3)
    for feed in (extent, SCOPED):
        last = (await cursors(log, feed, 3))[2]
        reader = log.feeds().reader
        # Restored to before the last event, and nobody has said so.
        await log.rewind(extent, 2)
        with pytest.raises(CursorUnknown):
            await reader.start(feed, last)
        await log.rewind(extent, 3)
        await reader.start(feed, last)
        restored = sa.update(log_partitions).values(incarnation=f"after-{feed.kind}")
        await log.write(lambda c, restored=restored: c.execute(restored))
        with pytest.raises(CursorUnknown):
            await reader.start(feed, last)


@pytest.mark.rule("R14")
async def test_a_reader_whose_queue_overflows_goes_back_to_the_log_and_misses_nothing(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds(queue_events=3, frame_events=2)
    for feed in (extent, SCOPED):
        async with reading(feeds, feed, from_now=True) as frames:
            assert isinstance(await anext(frames), BookmarkFrame)
            for _ in range(10):
                await log.append(extent, 2)
            numbers = [row.sequence for row in await take(frames, 20)]
            assert numbers == list(range(numbers[0], numbers[0] + 20))


@pytest.mark.rule("R14")
@pytest.mark.case("B82")
async def test_a_reader_who_stops_reading_holds_little_and_slows_nobody(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds(queue_events=10, queue_bytes=100_000)
    async with reading(feeds, extent, from_now=True) as stopped, reading(feeds, extent, from_now=True) as reader:
        await anext(stopped)
        await anext(reader)
        for number in range(40):
            await log.append(extent, payload=b"x" * 20_000)
            assert [row.sequence for row in await take(reader, 1)] == [number + 1]
        sinks = {sink for tail in feeds.tails._tails for group in tail._sinks.values() for sink in group}
        assert max(len(sink) for sink in sinks) <= 10
        assert len(await take(stopped, 40)) == 40


@pytest.mark.rule("R14")
@pytest.mark.case("B80", "B96")
async def test_a_closed_feed_holds_nothing(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 5)
    feeds = log.feeds()
    for feed in (extent, SCOPED):
        for _ in range(20):
            async with reading(feeds, feed) as frames:
                await take(frames, 2)
        task = asyncio.ensure_future(_read_forever(feeds, feed))
        await eventually(lambda: feeds.subscriptions == 1 and feeds.tails.followers > 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (feeds.subscriptions, feeds.tails.followers, feeds.live.readers) == (0, 0, 0)


async def _read_forever(feeds, extent):  # type: ignore[no-untyped-def]
    async with reading(feeds, extent) as frames:
        async for _ in frames:
            pass


@pytest.mark.rule("R14")
async def test_the_tail_comes_back_after_nobody_followed_it(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds(tail_linger_seconds=0.0)
    for first in range(0, 9, 3):
        async with reading(feeds, extent, from_now=True) as frames:
            assert isinstance(await anext(frames), BookmarkFrame)
            await log.append(extent, 2)
            assert [row.sequence for row in await take(frames, 2)] == [first + 1, first + 2]
        log.signals.notify(f"log/{extent.partition}")
        await eventually(lambda: all(tail.task is None or tail.task.done() for tail in feeds.tails._tails))
        await log.append(extent)


@pytest.mark.rule("R14")
async def test_a_lost_signal_costs_latency_and_no_event(log: Log) -> None:
    extent = await log.thread(0)
    async with reading(log.feeds(), extent, from_now=True) as frames:
        await anext(frames)
        notify, log.signals.notify = log.signals.notify, lambda *topics: None  # type: ignore[method-assign]
        await log.append(extent)
        log.signals.notify = notify  # type: ignore[method-assign]
        assert [row.sequence for row in await take(frames, 1)] == [1]


@pytest.mark.rule("R14")
async def test_bookmarks_come_while_others_write(log: Log) -> None:
    quiet, loud = await log.thread(0), await log.thread(log.partitions)
    feeds = log.feeds(bookmark_seconds=0.05)
    async with reading(feeds, SCOPED, wanted=EventFilter.of(("never",), 3)) as frames:
        first = await anext(frames)
        await log.append(loud, 3)
        second = await anext(frames)
    assert isinstance(first, BookmarkFrame)
    assert isinstance(second, BookmarkFrame)
    await log.append(quiet)
    async with reading(feeds, SCOPED, second.cursor) as frames:
        assert [row.thread_key for row in await take(frames, 1)] == [quiet.thread_key]


@pytest.mark.rule("R14")
async def test_a_filtered_feed_looks_at_the_log_window_by_window(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 50)
    await log.append(extent, type_="wanted")
    await log.append(extent, 50)
    feeds = log.feeds(window_positions=7)
    async with reading(feeds, SCOPED, wanted=EventFilter.of(("wanted",), 3)) as frames:
        assert [row.sequence for row in await take(frames, 1)] == [51]
        await log.append(extent, 3)
        await log.append(extent, type_="wanted")
        assert [row.sequence for row in await take(frames, 1)] == [105]


@pytest.mark.rule("R14")
async def test_a_draining_server_says_where_to_go_on(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 2)
    feeds, drain = log.feeds(), Drain()
    place = await feeds.reader.start(extent, b"")
    async with feeds.subscribe(extent, EventFilter(), place, include_live=False, drain=drain) as frames:
        await take(frames, 2)
        waiting = asyncio.ensure_future(anext(frames))
        drain.begin()
        with pytest.raises(ShuttingDown) as ended:
            await waiting
    async with reading(feeds, extent, base64.b64decode(ended.value.metadata["resume_cursor"])) as frames:
        await log.append(extent)
        assert [row.sequence for row in await take(frames, 1)] == [3]


@pytest.mark.rule("X9")
async def test_the_number_of_subscriptions_is_bounded(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds()
    feeds._open = feeds._limits["max_subscriptions"]
    with pytest.raises(LimitExceeded):
        async with reading(feeds, extent):
            pass


@pytest.mark.rule("R14")
async def test_a_subscription_that_the_database_keeps_waiting_gives_up(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds(start_timeout_seconds=0.2)
    place = await feeds.reader.start(extent, b"")

    def broken() -> None:
        raise DatabaseUnavailable()

    read, log.database.read = log.database.read, broken  # type: ignore[method-assign]
    try:
        with pytest.raises(DatabaseUnavailable):
            async with feeds.subscribe(extent, EventFilter(), place, include_live=False, drain=Drain()) as frames:
                await anext(frames)
    finally:
        log.database.read = read  # type: ignore[method-assign]
    await log.append(extent)
    async with reading(feeds, extent) as frames:
        assert len(await take(frames, 1)) == 1
