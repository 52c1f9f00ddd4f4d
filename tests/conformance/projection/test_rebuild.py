"""Rebuilding gives what following live gave: the same rows, ids and timestamps (P3)."""

import asyncio
import contextlib
import random
import sqlite3
from collections import Counter
from typing import Any

import asyncpg
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, another_projection, everything, fresh
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2
from threadkeep.runtime.v1 import checkpoint_pb2, task_pb2

# What is rebuilt does not depend on the topology, and each of these tests reads the whole log.
pytestmark = pytest.mark.suite(services=SERVICES, topologies=["split"])


class History:
    """Random things that happen to a few conversations, from a printed seed."""

    def __init__(self, world: World, talks: list[Talk], chance: random.Random) -> None:
        self.world = world
        self.talks = talks
        self.chance = chance
        self.channels: dict[str, list[Any]] = {talk.session_id: [] for talk in talks}
        self.open: dict[str, bool] = {}
        self.before: dict[str, list[Any]] = {}
        """The channel when the open task was submitted."""

    @classmethod
    async def begin(cls, world: World) -> "History":
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        agent = await world.agent()
        return cls(world, [Talk(world, agent) for _ in range(3)], random.Random(seed))

    @property
    def talked(self) -> list[Talk]:
        """The conversations that have begun."""
        return [talk for talk in self.talks if talk.receipt.cursor]

    async def go(self, steps: int) -> None:
        for _ in range(steps):
            await self.step(self.chance.choice(self.talks))

    async def step(self, talk: Talk) -> None:
        channel, chance = self.channels[talk.session_id], self.chance
        if talk.lease is None and not self.open.get(talk.session_id):
            if chance.random() < 0.3:
                await talk.put(*self.grow(channel))
            else:
                await self.submit(talk, channel)
        elif talk.lease is None:
            await talk.work()
        else:
            await self.work(talk, channel)

    async def submit(self, talk: Talk, channel: list[Any], strategy: Any = None) -> None:
        inputs = [(fresh_id("in"), f"say {n}") for n in range(self.chance.randrange(1, 3))]
        await talk.submit(*inputs, metadata={"n": str(len(inputs))}, strategy=strategy)
        self.open[talk.session_id] = True
        self.before[talk.session_id] = list(channel)
        if self.chance.random() < 0.9:
            channel += [HumanMessage(text, id=one) for one, text in inputs]

    async def work(self, talk: Talk, channel: list[Any]) -> None:
        match self.chance.randrange(12):
            case 0:
                await talk.delete_checkpoints()
                channel.clear()
                self.before[talk.session_id] = []
            case 10:
                channel[:] = self.before[talk.session_id]
                await self.submit(talk, channel, task_pb2.MULTITASK_STRATEGY_ROLLBACK)
            case 11:
                await self.submit(talk, channel, task_pb2.MULTITASK_STRATEGY_INTERRUPT)
            case 1:
                await talk.finish(self.chance.choice((None, "no")))
                self.open[talk.session_id] = False
            case 2:
                await talk.answer(await talk.ask())
            case 3:
                await talk.step(value=checkpoint_pb2.ChannelValue(type="msgpack+aes", data=b"\x00"))
            case 4 if channel:
                gone = self.chance.choice(channel)
                channel.remove(gone)
                await talk.step(*channel)
            case 5:
                channel[:] = [AIMessage("in short", id=fresh_id("sum")), *channel[-2:]]
                await talk.step(*channel)
            case 6 if channel:
                await talk.step(*channel, RemoveMessage(channel[0].id or "x"))
            case _:
                await talk.step(*self.grow(channel))

    def grow(self, channel: list[Any]) -> list[Any]:
        usage = {"input_tokens": self.chance.randrange(9), "output_tokens": 1, "total_tokens": 10}
        kind = self.chance.randrange(3)
        if kind == 0:
            channel.append(AIMessage("thinking", id=fresh_id("ai"), usage_metadata=usage))
        elif kind == 1:
            channel.append(AIMessage("no id"))
        else:
            call = fresh_id("call")
            channel.append(AIMessage("", id=fresh_id("ai"), tool_calls=[{"name": "t", "args": {}, "id": call}]))
            channel.append(ToolMessage("done", id=fresh_id("tool"), tool_call_id=call))
        return channel


@pytest.mark.rule("P3")
@pytest.mark.case("B103")
async def test_a_projection_that_is_dropped_and_built_anew_is_the_live_one(shared_suite: Suite) -> None:
    history = await History.begin(World(shared_suite))
    await history.go(60)
    live = await everything(history.talked)
    async with another_projection(shared_suite) as anew:
        assert await everything(history.talked, anew) == live
    assert any(live[talk.session_id] for talk in history.talked)


