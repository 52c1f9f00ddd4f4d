"""Webhooks, posted to real endpoints on loopback that answer well, badly, late, elsewhere, or not at all (R16)."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import refused
from tests.support.chains import verified
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.hooks import DIE, STALL, Endpoint, Post, certificate
from tests.support.outbox import DEAD, DELIVERED, settled, to_webhook
from tests.support.runtime import SUCCEEDED, Runtime, failed, text
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import outbox_service_pb2, task_service_pb2, webhook_pb2

LOOPBACK = ["127.0.0.0/8", "::1/128"]


def outbox(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    """Settings that allow the endpoint, and little patience."""
    return {
        "webhook_origins": [endpoint.url(""), endpoint.url("", "localhost")],
        "webhook_networks": LOOPBACK,
        "webhook_timeout_seconds": 0.5,
        "claim_seconds": 10,
        "first_pause_seconds": 0.05,
        "longest_pause_seconds": 0.1,
        "max_attempts": 3,
        **more,
    }


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """An endpoint over plain HTTP."""
    served = await Endpoint().start()
    yield served
    await served.close()


class Start:
    """Starts suites with an outbox of other settings, and stops them."""

    def __init__(self, databases: Databases, backend: str) -> None:
        self._databases, self._backend = databases, backend
        self.suites: list[Suite] = []

    async def __call__(self, **settings: Any) -> Runtime:
        suite = await Suite.start(
            self._databases,
            self._backend,
            "embedded",
            {"runtime": {"outbox": settings, "signal_poll_seconds": 0.2}},
            ("config", "runtime"),
        )
        self.suites.append(suite)
        return Runtime(suite)


@pytest.fixture
async def start(databases: Databases, backend: str) -> AsyncIterator[Start]:
    """Starts suites."""
    started = Start(databases, backend)
    yield started
    for suite in started.suites:
        await suite.close()


@pytest.mark.rule("R16", "X11")
@pytest.mark.suite(backends=["memory", "postgres"])
async def test_a_tasks_end_is_posted_over_https_and_signed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, ca_file = certificate(tmp_path)
    endpoint = await Endpoint().start(context)
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(b"k" * 24).decode() + "\n")
    monkeypatch.setenv("OTHER_SECRET", "plain words")
    runtime = await start(
        **outbox(
            endpoint,
            webhook_ca_file=ca_file,
            webhook_secrets={"default": f"file:{tmp_path / 'secret'}", "other": "env:OTHER_SECRET"},
        )
    )
    url = endpoint.url("/done", "localhost")
    held = await runtime.lease(webhook=webhook_pb2.Webhook(url=url))
    assert held.task.webhook.url == url
    await runtime.work(held, ended=_with_result())
    (one,) = await settled(runtime, held.run.session_id)
    (post,) = endpoint.posts
    assert (post.message_id, one.state, one.last_status) == (one.message_id, DELIVERED, 200)
    assert post.headers["webhook-signature"] == _signature(b"k" * 24, post)
    body = post.json
    assert body["type"] == "threadkeep.task.completed"
    assert body["scope"] == runtime.world.values
    assert (body["session_id"], body["task_id"]) == (held.run.session_id, held.task.task_id)
    task = body["data"]["task"]
    assert (task["task_id"], task["state"]) == (held.task.task_id, "TASK_STATE_COMPLETED")
    assert base64.b64decode(task["result"]["data"]) == b"hello"

    named = await runtime.lease(webhook=webhook_pb2.Webhook(url=url, secret="other"))
    await runtime.work(named, ended=failed())
    await settled(runtime, named.run.session_id)
    post = endpoint.posts[1]
    assert post.headers["webhook-signature"] == _signature(b"plain words", post)
    assert (post.json["type"], post.json["data"]["task"]["failure"]["code"]) == ("threadkeep.task.failed", "boom")

    canceled = await runtime.submit(webhook=webhook_pb2.Webhook(url=url))
    await runtime.cancel(canceled.task_id)
    await settled(runtime, canceled.session_id)
    assert endpoint.posts[2].json["type"] == "threadkeep.task.canceled"

    submission = await runtime.submission(webhook=webhook_pb2.Webhook(url=url, secret="unknown"))
    assert list((await refused(runtime.call("TaskService.SubmitTask", submission))).violations) == ["webhook.secret"]
    await endpoint.close()


def _with_result() -> Any:
    ended = type(SUCCEEDED)()
    ended.CopyFrom(SUCCEEDED)
    ended.result.CopyFrom(text())
    return ended


def _signature(secret: bytes, post: Post) -> str:
    signed = f"{post.message_id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


@pytest.mark.rule("R16")
@pytest.mark.suite(backends=["memory"])
async def test_a_certificate_that_is_not_trusted_gets_nothing(start: Start, tmp_path: Path) -> None:
    context, _ = certificate(tmp_path)
    endpoint = await Endpoint().start(context)
    runtime = await start(**outbox(endpoint))
    source = (await runtime.create()).session_id
    await runtime.commit(source, outbox=[to_webhook(endpoint.url())])
    (one,) = await settled(runtime, source)
    assert (one.state, one.last_error, one.attempt, endpoint.posts) == (DEAD, "unreachable", 3, [])
    await endpoint.close()


@pytest.mark.rule("R16")
@pytest.mark.suite(backends=["memory", "sqlite", "postgres"])
async def test_what_fails_is_tried_again_under_the_same_id_and_holds_up_its_line_only(
    start: Start, endpoint: Endpoint
) -> None:
    script = {"/flaky": [500, STALL, 200], "/broken": [DIE, 503, 429, 200, 200], "/gone": [410]}
    endpoint.answers = lambda post: script.get(post.path, [200] * 99).pop(0)
    runtime = await start(**outbox(endpoint))
    source = (await runtime.create()).session_id
    await runtime.commit(
        source,
        outbox=[
            to_webhook(endpoint.url("/flaky"), 1),
            to_webhook(endpoint.url("/flaky"), 2),
            to_webhook(endpoint.url("/broken"), 1),
            to_webhook(endpoint.url("/broken"), 2),
            to_webhook(endpoint.url("/gone"), 1),
            to_webhook(endpoint.url("/good"), 1),
        ],
    )
    script["/flaky"].append(200)
    found = {(one.webhook.url.rsplit("/", 1)[1], one.payload.data): one for one in await _all(runtime, source)}
    flaky, broken = endpoint.to("/flaky"), endpoint.to("/broken")
    # The first is delivered at its third attempt; the second waits for it.
    assert [post.json["data"] for post in flaky] == [1, 1, 1, 2]
    assert len({post.message_id for post in flaky[:3]}) == 1
    assert len({post.body for post in flaky[:3]}) == 1
    assert (found["flaky", b"1"].state, found["flaky", b"1"].attempt) == (DELIVERED, 3)
    # The first is dead after three attempts, and the second has its turn.
    assert [post.json["data"] for post in broken] == [1, 1, 1, 2]
    assert (found["broken", b"1"].state, found["broken", b"1"].last_error) == (DEAD, "status")
    assert (found["broken", b"1"].last_status, found["broken", b"2"].state) == (429, DELIVERED)
    assert (found["gone", b"1"].state, found["gone", b"1"].attempt) == (DEAD, 1)
    assert found["good", b"1"].state == DELIVERED
    # A dead letter that is requeued has all its attempts again.
    request = outbox_service_pb2.RequeueDeadLettersRequest(
        request_id=fresh_id(), message_ids=[found["broken", b"1"].message_id]
    )
    await runtime.call("OutboxService.RequeueDeadLetters", request)
    again = {one.message_id: one for one in await _all(runtime, source)}[found["broken", b"1"].message_id]
    assert (again.state, again.attempt, again.last_error) == (DELIVERED, 1, "")


async def _all(runtime: Runtime, source: str) -> list[Any]:
    await settled(runtime, source)
    request = outbox_service_pb2.ListDeliveriesRequest(session_id=source, include_payload=True)
    return list((await runtime.call("OutboxService.ListDeliveries", request)).deliveries)


@pytest.mark.rule("R16")
@pytest.mark.case("B91")
@pytest.mark.suite(backends=["memory"])
async def test_a_redirect_is_not_followed(start: Start, endpoint: Endpoint) -> None:
    endpoint.answers = lambda post: (302, endpoint.url("/elsewhere")) if post.path == "/hook" else 200
    runtime = await start(**outbox(endpoint))
    source = (await runtime.create()).session_id
    await runtime.commit(source, outbox=[to_webhook(endpoint.url())])
    (one,) = await settled(runtime, source)
    assert (one.state, one.last_error, one.last_status) == (DEAD, "redirect", 302)
    assert [post.path for post in endpoint.posts] == ["/hook"]


@pytest.mark.rule("R16")
@pytest.mark.case("B91")
@pytest.mark.suite(backends=["memory"])
async def test_a_name_that_leads_to_loopback_is_refused_when_it_is_connected_to(
    start: Start, endpoint: Endpoint
) -> None:
    """The origin is allowed, the name resolves, and only then shows where it leads."""
    runtime = await start(**outbox(endpoint, webhook_networks=[]))
    source = (await runtime.create()).session_id
    decimal = endpoint.url("/hook", "2130706433")
    literal = await refused(runtime.commit(source, outbox=[to_webhook(endpoint.url())]))
    assert "webhook_networks" in literal.violations["commit.outbox[0].webhook.url"]
    assert (await refused(runtime.commit(source, outbox=[to_webhook(decimal)]))).reason == "FIELD_INVALID"
    await runtime.commit(source, outbox=[to_webhook(endpoint.url("/hook", "localhost"))])
    (one,) = await settled(runtime, source)
    assert (one.state, one.last_error, one.attempt) == (DEAD, "target_forbidden", 1)
    assert endpoint.posts == []


@pytest.mark.rule("R16", "X9")
@pytest.mark.suite(backends=["memory", "postgres"])
async def test_a_full_line_refuses_more_but_never_a_tasks_end(databases: Databases, backend: str) -> None:
    endpoint = await Endpoint(lambda _: 500).start()
    settings = {"outbox": outbox(endpoint, max_attempts=1000), "limits": {"max_pending_deliveries": 2}}
    suite = await Suite.start(databases, backend, "embedded", {"runtime": settings}, ("config", "runtime"))
    runtime = Runtime(suite)
    source = (await runtime.create()).session_id
    draft = to_webhook(endpoint.url())
    await runtime.commit(source, outbox=[draft, draft])
    answer = await refused(runtime.commit(source, outbox=[draft]))
    assert (answer.reason, answer.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_pending_deliveries")
    held = await runtime.lease(webhook=webhook_pb2.Webhook(url=endpoint.url()))
    await runtime.work(held, ended=SUCCEEDED)
    endpoint.answers = lambda _: 200
    assert {one.state for one in await settled(runtime, source)} == {DELIVERED}
    assert {one.state for one in await settled(runtime, held.run.session_id)} == {DELIVERED}
    await runtime.commit(source, outbox=[draft, draft])
    await suite.close()
    await endpoint.close()


@pytest.mark.rule("R16", "R17", "X3")
@pytest.mark.suite(backends=["memory", "postgres"])
async def test_a_tasks_webhooks_hear_each_state_while_they_are_on(start: Start, endpoint: Endpoint) -> None:
    runtime = await start(**outbox(endpoint))

    def webhook(name: str, **more: Any) -> webhook_pb2.TaskWebhookDraft:
        address = webhook_pb2.Webhook(url=endpoint.url(f"/{name}"))
        return webhook_pb2.TaskWebhookDraft(webhook_id=name, webhook=address, **more)

    held = await runtime.lease(webhooks=[webhook("first", token="word")])
    task_id, session_id = held.task.task_id, held.run.session_id
    before = await runtime.task(task_id)
    put = task_service_pb2.PutTaskWebhookRequest(
        request_id=fresh_id(),
        task_id=task_id,
        webhook=webhook("second", format=webhook_pb2.TASK_WEBHOOK_FORMAT_A2A, authorization_scheme="Basic"),
    )
    made = await runtime.call("TaskService.PutTaskWebhook", put)
    again = await runtime.call("TaskService.PutTaskWebhook", put)
    assert (again.webhook, again.receipt.commit_sequence) == (made.webhook, made.receipt.commit_sequence)
    assert again.receipt.replay
    # Who is told of a task is no change of it, and no event.
    assert await runtime.task(task_id) == before
    assert (made.receipt.first_event_sequence, made.receipt.last_event_sequence) == (0, 0)
    await runtime.work(held, ended=failed())
    ended = await runtime.task(task_id)
    await settled(runtime, session_id)
    first, second = endpoint.to("/first"), endpoint.to("/second")
    assert [post.json["type"] for post in first] == ["threadkeep.task.working", "threadkeep.task.failed"]
    assert first[-1].json["data"]["task"]["state"] == "TASK_STATE_FAILED"
    assert {post.headers["x-a2a-notification-token"] for post in first} == {"word"}
    (told,) = second
    assert told.headers["authorization"] == "Basic"
    status = told.json["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_FAILED"
    assert status["message"]["parts"] == [{"text": ended.failure.message}]
    # It can be taken off what has ended, too; the chain of commits verifies with all that.
    gone = task_service_pb2.DeleteTaskWebhookRequest(request_id=fresh_id(), task_id=task_id, webhook_id="first")
    await runtime.call("TaskService.DeleteTaskWebhook", gone)
    listing = task_service_pb2.ListTaskWebhooksRequest(task_id=task_id)
    listed = await runtime.call("TaskService.ListTaskWebhooks", listing)
    assert [one.webhook_id for one in listed.webhooks] == ["second"]
    assert await runtime.task(task_id) == ended
    await verified(runtime, session_id)


@pytest.mark.rule("R16", "X9")
@pytest.mark.suite(backends=["memory"])
async def test_what_was_on_its_way_to_a_webhook_that_was_taken_off_is_a_dead_letter(
    start: Start, endpoint: Endpoint
) -> None:
    endpoint.answers = lambda _: 500
    runtime = await start(**outbox(endpoint, max_attempts=100))

    async def put(name: str) -> Any:
        draft = webhook_pb2.TaskWebhookDraft(webhook_id=name, webhook=webhook_pb2.Webhook(url=endpoint.url()))
        request = task_service_pb2.PutTaskWebhookRequest(request_id=fresh_id(), task_id=task.task_id, webhook=draft)
        return await runtime.call("TaskService.PutTaskWebhook", request)

    task = await runtime.submit()
    for number in range(16):
        await put(f"w{number}")
    await put("w3")
    full = await refused(put("w16"))
    assert (full.reason, full.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_task_webhooks")
    await runtime.cancel(task.task_id)
    await eventually(lambda: endpoint.posts)
    for number in range(16):
        request = task_service_pb2.DeleteTaskWebhookRequest(
            request_id=fresh_id(), task_id=task.task_id, webhook_id=f"w{number}"
        )
        await runtime.call("TaskService.DeleteTaskWebhook", request)
    found = await settled(runtime, task.session_id)
    assert {(one.state, one.last_error) for one in found} == {(DEAD, "webhook_gone")}
    assert {one.webhook_id for one in found} == {f"w{number}" for number in range(16)}


@pytest.mark.rule("R16")
@pytest.mark.suite(backends=["memory"])
async def test_the_pauses_grow_and_a_stalled_target_holds_up_no_other(start: Start, endpoint: Endpoint) -> None:
    endpoint.answers = lambda post: STALL if post.path == "/slow" else 200
    runtime = await start(**outbox(endpoint, webhook_timeout_seconds=5, max_lines=2))
    source = (await runtime.create()).session_id
    await runtime.commit(source, outbox=[to_webhook(endpoint.url("/slow"))])
    await eventually(lambda: endpoint.to("/slow"))
    await runtime.commit(source, outbox=[to_webhook(endpoint.url(f"/{n}")) for n in range(6)])
    await eventually(lambda: len(endpoint.posts) == 7)
    await asyncio.sleep(0)
    assert len(endpoint.to("/slow")) == 1


@pytest.mark.rule("R16", "X8")
@pytest.mark.suite(backends=["memory"])
async def test_a_body_says_json_as_it_came_and_other_content_in_base64(start: Start, endpoint: Endpoint) -> None:
    runtime = await start(**outbox(endpoint))
    source = (await runtime.create()).session_id
    exact = to_webhook(endpoint.url("/exact"))
    exact.payload.data = b'{"n":9007199254740993,"x":1e22,"t":"\xc3\xa4"}'
    other = to_webhook(endpoint.url("/other"))
    other.payload.CopyFrom(text(b"\x00\xff"))
    nothing = to_webhook(endpoint.url("/nothing"))
    nothing.ClearField("payload")
    await runtime.commit(source, outbox=[exact, other, nothing])
    await settled(runtime, source)
    assert exact.payload.data in endpoint.to("/exact")[0].body
    shown = endpoint.to("/other")[0].json["data"]
    assert shown == {"content_type": "text/plain", "data": base64.b64encode(b"\x00\xff").decode()}
    assert endpoint.to("/nothing")[0].json["data"] is None
