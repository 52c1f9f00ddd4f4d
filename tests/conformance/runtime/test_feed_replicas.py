"""Two servers on one database: a feed goes on at either (R14)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import grpc
import pytest

from tests.conformance.runtime.test_live import observation
from tests.support.calls import grant
from tests.support.databases import Databases
from tests.support.examples.world import World
from tests.support.feeds import append, follow, is_dense, listed, subscribed
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import event_pb2, worker_service_pb2
from threadkeep_chassis.hosting import Host
from threadkeep_runtime.feeds.settings import FeedSettings
from threadkeep_runtime.server import build
from threadkeep_runtime.settings import RuntimeSettings

pytestmark = pytest.mark.suite(backends=["postgres"], topologies=["embedded"])


class Replica:
    """A second runtime on a suite's database, for a World to speak to."""

    def __init__(self, suite: Suite, channel: grpc.aio.Channel) -> None:
        self._suite = suite
        self._channel = channel

    def channel(self, service: str) -> grpc.aio.Channel:
        """Its own channel for the runtime, the suite's for the others."""
        return self._channel if service == "runtime" else self._suite.channel(service)


@pytest.fixture
async def second(shared_suite: Suite) -> AsyncIterator[Replica]:
    """The second server."""
    service = build(RuntimeSettings(database_url=shared_suite.urls["runtime"]))
    async with Host([service], peers=dict(shared_suite.addresses)) as host:
        async with grpc.aio.insecure_channel(host.address) as channel:
            yield Replica(shared_suite, channel)


@pytest.mark.rule("R14")
async def test_what_one_replica_commits_the_others_subscribers_see(world: World, second: Replica) -> None:
    there = World(second, **world.values)
    session_id = (await world.session()).session.session_id
    async with follow(there, session_id=session_id) as narrow, follow(there) as wide:
        await narrow.event()
        await wide.event()
        for _ in range(3):
            await append(world, session_id, "here")
            await append(there, session_id, "there")
        assert [one.type for one in await narrow.events(6)] == ["here", "there"] * 3
        assert [one.type for one in await wide.events(6)] == ["here", "there"] * 3


@pytest.mark.rule("R14")
async def test_a_cursor_of_one_replica_goes_on_at_the_other_while_both_write(world: World, second: Replica) -> None:
    there = World(second, **world.values)
    sessions = [(await world.session()).session.session_id for _ in range(4)]
    start = (await listed(world))[-1].cursor

    async def write(session_id: str) -> None:
        for number in range(10):
            await append((world, there)[number % 2], session_id, "n")

    async def read() -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        cursor, turn = start, 0
        while len(seen) < 40:
            turn += 1
            async with follow((world, there)[turn % 2], after=cursor) as feed:
                while not (frame := await feed.frame()).HasField("events"):
                    pass
                seen += [(one.session_id, one.sequence) for one in frame.events.events]
                cursor = frame.cursor
        return seen

    seen, *_ = await asyncio.gather(read(), *(write(session_id) for session_id in sessions))
    for session_id in sessions:
        assert [number for name, number in seen if name == session_id] == list(range(2, 12))
    assert is_dense(await listed(there, session_id=sessions[0]))


@pytest.mark.rule("R15")
async def test_live_observations_reach_the_readers_of_every_replica(world: World, second: Replica) -> None:
    there = World(second, **world.values)
    held = await world.lease()
    small, large = observation(1), observation(2, b'{"text":"%b"}' % (b"x" * 300_000))
    extents = ({"session_id": held.run.session_id}, {"run_id": held.run.run_id}, {"task_id": held.run.task_id}, {})
    async with (
        follow(there, include_live=True, from_now=True, **extents[0]) as a,
        follow(there, include_live=True, from_now=True, **extents[1]) as b,
        follow(there, include_live=True, from_now=True, **extents[2]) as c,
        follow(there, include_live=True, from_now=True) as d,
        follow(world, include_live=True, from_now=True) as here,
        subscribed(second.channel("runtime"), grant(world.values), include_live=True, from_now=True) as granted,
        follow(World(second), include_live=True, from_now=True) as stranger,
    ):
        for feed in (a, b, c, d, here, granted, stranger):
            await feed.until("bookmark")
        await _known(world, held, a)
        for one in (small, large):
            await _publish(world, held, one)
        for feed in (b, c, d, here, granted):
            first = await _past(feed, 1)
            second_one = await feed.until("live")
            assert (first.index, second_one.index) == (1, 2)
            assert second_one.payload.data == large.payload.data
            assert (first.session_id, first.run_id) == (held.run.session_id, held.run.run_id)
        assert dict(second_one.scope.values) == world.values
        assert not any(frame.HasField("live") for frame in stranger.frames)


async def _publish(world: World, held: Any, *observations: event_pb2.LiveObservation) -> None:
    request = worker_service_pb2.PublishLiveRequest(lease=held.lease, observations=observations)
    await world.bind("WorkerService.PublishLive")(iter([request]), metadata=world.metadata, timeout=30)


async def _known(world: World, held: Any, feed: Any) -> None:
    """Publishes until a reader elsewhere is known here: from then on nothing of what it looks at passes it by."""
    coming = asyncio.ensure_future(feed.until("live"))
    number = 100

    async def one_arrives() -> bool:
        nonlocal number
        number += 1
        await _publish(world, held, observation(number))
        return coming.done()

    await eventually(one_arrives, interval=0.05)
    await coming


async def _past(feed: Any, index: int) -> event_pb2.LiveObservation:
    """The observation of this index; those that came before it are passed over."""
    while (one := await feed.until("live")).index != index:
        pass
    return one


@pytest.mark.rule("R15")
async def test_what_is_too_much_for_another_replica_or_lost_on_the_way_is_a_gap(
    databases: Databases, shared_suite: Suite
) -> None:
    """The first has little room for the second; then the second's listener is cut off while the first goes on."""
    little = {"feeds": FeedSettings(live_peer_items=4, live_announce_seconds=0.2)}
    url = shared_suite.urls["runtime"]
    first = Host([build(RuntimeSettings(database_url=url, **little))], peers=dict(shared_suite.addresses))
    other = Host([build(RuntimeSettings(database_url=url, **little))], peers=dict(shared_suite.addresses))
    async with (
        first,
        other,
        grpc.aio.insecure_channel(first.address) as channel,
        grpc.aio.insecure_channel(other.address) as far,
    ):
        world = World(Replica(shared_suite, channel))
        there = World(Replica(shared_suite, far), **world.values)
        held = await world.lease()
        async with follow(there, include_live=True, from_now=True, session_id=held.run.session_id) as feed:
            await feed.until("bookmark")
            await _known(world, held, feed)
            many = [observation(number) for number in range(1, 101)]
            await _publish(world, held, *many)
            seen, missing = [], 0
            while len(seen) + missing < 100:
                frame = await feed.frame()
                if frame.HasField("live") and frame.live.index <= 100:
                    seen.append(frame.live.index)
                missing += frame.gap.dropped_count if frame.HasField("gap") else 0
            assert seen == sorted(seen)
            assert seen[:4] == [1, 2, 3, 4]
            assert missing > 0
            connection = await asyncpg.connect(url)
            await connection.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%bus listen'"
            )
            await connection.close()
            await feed.until("gap")
            await _known(world, held, feed)
