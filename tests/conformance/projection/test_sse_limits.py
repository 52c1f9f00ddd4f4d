"""Who may read over HTTP, what is refused, and what becomes of readers and servers that go away (P6, X1, X2, X13)."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conformance.projection.conftest import SERVICES
from tests.conformance.projection.test_sse import OVER_HTTP, finished
from tests.conformance.projection.test_streams import subscribe
from tests.support.calls import refused
from tests.support.event_streams import Block, EventsOverHttp
from tests.support.examples.world import World, json_payload
from tests.support.projection import Talk
from tests.support.suite import Suite, build_service
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.hosting import ListenRefused

ONE = {"services": SERVICES, "backends": ["sqlite"], "topologies": ["split"]}

pytestmark = pytest.mark.suite(**ONE, settings=OVER_HTTP)


def over_http(**more: Any) -> Any:
    """A suite whose projection has these settings too."""
    return pytest.mark.suite(**ONE, settings={"projection": {**OVER_HTTP["projection"], **more}})


@pytest.fixture
async def talk(suite: Suite) -> Talk:
    return await Talk.begin(World(suite))


@pytest.fixture
async def http(suite: Suite, talk: Talk) -> AsyncIterator[EventsOverHttp]:
    made = EventsOverHttp.of(suite, talk.world.values)
    yield made
    await made.close()


def reason(answer: httpx.Response) -> tuple[int, str]:
    """The status and the stable reason."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["details"][0]["reason"]


def violations(answer: httpx.Response) -> list[str]:
    """The fields that an answer complains about."""
    return [one["field"] for one in answer.json()["error"]["details"][1]["fieldViolations"]]


