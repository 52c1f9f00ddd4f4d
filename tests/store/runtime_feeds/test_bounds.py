"""What readers cost: idle ones next to nothing, and those behind no more than a bounded piece of the log (R14, X9)."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.store.runtime_feeds.conftest import SCOPED, Log, reading, take
from threadkeep_runtime.domain.feeds import EventFilter
from threadkeep_runtime.store.events_read import READ_BYTES

MEGABYTE = 1024 * 1024


@pytest.mark.rule("R14", "X9")
@pytest.mark.case("B82", "B92")
async def test_a_read_is_bounded_by_the_size_of_its_events(log: Log) -> None:
    extent = await log.thread(0)
    await log.append(extent, 3)
    for type_ in ("t", "other"):
        for _ in range(2):
            await log.append(extent, 5, payload=b"x" * MEGABYTE, type_=type_)
    await log.append(extent, 1, payload=b"x" * 5 * MEGABYTE)
    await log.append(extent, 3)
    feeds = log.feeds()
    for feed in (extent, SCOPED):
        for wanted in (EventFilter(), EventFilter(types=frozenset({"t"}))):
            place = await feeds.reader.start(feed, b"")
            seen: list[int] = []
            while (page := await feeds.reader.page(feed, wanted, place, 256)) is not None:
                sizes = [len(row.payload or b"") for row in page.rows]
                assert sum(sizes[:-1]) < READ_BYTES
                seen += [row.sequence for row in page.rows]
                place.move(page.index, page.upto)
            expected = [n for n in range(1, 28) if not (wanted.has_types and 14 <= n <= 23)]
            assert seen == expected
        async with reading(feeds, feed) as frames:
            assert [row.sequence for row in await take(frames, 27)] == list(range(1, 28))


@pytest.mark.rule("R14", "X9")
@pytest.mark.case("B82")
async def test_a_tail_far_behind_reads_bounded_pieces(log: Log) -> None:
    extent = await log.thread(0)
    feeds = log.feeds(queue_bytes=100 * MEGABYTE)
    async with reading(feeds, extent, from_now=True) as frames:
        await anext(frames)
        # In one transaction: the tail meets all of them at once.
        await log.append(extent, 30, payload=b"x" * MEGABYTE)
        await log.append(extent, 30)
        assert [row.sequence for row in await take(frames, 60)] == list(range(1, 61))


@asynccontextmanager
async def nothing() -> AsyncIterator[AsyncIterator[int]]:
    """A stream of the same shape that says one thing and waits for ever."""

    async def frames() -> AsyncIterator[int]:
        yield 1
        await asyncio.get_running_loop().create_future()

    async with aclosing(frames()) as opened:
        yield opened


async def cost_of(stream: Callable[[], AbstractAsyncContextManager[AsyncIterator[Any]]]) -> float:
    """Bytes that each of many idle streams holds."""
    async with AsyncExitStack() as stack:

        async def open_one() -> None:
            frames = await stack.enter_async_context(stream())
            await anext(frames)
            waiting = asyncio.ensure_future(anext(frames))
            stack.push_async_callback(asyncio.gather, waiting, return_exceptions=True)
            stack.callback(waiting.cancel)

        for _ in range(50):
            await open_one()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            await open_one()
        for _ in range(3):
            await asyncio.sleep(0)
        held = (tracemalloc.get_traced_memory()[0] - before) / 300
        tracemalloc.stop()
    return held


@pytest.mark.rule("R14", "X9")
@pytest.mark.suite(backends=["memory"])
async def test_an_idle_subscription_holds_little_beyond_an_empty_stream(log: Log) -> None:
    """With the call around it that is measured by `make bench CASE=events.idle`: less than 8 KiB."""
    extent = await log.thread(0)
    feeds = log.feeds()
    beyond = await cost_of(lambda: reading(feeds, extent, from_now=True)) - await cost_of(nothing)
    assert beyond < 6000
