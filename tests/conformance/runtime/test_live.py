"""Live observations: seen by who looks, never stored, never in the way (R15)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.calls import grant, refused
from tests.support.examples.world import World, json_payload
from tests.support.feeds import append, follow, listed, subscribed
from tests.support.suite import Suite
from threadkeep.runtime.v1 import commit_pb2, event_pb2, run_pb2, worker_service_pb2
from threadkeep_runtime.feeds.settings import FeedSettings

pb = worker_service_pb2


def observation(index: int, content: bytes = b'{"text":"he"}') -> event_pb2.LiveObservation:
    """A token."""
    return event_pb2.LiveObservation(
        kind=event_pb2.LIVE_KIND_TOKEN, index=index, payload=json_payload(content), message_id="message-1"
    )


def publish(world: World, requests: Any) -> Any:
    """A call of PublishLive."""
    return world.bind("WorkerService.PublishLive")(requests, metadata=world.metadata, timeout=60)


class Publisher:
    """A stream of observations, message by message."""

    def __init__(self, world: World) -> None:
        self._queue: asyncio.Queue[pb.PublishLiveRequest | None] = asyncio.Queue()
        self.call = publish(world, self._requests())

    async def _requests(self) -> AsyncIterator[pb.PublishLiveRequest]:
        while (request := await self._queue.get()) is not None:
            yield request

    def send(self, *observations: event_pb2.LiveObservation, lease: commit_pb2.Lease | None = None) -> None:
        """Sends one message."""
        self._queue.put_nowait(pb.PublishLiveRequest(lease=lease, observations=observations))

    async def finish(self) -> pb.PublishLiveResponse:
        """Ends the stream."""
        self._queue.put_nowait(None)
        return await self.call


@pytest.fixture
async def held(world: World) -> pb.AcquiredRun:
    """A leased run."""
    return await world.lease()


@pytest.mark.rule("R15")
async def test_observations_reach_who_asked_for_them_and_are_not_stored(world: World, held: pb.AcquiredRun) -> None:
    other = await world.lease()
    extents = ({"session_id": held.run.session_id}, {"run_id": held.run.run_id}, {"task_id": held.run.task_id}, {})
    before = len(await listed(world))
    publisher = Publisher(world)
    async with (
        follow(world, include_live=True, from_now=True, **extents[0]) as a,
        follow(world, include_live=True, from_now=True, **extents[1]) as b,
        follow(world, include_live=True, from_now=True, **extents[2]) as c,
        follow(world, include_live=True, from_now=True, **extents[3]) as d,
        follow(world, include_live=True, from_now=True, run_id=other.run.run_id) as not_asked,
        follow(world, from_now=True) as committed_only,
    ):
        feeds = (a, b, c, d)
        for feed in (*feeds, not_asked, committed_only):
            await feed.until("bookmark")
        publisher.send(observation(1), observation(2), lease=held.lease)
        for feed in feeds:
            first, second = await feed.until("live"), await feed.until("live")
            assert (first.index, second.index) == (1, 2)
            assert (first.session_id, first.run_id, first.task_id) == (
                held.run.session_id,
                held.run.run_id,
                held.run.task_id,
            )
            assert (first.payload.data, first.message_id) == (b'{"text":"he"}', "message-1")
            assert not feed.frames[-1].cursor
        await append(world, held.run.session_id, "mark")
        await append(world, other.run.session_id, "mark")
        await world.commit(session_id=other.run.session_id, lease=other.lease, running=commit_pb2.RunRunning())
        assert (await committed_only.event()).type == "mark"
        assert not any(frame.HasField("live") for frame in committed_only.frames + not_asked.frames)
    assert (await publisher.finish()).accepted_count == 2
    assert len(await listed(world)) == before + 2


@pytest.mark.rule("R3", "R15")
async def test_only_the_holder_of_the_lease_is_heard(world: World, held: pb.AcquiredRun) -> None:
    stale = commit_pb2.Lease(run_id=held.lease.run_id, epoch=held.lease.epoch + 1)
    unknown = commit_pb2.Lease(run_id="never", epoch=1)
    for lease, reason in ((stale, "LEASE_LOST"), (unknown, "RUN_NOT_FOUND"), (None, "FIELD_INVALID")):
        request = pb.PublishLiveRequest(lease=lease, observations=[observation(1)])
        assert (await refused(publish(world, iter([request])))).reason == reason
    foreign = World(world.suite)
    request = pb.PublishLiveRequest(lease=held.lease, observations=[observation(1)])
    assert (await refused(publish(foreign, iter([request])))).reason == "RUN_NOT_FOUND"


@pytest.mark.suite(backends=["memory"], topologies=["split"])
@pytest.mark.rule("R3", "R15")
async def test_a_publisher_whose_lease_ends_is_told(databases: Any, backend_and_topology: tuple[str, str]) -> None:
    settings = {"runtime": {"feeds": FeedSettings(live_lease_check_seconds=0)}}
    suite = await Suite.start(databases, *backend_and_topology, settings)
    try:
        world = World(suite)
        held = await world.lease()
        publisher = Publisher(world)
        async with follow(world, include_live=True, from_now=True, session_id=held.run.session_id) as feed:
            await feed.until("bookmark")
            publisher.send(observation(1), lease=held.lease)
            await feed.until("live")
        await world.commit(
            session_id=held.run.session_id,
            lease=held.lease,
            ended=commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED),
        )
        # One message and no more: a client that is still writing when it is refused may see its own broken write first.
        publisher.send(observation(2))
        assert (await refused(publisher.call)).reason == "LEASE_LOST"
    finally:
        await suite.close()


@pytest.mark.rule("R15", "X13")
async def test_over_a_grant_an_observation_says_whose_it_is(world: World, held: pb.AcquiredRun) -> None:
    channel = world.suite.channel("runtime")
    publisher = Publisher(world)
    async with subscribed(channel, grant(world.values), include_live=True, from_now=True) as feed:
        await feed.until("bookmark")
        publisher.send(observation(1), lease=held.lease)
        assert dict((await feed.until("live")).scope.values) == world.values
    await publisher.finish()


@pytest.mark.suite(backends=["memory"], topologies=["split"])
@pytest.mark.rule("R15")
async def test_what_a_slow_reader_misses_is_a_gap(databases: Any, backend_and_topology: tuple[str, str]) -> None:
    settings = {"runtime": {"feeds": FeedSettings(live_queue_items=4)}}
    suite = await Suite.start(databases, *backend_and_topology, settings)
    try:
        world = World(suite)
        held = await world.lease()
        publisher = Publisher(world)
        async with follow(world, include_live=True, from_now=True, session_id=held.run.session_id) as feed:
            await feed.until("bookmark")
            publisher.send(*(observation(index) for index in range(1, 101)), lease=held.lease)
            seen = [(await feed.until("live")).index for _ in range(4)]
            gap = await feed.until("gap")
            publisher.send(observation(101))
            last = await feed.until("live")
            assert seen == [1, 2, 3, 4]
            assert (gap.dropped_count, last.index) == (96, 101)
            assert not any(frame.cursor for frame in feed.frames if frame.WhichOneof("frame") in ("live", "gap"))
        await publisher.finish()
    finally:
        await suite.close()


@pytest.mark.suite(backends=["memory"], topologies=["split"])
@pytest.mark.rule("R15")
@pytest.mark.case("B97")
async def test_an_idle_publisher_does_not_hold_a_stop_up(suite: Suite) -> None:
    world = World(suite)
    held = await world.lease()
    publisher = Publisher(world)
    async with follow(world, include_live=True, from_now=True, session_id=held.run.session_id) as feed:
        await feed.until("bookmark")
        publisher.send(observation(1), lease=held.lease)
        await feed.until("live")
    stopping = asyncio.ensure_future(suite.stop(30))
    assert (await refused(publisher.call)).reason == "SHUTTING_DOWN"
    async with asyncio.timeout(20):
        await stopping
