"""A session as one stream: committed events once and in order, live observations beside them (P6, R14)."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from langchain_core.messages import HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import error_details, refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World, json_payload
from tests.support.projection import Talk
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.projection.v1 import stream_service_pb2 as pb
from threadkeep.runtime.v1 import event_pb2, event_service_pb2, worker_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES)


def subscribe(talk: Talk, **more: Any) -> Any:
    request = pb.SubscribeSessionRequest(session_id=talk.session_id, **more)
    return talk.world.bind("StreamService.SubscribeSession")(request, metadata=talk.world.metadata, timeout=60)


async def events(call: AsyncIterator[pb.SubscribeSessionResponse]) -> list[event_pb2.Event]:
    """All events of a stream that ends."""
    return [frame.event async for frame in call if frame.HasField("event")]


async def logged(talk: Talk) -> list[event_pb2.Event]:
    """The session's events as the runtime lists them."""
    request = event_service_pb2.ListEventsRequest(page_size=1000)
    request.filter.session_id = talk.session_id
    return list((await talk.world.call("EventService.ListEvents", request)).events)


@pytest.mark.rule("P6", "R14")
@pytest.mark.case("B74")
async def test_a_stream_from_the_start_holds_each_event_once_and_ends_with_its_task(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    reading = asyncio.ensure_future(events(subscribe(talk, until_task_id=task.task_id, committed_only=True)))
    await talk.work()
    for number in range(5):
        await talk.step(HumanMessage("x", id="in"), HumanMessage("y", id=f"{number}"))
    await talk.finish()
    seen = await reading
    assert [one.sequence for one in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].type == "threadkeep.task.completed"
    assert seen == (await logged(talk))[: len(seen)]


@pytest.mark.rule("P6", "R14")
async def test_a_stream_resumes_from_any_cursor_without_gap_or_double(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    await talk.step(HumanMessage("x", id="in"))
    await talk.finish()
    whole = await events(subscribe(talk, until_task_id=task.task_id))
    for index, event in enumerate(whole[:-1]):
        rest = await events(subscribe(talk, after=event.cursor, until_task_id=task.task_id))
        assert [one.event_id for one in rest] == [one.event_id for one in whole[index + 1 :]]


@pytest.mark.rule("P6")
async def test_a_stream_until_a_task_that_ended_before_its_start_ends_by_itself(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    await talk.finish()
    whole = await events(subscribe(talk, until_task_id=task.task_id))
    assert await events(subscribe(talk, after=whole[-1].cursor, until_task_id=task.task_id)) == []


@pytest.mark.rule("P6", "R13")
async def test_a_reader_sees_its_level_and_the_end_of_its_task_all_the_same(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    await talk.step(HumanMessage("x", id="in"))
    await talk.finish()
    end_user = await events(
        subscribe(talk, until_task_id=task.task_id, visibility=event_pb2.VISIBILITY_END_USER, committed_only=True)
    )
    assert {one.visibility for one in end_user} == {event_pb2.VISIBILITY_END_USER}
    assert len(end_user) < len(await logged(talk))


@pytest.mark.rule("P6", "R15")
async def test_live_observations_come_between_committed_events_unless_they_are_not_wanted(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    both, committed = (
        subscribe(talk, until_task_id=task.task_id),
        subscribe(talk, until_task_id=task.task_id, committed_only=True),
    )
    frames: list[pb.SubscribeSessionResponse] = []

    async def read(call: Any, into: list[pb.SubscribeSessionResponse]) -> None:
        async for frame in call:
            into.append(frame)

    silent: list[pb.SubscribeSessionResponse] = []
    readers = asyncio.gather(read(both, frames), read(committed, silent))
    await eventually(lambda: any(frame.event.type == "threadkeep.run.leased" for frame in frames))

    async def publish() -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
        observation = event_pb2.LiveObservation(
            kind=event_pb2.LIVE_KIND_TOKEN, index=1, payload=json_payload(b'{"content":"he"}'), message_id="a"
        )
        yield worker_service_pb2.PublishLiveRequest(lease=talk.lease, observations=[observation])
        await eventually(lambda: any(frame.HasField("live") for frame in frames))

    await talk.world.bind("WorkerService.PublishLive")(publish(), metadata=talk.world.metadata, timeout=30)
    await talk.finish()
    await readers
    (live,) = [frame for frame in frames if frame.HasField("live")]
    assert (live.live.message_id, live.live.session_id, live.cursor) == ("a", talk.session_id, b"")
    assert not any(frame.HasField("live") for frame in silent)
    assert frames[-1].event.type == "threadkeep.task.completed"


@pytest.mark.rule("P6")
async def test_the_reasons_of_the_runtime_come_through(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    unknown = subscribe(Talk(talk.world, talk.agent, "never-used"))
    assert (await _reason(unknown)) == "SESSION_NOT_FOUND"
    assert (await _reason(subscribe(talk, after=b"garbage"))) == "CURSOR_INVALID"
    assert (await _reason(subscribe(talk, until_task_id="never-used"))) == "TASK_NOT_FOUND"
    other = await Talk.begin(talk.world)
    await other.submit(("in", "x"))
    assert (await _reason(subscribe(other, until_task_id=task.task_id))) == "TASK_NOT_FOUND"
    stranger = Talk(World(talk.world.suite), talk.agent, talk.session_id)
    assert (await _reason(subscribe(stranger))) == "SESSION_NOT_FOUND"


async def _reason(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return error_details(caught.value).reason


@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])
@pytest.mark.rule("P6")
@pytest.mark.case("B97")
async def test_a_stopping_projection_ends_its_streams_with_where_to_resume(suite: Suite) -> None:
    talk = await Talk.begin(World(suite))
    await talk.submit(("in", "x"))
    call, seen = subscribe(talk), []

    async def read() -> None:
        async for frame in call:
            seen.append(frame)

    reading = asyncio.ensure_future(read())
    await eventually(lambda: bool(seen) and seen[-1].event.type == "threadkeep.run.queued")
    await suite.hosts["projection"].stop()
    details = await refused(reading)
    assert details.reason == "SHUTTING_DOWN"
    assert details.metadata["resume_cursor"] == base64.b64encode(seen[-1].cursor).decode()


@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])
@pytest.mark.rule("P6", "X6")
@pytest.mark.case("B69")
async def test_without_the_runtime_streams_say_so_and_messages_can_still_be_read(suite: Suite) -> None:
    """No stream tells of a failed run because a server went away: it ends with a reason that means: try again."""
    talk = await Talk.begin(World(suite))
    await talk.submit(("in", "x"))
    assert await talk.ids() == ["in"]
    call, kinds = subscribe(talk), []

    async def read() -> None:
        async for frame in call:
            kinds.append(frame.event.type)

    reading = asyncio.ensure_future(read())
    await eventually(lambda: "threadkeep.run.queued" in kinds)
    await suite.hosts["runtime"].stop(0)
    details = await refused(reading)
    assert details.code == grpc.StatusCode.UNAVAILABLE
    assert details.reason in ("PEER_UNAVAILABLE", "SHUTTING_DOWN")
    assert not any(kind.endswith((".failed", ".ended")) for kind in kinds)
    assert await _reason(subscribe(talk)) == "PEER_UNAVAILABLE"
    assert await talk.ids() == ["in"]
    rebuild = talk.world.call("ProjectionAdminService.RebuildSession", _rebuild(talk))
    assert (await refused(rebuild)).reason == "PEER_UNAVAILABLE"


def _rebuild(talk: Talk) -> Any:
    from threadkeep.projection.v1 import admin_service_pb2

    return admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)


@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["memory"])
@pytest.mark.rule("P6")
async def test_a_client_that_goes_frees_the_runtimes_stream(suite: Suite) -> None:
    talk = await Talk.begin(World(suite))
    await talk.submit(("in", "x"))
    gauge = suite.hosts["runtime"].registry

    def open_streams() -> float:
        method = "/threadkeep.runtime.v1.EventService/SubscribeEvents"
        return gauge.get_sample_value("threadkeep_rpcs_open", {"method": method}) or 0

    await eventually(lambda: open_streams() == 1)
    calls = [subscribe(talk) for _ in range(5)]
    for call in calls:
        await call.read()
    assert open_streams() == 6
    for call in calls:
        call.cancel()
    await eventually(lambda: open_streams() == 1)
