"""Looking after the projection: pauses, how far it is, building it anew while it answers (P1, P3)."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import REPLAY_KEY, grant_all, refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import CALL_SECONDS, World
from tests.support.projection import Talk, everything
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2 as pb
from threadkeep.projection.v1 import message_service_pb2

# The follower of the whole suite is stopped: each test has its own.
pytestmark = pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite", "postgres"])


async def operate(world: World, name: str, request: Any) -> Any:
    """An operator's call."""
    bound = world.bind(f"ProjectionAdminService.{name}")
    return await bound(request, metadata=world.metadata + grant_all(), timeout=CALL_SECONDS)


async def share(world: World) -> pb.FollowerShare:
    """The first share."""
    return (await world.call("ProjectionAdminService.GetStatus", pb.GetStatusRequest())).shares[0]


async def rebuild(world: World, request: pb.RebuildRequest, is_operators: bool = False) -> tuple[list[Any], bool]:
    """The frames of a rebuild, and whether they are a replay."""
    metadata = world.metadata + grant_all() if is_operators else world.metadata
    call = world.bind("ProjectionAdminService.Rebuild")(request, metadata=metadata, timeout=CALL_SECONDS)
    return [frame async for frame in call], (REPLAY_KEY, "1") in tuple(await call.trailing_metadata())


@pytest.mark.rule("P1", "P5", "X3")
async def test_a_paused_projection_answers_as_it_is_and_goes_on_where_it_stopped(suite: Suite) -> None:
    world = World(suite)
    talk = await Talk.begin(world)
    await talk.put(HumanMessage("1", id="1"))
    assert await talk.ids() == ["1"]
    pause = pb.PauseRequest(request_id=fresh_id())
    assert not (await operate(world, "Pause", pause)).HasField("pause_expire_time")
    assert (await share(world)).is_paused
    assert not (await share(world)).owner
    await talk.put(HumanMessage("1", id="1"), AIMessage("2", id="2"))
    late = message_service_pb2.ListMessagesRequest(session_id=talk.session_id)
    late.freshness.at_least = talk.receipt.cursor
    late.freshness.max_wait.CopyFrom(Duration(nanos=400_000_000))
    assert (await refused(world.call("MessageService.ListMessages", late))).reason == "FRESHNESS_TIMEOUT"
    late.ClearField("freshness")
    assert len((await world.call("MessageService.ListMessages", late)).messages) == 1
    lag = (await share(world)).lag.ToNanoseconds()
    assert (await share(world)).lag.ToNanoseconds() > lag
    # What pauses the follower does not hold up who asks for a session to be built anew.
    request = pb.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
    assert (await world.call("ProjectionAdminService.RebuildSession", request)).message_count == 2
    resume = pb.ResumeRequest(request_id=fresh_id())
    assert (await operate(world, "Resume", resume)).was_paused
    assert await talk.ids() == ["1", "2"]
    assert not (await share(world)).is_paused
    assert (await operate(world, "Resume", resume)).was_paused, "a replay"
    assert not (await operate(world, "Resume", pb.ResumeRequest(request_id=fresh_id()))).was_paused


@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["memory"])
@pytest.mark.rule("P1", "X13")
async def test_a_pause_ends_by_itself_and_is_the_operators_alone(suite: Suite) -> None:
    world = World(suite)
    talk = await Talk.begin(world)
    for name, request in (
        ("Pause", pb.PauseRequest(request_id=fresh_id())),
        ("Resume", pb.ResumeRequest(request_id=fresh_id())),
    ):
        assert (await refused(world.call(f"ProjectionAdminService.{name}", request))).reason == "SCOPE_FORBIDDEN"
    call = rebuild(world, pb.RebuildRequest(request_id=fresh_id(), everything=True))
    assert (await refused(call)).reason == "SCOPE_FORBIDDEN"
    for wrong in (Duration(), Duration(seconds=-1), Duration(seconds=400 * 86400)):
        refusal = await refused(operate(world, "Pause", pb.PauseRequest(request_id=fresh_id(), duration=wrong)))
        assert refusal.reason == "FIELD_INVALID"
    short = pb.PauseRequest(request_id=fresh_id(), duration=Duration(nanos=200_000_000))
    assert (await operate(world, "Pause", short)).HasField("pause_expire_time")
    await talk.put(HumanMessage("1", id="1"))
    assert await talk.ids() == ["1"]


@pytest.mark.rule("P3", "X3")
@pytest.mark.parametrize("is_everything", [False, True], ids=["scope", "everything"])
async def test_a_rebuild_while_the_projection_goes_on_leaves_what_is_there(suite: Suite, is_everything: bool) -> None:
    world, other = World(suite), World(suite)
    talks = [await Talk.begin(world) for _ in range(3)]
    theirs = await Talk.begin(other)
    for talk in (*talks, theirs):
        await talk.submit((fresh_id("in"), "hello"), metadata={"n": "1"})
        await talk.work()
        await talk.step(HumanMessage("1", id="1"), AIMessage("2", id="2"))
    before, before_theirs = await everything(talks), await everything([theirs])
    is_over = asyncio.Event()

    async def read() -> int:
        """Without a gap: every read finds what is there."""
        count = 0
        while not is_over.is_set():
            request = message_service_pb2.ListMessagesRequest(session_id=talks[0].session_id)
            assert len((await world.call("MessageService.ListMessages", request)).messages) >= 2
            count += 1
        return count

    reading = asyncio.ensure_future(read())
    request = pb.RebuildRequest(request_id=fresh_id(), everything=is_everything)
    frames, is_replay = await rebuild(world, request, is_everything)
    is_over.set()
    assert await reading > 0
    assert not is_replay
    assert frames[-1].is_done
    assert not any(frame.is_done for frame in frames[:-1])
    assert frames[-1].session_count == (4 if is_everything else 3)
    assert frames[-1].removed_count == 0
    assert await rebuild(world, request, is_everything) == (frames[-1:], True)
    assert (await everything(talks), await everything([theirs])) == (before, before_theirs)
    changed = pb.RebuildRequest(request_id=request.request_id, everything=not is_everything)
    assert (await refused(rebuild(world, changed, True))).reason == "REQUEST_ID_REUSED"


@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])
@pytest.mark.rule("P3")
async def test_a_rebuild_that_breaks_off_goes_on_with_the_same_request(suite: Suite) -> None:
    world = World(suite)
    talks = [await Talk.begin(world) for _ in range(8)]
    for talk in talks:
        await talk.put(HumanMessage("1", id="1"))
        await talk.messages()
    request = pb.RebuildRequest(request_id=fresh_id())
    for _ in range(3):
        rebuilding = asyncio.ensure_future(rebuild(world, request))
        await asyncio.sleep(0.01)
        await suite.rehost("projection", grace_seconds=0)
        await asyncio.gather(rebuilding, return_exceptions=True)

    async def finished() -> Any:
        try:
            return (await rebuild(world, request))[0][-1]
        except grpc.aio.AioRpcError:
            return None

    last = await eventually(finished)
    assert (last.is_done, last.session_count, last.event_count) == (True, 8, 16)
    for talk in talks:
        assert await talk.ids() == ["1"]
