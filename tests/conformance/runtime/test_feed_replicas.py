"""Two servers on one database: a feed goes on at either (R14)."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.support.examples.world import World
from tests.support.feeds import append, follow, is_dense, listed
from tests.support.suite import Suite
from threadkeep_chassis.hosting import Host
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
