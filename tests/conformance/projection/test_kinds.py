"""A reader of a session has some kinds only, and its cursor moves over the others (P6)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.conformance.projection.test_streams import events, subscribe
from tests.support.calls import refused
from tests.support.examples.world import World, json_payload
from tests.support.messages import append, calls, message
from tests.support.projection import Talk
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import stream_service_pb2 as pb
from threadkeep.runtime.v1 import event_pb2, message_pb2, worker_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES, backends=["sqlite", "postgres"], topologies=["split"])

ASSISTANT = content_pb2.MESSAGE_ROLE_ASSISTANT
MESSAGES, TOKENS, TOOL_CALLS, STATE, CUSTOM = (
    pb.STREAM_KIND_MESSAGES,
    pb.STREAM_KIND_TOKENS,
    pb.STREAM_KIND_TOOL_CALLS,
    pb.STREAM_KIND_STATE,
    pb.STREAM_KIND_CUSTOM,
)


async def types(talk: Talk, *kinds: Any, **more: Any) -> list[str]:
    """The types of the events of these kinds, up to the end of the task."""
    seen = await events(subscribe(talk, kinds=kinds, until_task_id=talk.task_ids[0], **more))
    return [one.type.removeprefix("threadkeep.") for one in seen]


@pytest.mark.rule("P6")
async def test_each_kind_has_its_events_and_all_have_the_end_of_the_task(talk: Talk) -> None:
    await talk.submit(("in", "x"))
    await talk.work()
    await talk.step(HumanMessage("x", id="in"))
    draft = event_pb2.EventDraft(type="order.placed", payload=json_payload(b'{"a":1}'))
    await talk.world.commit(session_id=talk.session_id, events=[draft])
    await talk.finish()
    end = "task.completed"
    assert await types(talk, MESSAGES) == ["task.submitted", "checkpoint.saved", end]
    assert await types(talk, TOOL_CALLS) == ["checkpoint.saved", end]
    assert await types(talk, CUSTOM) == ["order.placed", end]
    assert await types(talk, TOKENS) == [end]
    whole = await types(talk)
    assert await types(talk, MESSAGES, TOKENS, TOOL_CALLS, STATE, CUSTOM) == whole
    assert await types(talk, STATE) == [one for one in whole if one != "order.placed"]
    # The level still counts.
    low = event_pb2.VISIBILITY_END_USER
    assert await types(talk, TOOL_CALLS, visibility=low) == [end]


@pytest.mark.rule("P6", "P2")
async def test_message_facts_are_told_by_what_they_hold(world: World) -> None:
    talk = Talk(world, "none", (await world.session()).session.session_id)
    await world.commit(session_id=talk.session_id, messages=append("hello"))
    asks = message_pb2.MessageChange(append=message("add", "a-1", role=ASSISTANT, tool_calls=calls("c-1")))
    await world.commit(session_id=talk.session_id, messages=[asks])
    for kind, wanted in ((MESSAGES, 2), (TOOL_CALLS, 1)):
        call = subscribe(talk, kinds=[kind])
        seen: list[event_pb2.Event] = []
        while len(seen) < wanted:
            frame = await call.read()
            if frame.HasField("event"):
                seen.append(frame.event)
        assert [one.type for one in seen] == ["threadkeep.message.appended"] * wanted
        assert b"c-1" in seen[-1].payload.data
        call.cancel()


@pytest.mark.rule("P6", "R14")
@pytest.mark.case("B73", "B77")
async def test_the_cursor_moves_over_what_is_left_out(talk: Talk) -> None:
    """A reader who sees nothing for long still resumes from where it is, not from its last event."""
    task = await talk.submit(("in", "x"))
    await talk.work()
    for number in range(3):
        await talk.step(HumanMessage("x", id="in"), HumanMessage("y", id=f"{number}"))
    head = await talk.head()
    call = subscribe(talk, kinds=[CUSTOM])
    frames = [await call.read()]
    while frames[-1].cursor != head:
        frames.append(await call.read())
    call.cancel()
    assert all(frame.HasField("bookmark") for frame in frames)
    await talk.finish()
    rest = await events(subscribe(talk, after=head, until_task_id=task.task_id))
    assert [one.type for one in rest] == ["threadkeep.run.ended", "threadkeep.task.completed"]


@pytest.mark.rule("P6", "R15")
async def test_live_observations_are_chosen_by_kind(talk: Talk) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    wanted: dict[str, list[Any]] = {"all": [], "tokens": [TOKENS], "calls": [TOOL_CALLS], "state": [STATE]}
    frames: dict[str, list[pb.SubscribeSessionResponse]] = {name: [] for name in wanted}

    async def read(name: str) -> None:
        async for frame in subscribe(talk, until_task_id=task.task_id, kinds=wanted[name]):
            frames[name].append(frame)

    readers = asyncio.gather(*(read(name) for name in wanted))
    await eventually(lambda: all(seen and seen[-1].cursor for seen in frames.values()))
    shown = [
        (event_pb2.LIVE_KIND_TOKEN, b'{"content":"he"}'),
        (event_pb2.LIVE_KIND_TOKEN, b'{"content":"","tool_call_chunks":[{"name":"add"}]}'),
        (event_pb2.LIVE_KIND_PROGRESS, b"{}"),
        (event_pb2.LIVE_KIND_CUSTOM, b"{}"),
    ]

    async def publish() -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
        observations = [
            event_pb2.LiveObservation(kind=kind, index=index, payload=json_payload(data))
            for index, (kind, data) in enumerate(shown, 1)
        ]
        yield worker_service_pb2.PublishLiveRequest(lease=talk.lease, observations=observations)
        await eventually(lambda: sum(frame.HasField("live") for frame in frames["all"]) == len(shown))

    await talk.world.bind("WorkerService.PublishLive")(publish(), metadata=talk.world.metadata, timeout=30)
    await talk.finish()
    await readers
    seen = {name: [one.live.index for one in some if one.HasField("live")] for name, some in frames.items()}
    assert seen == {"all": [1, 2, 3, 4], "tokens": [1, 2], "calls": [2, 3], "state": []}


@pytest.mark.rule("P6", "R4")
async def test_a_stream_until_a_run_ends_with_its_last_event(talk: Talk) -> None:
    await talk.submit(("in", "x"))
    await talk.work()
    reading = asyncio.ensure_future(events(subscribe(talk, until_run_id=talk.run_ids[0])))
    await talk.finish()
    seen = await reading
    assert (seen[-1].type, seen[-1].run_id) == ("threadkeep.run.ended", talk.run_ids[0])
    again = await events(subscribe(talk, until_run_id=talk.run_ids[0], kinds=[CUSTOM]))
    assert [one.type for one in again] == ["threadkeep.run.ended"]


@pytest.mark.rule("P6", "R4")
async def test_nothing_is_sent_of_what_came_after_the_end(talk: Talk) -> None:
    """Whoever comes back with the cursor of the end learns that it was the end, whatever the session did since."""
    first = await talk.submit(("in", "x"))
    await talk.work()
    await talk.finish()
    (*_, last) = await events(subscribe(talk, until_task_id=first.task_id))
    await talk.submit(("in-2", "y"))
    for more in ({"until_task_id": first.task_id}, {"until_run_id": talk.run_ids[0]}):
        frames = [frame async for frame in subscribe(talk, after=last.cursor, **more)]
        assert frames == []
    assert [one.sequence for one in await events(subscribe(talk, until_task_id=first.task_id))][-1] == last.sequence
    forged = last.cursor[:1] + bytes([last.cursor[1] ^ 1]) + last.cursor[2:]
    details = await refused(_all(subscribe(talk, after=forged, until_task_id=first.task_id)))
    assert details.reason == "CURSOR_INVALID"


@pytest.mark.rule("P6", "X8")
async def test_what_can_not_be_chosen_is_refused_by_field(talk: Talk) -> None:
    await talk.submit(("in", "x"))
    for more, field in (
        ({"kinds": [MESSAGES, 0]}, "kinds[1]"),
        ({"kinds": [77]}, "kinds[0]"),
        ({"kinds": [MESSAGES] * 17}, "kinds"),
        ({"visibility": 9}, "visibility"),
        ({"until_task_id": talk.task_ids[0], "until_run_id": talk.run_ids[0]}, "until_run_id"),
        ({"until_run_id": ""}, "until_run_id"),
    ):
        details = await refused(_all(subscribe(talk, **more)))
        assert (details.reason, list(details.violations)) == ("FIELD_INVALID", [field])
    assert (await refused(_all(subscribe(talk, until_run_id="never-used")))).reason == "RUN_NOT_FOUND"
    other = await Talk.begin(talk.world)
    await other.submit(("in", "x"))
    assert (await refused(_all(subscribe(other, until_run_id=talk.run_ids[0])))).reason == "RUN_NOT_FOUND"


async def _all(call: Any) -> list[Any]:
    return [frame async for frame in call]


@pytest.mark.suite(
    services=SERVICES,
    topologies=["split"],
    backends=["sqlite"],
    settings={"projection": {"stream_patience_seconds": 0.3}},
)
@pytest.mark.rule("P6", "X9")
@pytest.mark.case("B82")
async def test_a_reader_that_takes_nothing_is_cut_and_resumes_without_loss(suite: Suite) -> None:
    """What it has not taken is not kept for it: only a few of the frames ever left the log."""
    world = World(suite)
    talk = Talk(world, "none", (await world.session()).session.session_id)
    payload, count = json_payload(b'"' + b"x" * 524288 + b'"'), 48
    draft = event_pb2.EventDraft(type="big.one", payload=payload)
    for _ in range(count // 4):
        await talk.world.commit(session_id=talk.session_id, events=[draft] * 4)
    registry = suite.hosts["projection"].registry

    def number(name: str) -> float:
        return registry.get_sample_value(f"threadkeep_projection_{name}", {"transport": "grpc"}) or 0

    call = subscribe(talk, kinds=[CUSTOM])
    await eventually(lambda: number("streams_cut_total") == 1)
    await eventually(lambda: number("streams_open") == 0)
    assert number("stream_frames_total") < count / 2
    taken: list[event_pb2.Event] = []

    async def take() -> None:
        async for frame in call:
            if frame.HasField("event"):
                taken.append(frame.event)

    details = await refused(take())
    assert details.reason == "SLOW_CONSUMER"
    rest = subscribe(talk, after=taken[-1].cursor, kinds=[CUSTOM])
    while len(taken) < count:
        frame = await rest.read()
        if frame.HasField("event"):
            taken.append(frame.event)
    rest.cancel()
    assert [one.sequence for one in taken] == list(range(taken[0].sequence, taken[0].sequence + count))