@pytest.mark.rule("P3")
async def test_a_session_that_is_rebuilt_while_it_goes_on_stays_what_it_is(shared_suite: Suite) -> None:
    history = await History.begin(World(shared_suite))
    await history.go(20)
    is_over = asyncio.Event()

    async def rebuild() -> int:
        count = 0
        while not is_over.is_set():
            for talk in history.talked:
                request = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
                await history.world.call("ProjectionAdminService.RebuildSession", request)
                count += 1
        return count

    rebuilding = asyncio.ensure_future(rebuild())
    try:
        await history.go(25)
    finally:
        is_over.set()
    assert await rebuilding > 0
    live = await everything(history.talked)
    async with another_projection(shared_suite) as anew:
        assert await everything(history.talked, anew) == live


@pytest.mark.rule("P3", "X3")
async def test_a_rebuild_says_what_it_was_made_of_and_repairs_what_is_wrong(talk: Talk) -> None:
    await talk.put(HumanMessage("1", id="1"), AIMessage("2", id="2"))
    before = await talk.messages()
    request = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
    answer = await talk.world.call("ProjectionAdminService.RebuildSession", request)
    assert (answer.event_count, answer.message_count) == (2, 2)
    assert await talk.messages() == before
    assert await talk.world.call("ProjectionAdminService.RebuildSession", request) == answer
    unknown = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id="never-used")
    refusal = await refused(talk.world.call("ProjectionAdminService.RebuildSession", unknown))
    assert refusal.reason == "SESSION_NOT_FOUND"


@pytest.mark.suite(services=SERVICES, backends=["sqlite", "postgres"], topologies=["split"])
@pytest.mark.rule("P1", "P3")
@pytest.mark.case("B103")
async def test_a_follower_that_is_stopped_again_and_again_ends_where_an_undisturbed_one_does(suite: Suite) -> None:
    history = await History.begin(World(suite))
    for _ in range(6):
        acting = asyncio.ensure_future(history.go(8))
        await asyncio.sleep(history.chance.random() * 0.05)
        await suite.rehost("projection", grace_seconds=0)
        await acting
    live = await everything(history.talked)
    async with another_projection(suite) as anew:
        assert await everything(history.talked, anew) == live
    status = await history.world.call("ProjectionAdminService.GetStatus", admin_service_pb2.GetStatusRequest())
    # The suite is this test's own, and sequences are dense: so many events there are, and each was applied once.
    assert sum(one.applied_count for one in status.shares) == sum(int(one["eventSequence"]) for one in live["sessions"])


@pytest.mark.suite(services=SERVICES, backends=["postgres"], topologies=["split"])
@pytest.mark.rule("P1")
async def test_two_replicas_on_one_database_share_the_work_without_doing_it_twice(suite: Suite) -> None:
    history = await History.begin(World(suite))
    url = suite.urls["projection"]
    async with another_projection(suite, url) as second:
        await history.go(15)
        before = await everything(history.talked)
        assert await everything(history.talked, second) == before
        assert sorted((await eventually(lambda: _owners(history.world, 2))).values()) == [4, 4]
        await suite.hosts["projection"].stop(0)
        await history.go(15)
        after = await everything(history.talked, second)
        await suite.rehost("projection")
        assert sorted((await eventually(lambda: _owners(history.world, 2))).values()) == [4, 4]
        async with another_projection(suite) as anew:
            assert await everything(history.talked, anew) == after


@pytest.mark.suite(services=SERVICES, backends=["sqlite", "postgres"], topologies=["embedded"])
@pytest.mark.rule("P3", "P5", "R14")
async def test_after_a_restore_of_the_log_the_follower_builds_all_anew(suite: Suite) -> None:
    """A restore gives the log another incarnation: cursors of before are unknown, and so is the follower's own."""
    talk = await Talk.begin(World(suite))
    await talk.put(HumanMessage("x", id="m"))
    before = await talk.messages()
    old = talk.receipt.cursor
    await suite.stop()
    await _restored(suite)
    await suite.resume()
    await talk.put(HumanMessage("x", id="m"), AIMessage("y", id="n"))
    after = await eventually(lambda: _messages(talk))
    assert after[0] == before[0]
    request = message_service_pb2.ListMessagesRequest(session_id=talk.session_id, freshness=fresh(old))
    assert (await refused(talk.world.call("MessageService.ListMessages", request))).reason == "CURSOR_UNKNOWN"


async def _owners(world: World, count: int) -> dict[str, int]:
    """How many shares each replica has; nothing unless so many hold them all, as many as any other or one more."""
    status = await world.call("ProjectionAdminService.GetStatus", admin_service_pb2.GetStatusRequest())
    found = Counter(one.owner for one in status.shares)
    return found if len(found) == count and max(found.values()) - min(found.values()) <= 1 else {}


async def _messages(talk: Talk) -> list[Any]:
    found = await talk.messages()
    return found if len(found) == 2 else []


async def _restored(suite: Suite) -> None:
    """What a restore of the runtime's database does to its log."""
    statement = "UPDATE {}log_partitions SET incarnation = 'after-the-restore'"
    url = suite.urls["runtime"]
    if suite.backend == "sqlite":
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement.format(""))
            connection.commit()
    else:
        connection = await asyncpg.connect(url)
        await connection.execute(statement.format("runtime."))
        await connection.close()
