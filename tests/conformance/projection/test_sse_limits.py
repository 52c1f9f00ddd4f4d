"""Who may read over HTTP, what is refused, and what becomes of readers and servers that go away (P6, X1, X2, X13)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conformance.projection.conftest import SERVICES
from tests.conformance.projection.test_sse import OVER_HTTP, finished
from tests.conformance.projection.test_streams import subscribe
from tests.support.calls import refused
from tests.support.event_streams import EventsOverHttp
from tests.support.examples.world import World
from tests.support.projection import Talk
from tests.support.suite import Suite, build_service
from threadkeep_chassis.hosting import ListenRefused

ONE = {"services": SERVICES, "backends": ["sqlite"], "topologies": ["split"]}

pytestmark = pytest.mark.suite(**ONE, settings=OVER_HTTP)


def over_http(**more: Any) -> Any:
    """A suite whose projection has these settings too."""
    return pytest.mark.suite(**ONE, settings={"projection": {**OVER_HTTP["projection"], **more}})


@pytest.fixture
async def talk(shared_suite: Suite) -> Talk:
    return await Talk.begin(World(shared_suite))


@pytest.fixture
async def http(shared_suite: Suite, talk: Talk) -> AsyncIterator[EventsOverHttp]:
    made = EventsOverHttp.of(shared_suite, talk.world.values)
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
async def test_what_is_foreign_is_what_was_never_there(shared_suite: Suite, talk: Talk, http: EventsOverHttp) -> None:
    task_id = await finished(talk)
    stranger = EventsOverHttp.of(shared_suite, World(shared_suite).values)
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
