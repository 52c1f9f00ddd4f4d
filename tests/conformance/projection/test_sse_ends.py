"""What becomes of readers over HTTP, and of servers, that go away or stand still (P6)."""

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from structlog.testing import capture_logs

from tests.conformance.projection.test_sse_limits import over_http, reason
from tests.support.event_streams import Block, EventsOverHttp
from tests.support.examples.world import World, json_payload
from tests.support.projection import Talk
from tests.support.suite import Suite, build_service
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.hosting import Host

pytestmark = over_http()


@pytest.fixture
async def talk(suite: Suite) -> Talk:
    return await Talk.begin(World(suite))


@pytest.fixture
async def http(suite: Suite, talk: Talk) -> AsyncIterator[EventsOverHttp]:
    made = EventsOverHttp.of(suite, talk.world.values)
    yield made
    await made.close()


async def large_session(world: World, size: int, count: int) -> str:
    """A session with so many events of that size; its id."""
    name = (await world.session()).session.session_id
    draft = event_pb2.EventDraft(type="big.one", payload=json_payload(b'"' + b"x" * size + b'"'))
    for _ in range(count // 4):
        await world.commit(session_id=name, events=[draft] * 4)
    return str(name)


def standing_still(http: EventsOverHttp, session_id: str) -> socket.socket:
    """A reader that asks for a session's events and takes none."""
    host, _, port = http.address.rpartition(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    reader.connect((host, int(port)))
    asked = httpx.URL(f"http://{http.address}{http.path(session_id)}", params=http.identity | {"kinds": "custom"})
    reader.sendall(b"GET " + asked.raw_path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return reader


@pytest.mark.rule("P6", "R14")
@pytest.mark.case("B97")
async def test_a_stop_ends_streams_and_readers_go_on_with_their_last_id(
    suite: Suite, talk: Talk, http: EventsOverHttp
) -> None:
    task = await talk.submit(("in", "x"))
    seen: list[Block] = []
    reading = asyncio.ensure_future(http.read(seen, talk.session_id, until_task_id=task.task_id))
    await eventually(lambda: any(one.data and one.plain["type"] == "threadkeep.run.queued" for one in seen))
    await suite.rehost("projection")
    await reading
    last = seen.pop()
    assert (last.event, last.retry, last.id) == ("failure", 1000, None)
    assert last.plain["error"]["details"][0]["reason"] == "SHUTTING_DOWN"
    await talk.work()
    await talk.finish()
    again = EventsOverHttp.of(suite, talk.world.values)
    resume = {"last-event-id": next(str(one.id) for one in reversed(seen) if one.id)}
    seen += await again.whole(talk.session_id, resume, until_task_id=task.task_id)
    await again.close()
    numbers = [one.plain["sequence"] for one in seen if one.id and one.data]
    assert numbers == list(range(1, len(numbers) + 1))
    assert seen[-1].event == "end"


@pytest.mark.rule("P6", "X6")
@pytest.mark.case("B69")
async def test_what_passes_is_told_in_a_stream_to_who_would_never_come_back(
    suite: Suite, talk: Talk, http: EventsOverHttp
) -> None:
    """A browser gives up for good at any status but 200; everyone else gets the status."""
    task = await talk.submit(("in", "x"))
    seen: list[Block] = []
    reading = asyncio.ensure_future(http.read(seen, talk.session_id, until_task_id=task.task_id))
    await eventually(lambda: any(one.data and one.plain["type"] == "threadkeep.run.queued" for one in seen))
    await suite.hosts["runtime"].stop(0)
    await reading
    assert seen[-1].event == "failure"
    assert seen[-1].plain["error"]["status"] == "UNAVAILABLE"
    assert not any(one.data and one.plain.get("type", "").endswith((".failed", ".ended")) for one in seen)
    answer = await http.get(talk.session_id)
    assert reason(answer) == (503, "PEER_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    async with http.stream(talk.session_id, {"accept": "text/event-stream"}) as (response, blocks):
        assert response.status_code == 200
        (block,) = [one async for one in blocks]
    assert (block.retry, block.event, block.plain["error"]["code"]) == (1000, "failure", 503)


@pytest.mark.rule("P6", "X15")
async def test_a_reader_that_goes_frees_what_it_held(suite: Suite, talk: Talk, http: EventsOverHttp) -> None:
    await talk.submit(("in", "x"))
    projection, runtime = (suite.hosts[name].registry for name in ("projection", "runtime"))
    method = {"method": "/threadkeep.runtime.v1.EventService/SubscribeEvents"}

    def open_streams() -> tuple[float, float]:
        ours = projection.get_sample_value("threadkeep_projection_streams_open", {"transport": "sse"})
        return ours or 0, (runtime.get_sample_value("threadkeep_rpcs_open", method) or 0) - 1

    await eventually(lambda: open_streams() == (0, 0))
    readers: list[asyncio.Future[None]] = []
    for _ in range(5):
        seen: list[Block] = []
        readers.append(asyncio.ensure_future(http.read(seen, talk.session_id)))
        await eventually(lambda: len(seen) > 1)  # noqa: B023
    assert open_streams() == (5, 5)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await eventually(lambda: open_streams() == (0, 0))
    codes = {"code": "200"}
    assert projection.get_sample_value("threadkeep_projection_http_requests_total", codes) == 5


@over_http(stream_patience_seconds=0.3)
@pytest.mark.rule("P6", "X9")
@pytest.mark.case("B82")
async def test_a_reader_that_takes_nothing_is_cut_and_little_waits_for_it(
    suite: Suite, talk: Talk, http: EventsOverHttp
) -> None:
    size, count = 524288, 96
    name = await large_session(talk.world, size, count)
    registry = suite.hosts["projection"].registry

    def number(what: str) -> float:
        labels = {} if "buffered" in what else {"transport": "sse"}
        return registry.get_sample_value(f"threadkeep_projection_{what}", labels) or 0

    reader = standing_still(http, name)
    waiting = [0.0]

    def is_cut() -> bool:
        waiting.append(number("stream_buffered_bytes"))
        return number("streams_cut_total") == 1

    with capture_logs() as logs:
        await eventually(is_cut)
        await eventually(lambda: number("streams_open") == 0)
        method = {"method": "/threadkeep.runtime.v1.EventService/SubscribeEvents"}
        open_calls = suite.hosts["runtime"].registry
        await eventually(lambda: open_calls.get_sample_value("threadkeep_rpcs_open", method) == 1)
    assert not [line for line in logs if line["log_level"] == "error"]
    # One frame, and what the connection's own buffer holds; the rest never left the log.
    assert 0 < max(waiting) < 2 * size
    assert number("stream_buffered_bytes") == 0
    assert number("stream_frames_total") < count / 2
    # What lay in the sockets can still be read, then the connection is gone.
    reader.setblocking(False)
    loop, taken = asyncio.get_running_loop(), b""
    try:
        while part := await asyncio.wait_for(loop.sock_recv(reader, 1 << 20), 20):
            taken += part
    except ConnectionResetError:
        pass
    reader.close()
    assert b"event: end" not in taken
    assert b"failure" not in taken


@pytest.mark.rule("P6")
@pytest.mark.case("B97")
async def test_a_reader_that_takes_nothing_does_not_hold_up_a_stop(
    suite: Suite, talk: Talk, http: EventsOverHttp
) -> None:
    name = await large_session(talk.world, 524288, 48)
    registry = suite.hosts["projection"].registry
    reader = standing_still(http, name)
    await eventually(lambda: (registry.get_sample_value("threadkeep_projection_stream_buffered_bytes") or 0) > 65536)
    with capture_logs() as logs:
        await suite.rehost("projection", grace_seconds=0)
    assert not [line for line in logs if line["log_level"] == "error"]
    reader.close()


@pytest.mark.rule("P6", "R14")
async def test_a_reader_goes_on_at_another_replica(suite: Suite, talk: Talk, http: EventsOverHttp) -> None:
    task = await talk.submit(("in", "x"))
    await talk.work()
    await talk.finish()
    *seen, _ = await http.whole(talk.session_id, until_task_id=task.task_id)
    replica = build_service("projection", "memory:", {"http_listen": "127.0.0.1:0"})
    async with Host([replica], peers={"runtime": suite.addresses["runtime"]}):
        there = EventsOverHttp(replica.http_address, talk.world.values)
        rest = await there.whole(talk.session_id, {"last-event-id": str(seen[2].id)}, until_task_id=task.task_id)
        assert [one.id for one in rest[:-1]] == [one.id for one in seen[3:]]
        gone = await there.get(talk.session_id, {"last-event-id": str(seen[-1].id)}, until_task_id=task.task_id)
        assert gone.status_code == 204
        await there.close()
