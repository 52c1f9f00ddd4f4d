"""A session as Server-Sent Events over HTTP: the same stream, for browsers and curl (P6)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from httpx_sse import aconnect_sse
from langchain_core.messages import HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.conformance.projection.test_streams import events, subscribe
from tests.support.event_streams import Block, EventsOverHttp
from tests.support.examples.world import World, json_payload
from tests.support.projection import Talk
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import event_pb2, worker_service_pb2
from threadkeep_chassis.tokens import to_text

OVER_HTTP = {"projection": {"http_listen": "127.0.0.1:0"}}

pytestmark = pytest.mark.suite(services=SERVICES, backends=["sqlite"], topologies=["split"], settings=OVER_HTTP)


@pytest.fixture
async def talk(shared_suite: Suite) -> Talk:
    return await Talk.begin(World(shared_suite))


@pytest.fixture
async def http(shared_suite: Suite, talk: Talk) -> AsyncIterator[EventsOverHttp]:
    made = EventsOverHttp.of(shared_suite, talk.world.values)
    yield made
    await made.close()


async def finished(talk: Talk) -> str:
    """A task that has ended; its id."""
    task = await talk.submit(("in", "x"))
    await talk.work()
    await talk.step(HumanMessage("x", id="in"))
    await talk.finish()
    return task.task_id


async def publish(talk: Talk, *shown: tuple[Any, bytes], until: Any) -> None:
    async def observations() -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
        some = [
            event_pb2.LiveObservation(kind=kind, index=index, payload=json_payload(data), message_id="m")
            for index, (kind, data) in enumerate(shown, 1)
        ]
        yield worker_service_pb2.PublishLiveRequest(lease=talk.lease, observations=some)
        await eventually(until)

    await talk.world.bind("WorkerService.PublishLive")(observations(), metadata=talk.world.metadata, timeout=30)


@pytest.mark.suite(
    services=SERVICES, backends=["memory", "sqlite", "postgres"], topologies=["embedded", "split"], settings=OVER_HTTP
)
@pytest.mark.rule("P6", "R14", "R4")
@pytest.mark.case("B73", "B74")
async def test_the_stream_is_that_of_grpc_and_resumes_from_any_id(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    expected = await events(subscribe(talk, until_task_id=task_id))
    *seen, end = await http.whole(talk.session_id, until_task_id=task_id)
    assert (end.event, end.plain, end.id) == ("end", {}, None)
    assert [one.id for one in seen] == [to_text(event.cursor) for event in expected]
    for block, event in zip(seen, expected, strict=True):
        plain = block.plain
        assert (plain["type"], plain["sequence"], plain["event_id"]) == (event.type, event.sequence, event.event_id)
        assert plain["create_time"] == event.create_time.ToJsonString()
        assert plain["payload"]["json"] == json.loads(event.payload.data)
    for index, block in enumerate(seen[:-1]):
        rest = await http.whole(talk.session_id, {"last-event-id": str(block.id)}, until_task_id=task_id)
        assert [one.id for one in rest[:-1]] == [one.id for one in seen[index + 1 :]]


@pytest.mark.rule("P6", "R4")
async def test_a_reader_that_comes_back_after_the_end_is_sent_away(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    run_id = talk.run_ids[0]
    for until in ({"until_task_id": task_id}, {"until_run_id": run_id}):
        *_, last, end = await http.whole(talk.session_id, **until)
        assert (last.plain["type"].rpartition(".")[2], end.event) in (("completed", "end"), ("ended", "end"))
        gone = await http.get(talk.session_id, {"last-event-id": str(last.id)}, **until)
        assert (gone.status_code, gone.content) == (204, b"")
    # The same for one who may not see the event that ended it: its cursor says that it has passed it.
    *_, last, end = await http.whole(talk.session_id, until_run_id=run_id, visibility="end_user")
    assert (last.data, end.event) == ([], "end")
    gone = await http.get(talk.session_id, {"last-event-id": str(last.id)}, until_run_id=run_id, visibility="end_user")
    assert gone.status_code == 204


@pytest.mark.rule("P6")
async def test_what_the_browser_remembers_counts_more_than_its_address(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    *seen, _ = await http.whole(talk.session_id, until_task_id=task_id)
    ids = [str(one.id) for one in seen]
    by_address = await http.whole(talk.session_id, until_task_id=task_id, after=ids[1])
    assert [one.id for one in by_address[:-1]] == ids[2:]
    both = await http.whole(talk.session_id, {"last-event-id": ids[4]}, until_task_id=task_id, after=ids[1])
    assert [one.id for one in both[:-1]] == ids[5:]
    fresh = await http.whole(talk.session_id, {"last-event-id": ""}, until_task_id=task_id, after=ids[1])
    assert [one.id for one in fresh[:-1]] == ids[2:]
    plain_base64 = ids[1].replace("-", "+").replace("_", "/") + "=" * (-len(ids[1]) % 4)
    as_errors_say = await http.whole(talk.session_id, until_task_id=task_id, after=plain_base64)
    assert [one.id for one in as_errors_say[:-1]] == ids[2:]


@pytest.mark.rule("P6", "R15")
async def test_live_observations_come_by_kind_and_leave_the_place_alone(talk: Talk, http: EventsOverHttp) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    seen: list[Block] = []
    reading = asyncio.ensure_future(http.read(seen, talk.session_id, until_task_id=task.task_id))
    await eventually(lambda: any(one.id for one in seen))
    shown = (
        (event_pb2.LIVE_KIND_TOKEN, '{"content":"h\u00e9\u2028"}'.encode()),
        (event_pb2.LIVE_KIND_PROGRESS, b'{"at": 1}'),
        (event_pb2.LIVE_KIND_CUSTOM, b'{\n "a": 1e22,\r\n "b": -0.0\n}'),
    )
    await publish(talk, *shown, until=lambda: sum("kind" in one.plain for one in seen if one.data) == 3)
    await talk.finish()
    await reading
    live = [one for one in seen if one.data and "kind" in one.plain]
    assert [(one.event, one.id) for one in live] == [("tokens", None), ("tool_calls", None), ("custom", None)]
    assert [one.plain["index"] for one in live] == [1, 2, 3]
    assert live[0].plain["payload"]["json"] == {"content": "h\u00e9\u2028"}
    assert live[0].plain["message_id"] == "m"
    assert '"a": 1e22,' in live[2].data[0]
    assert '"b": -0.0' in live[2].data[0]


@pytest.mark.rule("P6")
async def test_kinds_levels_and_places_that_move_in_silence(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    found = await http.whole(talk.session_id, until_task_id=task_id, kinds="tool_calls,custom")
    # Everything before the checkpoint is left out, and so is what lies between it and the end.
    assert [one.plain["type"].removeprefix("threadkeep.") for one in found if one.event in ("tool_calls", "state")] == [
        "checkpoint.saved",
        "task.completed",
    ]
    async with http.stream(talk.session_id, kinds="custom") as (_, blocks):
        first, second = await anext(blocks), await anext(blocks)
    assert (first.retry, second.data, second.event) == (1000, [], "")
    whole = await http.whole(talk.session_id, until_task_id=task_id)
    assert second.id == whole[-2].id
    low = await http.whole(talk.session_id, until_task_id=task_id, visibility="end_user", committed_only="true")
    assert {one.plain["visibility"] for one in low[:-1] if one.data} == {"VISIBILITY_END_USER"}
    named = await http.whole(talk.session_id, until_task_id=task_id, kinds="state")
    assert {one.event for one in named} == {"state", "end"}


@pytest.mark.rule("P6", "X8")
async def test_payloads_come_as_they_were_written(talk: Talk, http: EventsOverHttp) -> None:
    await talk.submit(("in", "x"))
    texts = (
        b'{"n":12345678901234567890,"x":1e22,"y":-0.0,"s":"a\\nb"}',
        b"[\n1,\r\n2]",
        b'"\xe2\x80\xa8\\u0000"',
        b"null",
    )
    payloads = [payload_pb2.Payload(content_type="application/json; charset=utf-8", data=one) for one in texts]
    payloads += [
        payload_pb2.Payload(content_type="text/plain", data="a\r\nb\u00e9".encode()),
        payload_pb2.Payload(content_type="application/octet-stream", data=b"\x00\xff\r\n", attributes={"k": "v"}),
    ]
    drafts = [event_pb2.EventDraft(type="app.thing", payload=one) for one in payloads]
    await talk.world.commit(session_id=talk.session_id, events=[*drafts, event_pb2.EventDraft(type="app.bare")])
    seen: list[Block] = []
    async with http.stream(talk.session_id, kinds="custom", committed_only="1") as (_, found):
        while len(seen) < len(drafts) + 1:
            block = await anext(found)
            seen += [block] if block.data else []
    for block, text in zip(seen, texts, strict=False):
        (line,) = block.data
        assert line.endswith('"json":' + text.decode().replace("\n", " ").replace("\r", " ") + "}}")
        assert block.plain["payload"]["json"] == json.loads(text)
    assert seen[4].plain["payload"] == {"content_type": "text/plain", "text": "a\r\nb\u00e9"}
    binary = {"content_type": "application/octet-stream", "attributes": {"k": "v"}, "data": "AP8NCg=="}
    assert seen[5].plain["payload"] == binary
    assert "payload" not in seen[6].plain


@pytest.mark.rule("X8", "X2")
@pytest.mark.parametrize("session_id", ["a/b", "a/events", "caf\u00e9 \u2603?#%&+=", "x:y;z,'\"<>"])
async def test_ids_of_any_characters_reach_their_session(talk: Talk, http: EventsOverHttp, session_id: str) -> None:
    named = Talk(talk.world, talk.agent)
    named.session_id = session_id
    task = await named.submit(("in", "x"))
    async with http.stream(session_id, kinds="messages", until_task_id=task.task_id) as (response, found):
        assert response.status_code == 200
        blocks = [await anext(found), await anext(found)]
    assert blocks[1].plain["session_id"] == session_id


@pytest.mark.rule("P6")
async def test_a_standard_client_reads_it(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    parameters = http.identity | {"until_task_id": task_id}
    async with aconnect_sse(http.client, "GET", http.path(talk.session_id), params=parameters) as source:
        seen = [one async for one in source.aiter_sse()]
    named = [one for one in seen if one.data]
    assert named[0].json()["type"] == "threadkeep.session.created"
    assert (named[-2].json()["type"], named[-1].event) == ("threadkeep.task.completed", "end")
    assert named[-1].id == named[-2].id