@pytest.mark.rule("X1", "X13", "P6")
async def test_scope_and_grant_are_declared_as_over_grpc(talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    name = talk.session_id
    scope, other = json.dumps(talk.world.values), json.dumps({"tenant": "other"})
    plain, http.identity = http.identity, {}
    assert reason(await http.get(name)) == (401, "SCOPE_REQUIRED")
    assert reason(await http.get(name, grant='{"all":true}')) == (401, "SCOPE_REQUIRED")
    assert reason(await http.get(name, scope="{}")) == (403, "SCOPE_FORBIDDEN")
    assert reason(await http.get(name, scope="{}", grant='{"all":true}')) == (404, "SESSION_NOT_FOUND")
    outside = json.dumps({"scopes": [{"tenant": "other"}]})
    assert reason(await http.get(name, scope=scope, grant=outside)) == (403, "SCOPE_FORBIDDEN")
    inside = json.dumps({"scopes": [talk.world.values, {"tenant": "other"}]})
    headers = {"threadkeep-scope": scope, "threadkeep-grant": inside}
    assert (await http.whole(name, headers, until_task_id=task_id))[-1].event == "end"
    for given in ({"scope": other}, {"scope": scope}):
        answer = await http.get(name, headers, **given)
        assert (reason(answer), violations(answer)) == ((400, "FIELD_INVALID"), ["threadkeep-scope"])
    for text in (
        "",
        "x",
        "[]",
        '{"Tenant":"x"}',
        '{"tenant":""}',
        '{"tenant":1}',
        '{"a":"b","a":"c"}',
        '{"a":"\\u0001"}',
    ):
        answer = await http.get(name, scope=text)
        assert (reason(answer), violations(answer)) == ((400, "FIELD_INVALID"), ["threadkeep-scope"])
    for text in ("x", "{}", '{"all":false}', '{"scopes":[]}', '{"scopes":[1]}'):
        answer = await http.get(name, scope=scope, grant=text)
        assert (reason(answer), violations(answer)) == ((400, "FIELD_INVALID"), ["threadkeep-grant"])
    http.identity = plain
    assert (await http.whole(name, until_task_id=task_id))[-1].event == "end"


@pytest.mark.rule("X2", "P6")
async def test_what_is_foreign_is_what_was_never_there(suite: Suite, talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    stranger = EventsOverHttp.of(suite, World(suite).values)
    unknown = "x" * len(talk.session_id)

    async def answer(session_id: str, **more: Any) -> tuple[Any, ...]:
        got = await stranger.get(session_id, **more)
        return got.status_code, got.headers.multi_items(), got.content

    for more in ({}, {"kinds": "tokens"}):
        assert await answer(talk.session_id, **more) == await answer(unknown, **more)
    assert await answer(talk.session_id, until_task_id=task_id) == await answer(unknown, until_task_id="y" * 36)
    *_, last, _ = await http.whole(talk.session_id, until_task_id=task_id)
    foreign = {"last-event-id": str(last.id)}
    got = await stranger.get(talk.session_id, foreign, until_task_id=task_id)
    assert reason(got) == (404, "TASK_NOT_FOUND")
    await stranger.close()


@pytest.mark.rule("X6", "X8", "P6")
async def test_what_can_not_be_right_is_refused_by_name(talk: Talk, http: EventsOverHttp) -> None:
    await finished(talk)
    name = talk.session_id
    for parameters, field in (
        ({"kinds": "message"}, "kinds"),
        ({"kinds": "messages,"}, "kinds"),
        ({"kinds": ["messages"] * 17}, "kinds"),
        ({"visibility": "everyone"}, "visibility"),
        ({"visibility": ["builder", "internal"]}, "visibility"),
        ({"committed_only": "yes"}, "committed_only"),
        ({"until_task_id": ""}, "until_task_id"),
        ({"until_task_id": "a", "until_run_id": "b"}, "until_run_id"),
        ({"until_run_id": "a\u0001"}, "until_run_id"),
        ({"until": "x"}, "until"),
    ):
        answer = await http.get(name, **parameters)
        assert (reason(answer), violations(answer)) == ((400, "FIELD_INVALID"), [field]), parameters
    for cursor in ("x", "%%%", "AAAA", "\u2603", "A" * 2000):
        assert reason(await http.get(name, after=cursor)) == (400, "CURSOR_INVALID")
    assert reason(await http.get(name, {"last-event-id": "zzzz"})) == (400, "CURSOR_INVALID")
    assert reason(await http.get(name, until_task_id="never-used")) == (404, "TASK_NOT_FOUND")
    assert reason(await http.get("", kinds="state")) == (400, "FIELD_INVALID")
    assert reason(await http.get("s" * 5000)) == (400, "FIELD_INVALID")
    for method, path, status in (("GET", "/", 404), ("GET", "/v1/sessions", 404), ("POST", http.path(name), 405)):
        answer = await http.client.request(method, path, params=http.identity)
        assert reason(answer) == (status, "METHOD_UNKNOWN")
    head = await http.client.head(http.path(name), params=http.identity)
    assert (head.status_code, head.headers["allow"]) == (405, "GET")


@pytest.mark.rule("X13")
def test_it_listens_nowhere_but_on_the_loopback() -> None:
    for listen in ("0.0.0.0:0", "[::]:0", "10.0.0.1:80", "example.org:80", "127.0.0.1", "127.0.0.1:x"):
        with pytest.raises(ListenRefused):
            build_service("projection", "memory:", {"http_listen": listen})
    assert build_service("projection", "memory:").http_address == ""


@over_http(http_allowed_origins=["http://app.example"], http_allowed_hosts=["gate.example"])
@pytest.mark.rule("X13", "P6")
async def test_foreign_pages_read_nothing(talk: Talk, http: EventsOverHttp) -> None:
    """A page of the network can lead a name of its own here, and ask across origins: neither gives it an answer."""
    task_id = await finished(talk)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example:7434", "[::2]:1"):
        answer = await http.get(talk.session_id, {"host": host}, until_task_id=task_id)
        assert (reason(answer), violations(answer)) == ((400, "FIELD_INVALID"), ["host"])
    for host in ("localhost", "localhost:9", "[::1]:9", "gate.example:443", "GATE.example"):
        assert (await http.whole(talk.session_id, {"host": host}, until_task_id=task_id))[-1].event == "end"
    for origin, allowed in (("http://app.example", "http://app.example"), ("http://evil.example", None)):
        async with http.stream(talk.session_id, {"origin": origin}, until_task_id=task_id) as (response, _):
            assert response.headers.get("access-control-allow-origin") == allowed


@over_http(stream_heartbeat_seconds=0.05)
@pytest.mark.rule("P6")
async def test_a_stream_in_which_nothing_happens_shows_that_it_lives(talk: Talk, http: EventsOverHttp) -> None:
    await talk.submit(("in", "x"))
    beats = 0
    async with http.stream(talk.session_id) as (_, blocks):
        async for block in blocks:
            beats += block.comments == ["heartbeat"]
            if beats == 3:
                break
    assert beats == 3


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


@over_http(limits={"max_subscriptions": 2})
@pytest.mark.rule("X9", "P6")
async def test_streams_of_both_kinds_count_towards_one_limit(talk: Talk, http: EventsOverHttp) -> None:
    await talk.submit(("in", "x"))
    call = subscribe(talk)
    await call.read()
    async with http.stream(talk.session_id) as (_, blocks):
        await anext(blocks)
        answer = await http.get(talk.session_id)
        assert reason(answer) == (429, "LIMIT_EXCEEDED")
        assert answer.json()["error"]["details"][0]["metadata"]["limit"] == "max_subscriptions"
        again = subscribe(talk)
        assert (await refused(again.read())).reason == "LIMIT_EXCEEDED"
    call.cancel()


@over_http(stream_patience_seconds=0.3)
@pytest.mark.rule("P6", "X9")
@pytest.mark.case("B82")
async def test_a_reader_that_takes_nothing_is_cut_and_little_waits_for_it(
    suite: Suite, talk: Talk, http: EventsOverHttp
) -> None:
    name = (await talk.world.session()).session.session_id
    size, count = 524288, 96
    draft = event_pb2.EventDraft(type="big.one", payload=json_payload(b'"' + b"x" * size + b'"'))
    for _ in range(count // 4):
        await talk.world.commit(session_id=name, events=[draft] * 4)
    registry = suite.hosts["projection"].registry

    def number(what: str) -> float:
        labels = {} if "buffered" in what else {"transport": "sse"}
        return registry.get_sample_value(f"threadkeep_projection_{what}", labels) or 0

    host, _, port = http.address.rpartition(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    reader.connect((host, int(port)))
    path = httpx.URL(f"http://{http.address}{http.path(name)}", params=http.identity | {"kinds": "custom"}).raw_path
    reader.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    waiting = [0.0]

    def is_cut() -> bool:
        waiting.append(number("stream_buffered_bytes"))
        return number("streams_cut_total") == 1

    await eventually(is_cut)
    await eventually(lambda: number("streams_open") == 0)
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
