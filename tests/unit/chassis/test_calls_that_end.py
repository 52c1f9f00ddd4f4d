"""Calls that end early: what a dropped stream, a lost client or a deadline frees (B96)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.support.waiting import eventually
from tests.unit.chassis.probe import ProbeClient, ProbeServicer, hosted, probe
from threadkeep_chassis.scope import current_call


@pytest.mark.case("B96")
async def test_a_dropped_stream_frees_what_its_handler_holds() -> None:
    started, freed = asyncio.Event(), asyncio.Event()

    async def feed(request: Any) -> AsyncIterator[Any]:
        try:
            yield probe.FeedResponse()
            started.set()
            await asyncio.Event().wait()
        finally:
            freed.set()

    servicer = ProbeServicer()
    servicer.feed = feed
    async with hosted(servicer) as (_, client):
        call = client.feed()
        await call.read()
        await started.wait()
        call.cancel()
        await asyncio.wait_for(freed.wait(), 1)


@pytest.mark.case("B96")
async def test_a_stream_dropped_while_its_reader_is_behind_is_freed_too() -> None:
    sent: list[int] = []
    freed = asyncio.Event()

    async def feed(request: Any) -> AsyncIterator[Any]:
        try:
            while True:
                sent.append(1)
                yield probe.FeedResponse(padding=bytes(64 * 1024))
        finally:
            freed.set()

    servicer = ProbeServicer()
    servicer.feed = feed
    async with hosted(servicer) as (_, client):
        call = client.feed()
        await call.read()

        async def is_held_back() -> bool:
            before = len(sent)
            await asyncio.sleep(0.2)
            return len(sent) == before

        # Flow control stops a writer whose reader does not read.
        assert await eventually(is_held_back)
        call.cancel()
        await asyncio.wait_for(freed.wait(), 1)


@pytest.mark.case("B96")
async def test_a_client_that_goes_away_without_a_word_frees_its_streams_too() -> None:
    freed = asyncio.Event()

    async def feed(request: Any) -> AsyncIterator[Any]:
        try:
            yield probe.FeedResponse()
            await asyncio.Event().wait()
        finally:
            freed.set()

    servicer = ProbeServicer()
    servicer.feed = feed
    async with hosted(servicer) as (host, _):
        channel = grpc.aio.insecure_channel(host.address)
        call = ProbeClient(channel).feed()
        await call.read()
        await channel.close()
        await asyncio.wait_for(freed.wait(), 5)


async def test_a_deadline_cancels_its_handler_and_is_known_to_it() -> None:
    left: list[float | None] = []
    cancelled = asyncio.Event()

    async def change(request: Any) -> Any:
        left.append(current_call().seconds_left)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    servicer = ProbeServicer()
    servicer.change = change
    async with hosted(servicer) as (_, client):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.change(timeout=0.3)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(cancelled.wait(), 2)
        assert left[0] is not None
        assert 0 < left[0] <= 0.3
        servicer.change = servicer._echo
        await client.change()
