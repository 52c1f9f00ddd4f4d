"""Push notifications of A2A with the official client: put on, shown, taken off, delivered by the runtime (P6, R16)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from a2a.types import a2a_pb2
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf import json_format

from tests.conformance.projection.test_a2a import PAIRS, gate
from tests.support.a2a import ENTERED, GATES, Agency, agency, message, sent
from tests.support.databases import Databases
from tests.support.hooks import Endpoint, Post
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep_runtime.domain.webhooks import secret_bytes, sign

SECRET = "whsec_" + "c2VjcmV0" * 4
AT_ONCE = a2a_pb2.SendMessageConfiguration(return_immediately=True)

pytestmark = pytest.mark.suite(pairs=PAIRS)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = await Endpoint().start()
    yield made
    await made.close()


@pytest.fixture
async def at(
    databases: Databases,
    backend_and_topology: tuple[str, str],
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Agency]:
    """An agency whose runtime may post to the endpoint, and signs."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    outbox = {
        "webhook_origins": [endpoint.url("")],
        "webhook_networks": ["127.0.0.0/8"],
        "webhook_secrets": {"default": "env:HOOK_SECRET"},
    }
    suite = await Suite.start(databases, *backend_and_topology, {"runtime": {"outbox": outbox}})
    async with agency(suite) as made:
        yield made
    await suite.close()


def states(posts: list[Post]) -> list[str]:
    """The states that an endpoint was told, read as A2A's own message."""
    updates = [json_format.ParseDict(post.json, a2a_pb2.StreamResponse()).status_update for post in posts]
    return [a2a_pb2.TaskState.Name(one.status.state).removeprefix("TASK_STATE_") for one in updates]


@pytest.mark.rule("P6", "R16")
async def test_a_task_is_followed_by_push_from_its_message_to_its_end(at: Agency, endpoint: Endpoint) -> None:
    client = await at.speak(streaming=False)
    card = await client.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest(), context=at.context)
    assert card.capabilities.push_notifications
    config = a2a_pb2.TaskPushNotificationConfig(
        id="mine",
        url=endpoint.url("/mine"),
        token="a word",
        authentication=a2a_pb2.AuthenticationInfo(scheme="Bearer", credentials="s3cret"),
    )
    told = a2a_pb2.SendMessageConfiguration(task_push_notification_config=config)
    asking = await sent(client, at, message("ask", context_id="c"), configuration=told)
    # One that comes later hears what comes then.
    late = a2a_pb2.TaskPushNotificationConfig(task_id=asking.id, url=endpoint.url("/late"))
    made = await client.create_task_push_notification_config(late, context=at.context)
    assert (made.id, made.url) == (asking.id, late.url)
    await sent(client, at, message("this", task_id=asking.id))
    await eventually(lambda: states(endpoint.to("/mine"))[-1:] == ["COMPLETED"])
    await eventually(lambda: states(endpoint.to("/late"))[-1:] == ["COMPLETED"])
    assert states(endpoint.to("/mine")) == ["WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
    assert states(endpoint.to("/late")) == ["WORKING", "COMPLETED"]
    for post in endpoint.to("/mine"):
        update = json_format.ParseDict(post.json, a2a_pb2.StreamResponse()).status_update
        assert (update.task_id, update.context_id) == (asking.id, "c")
        assert post.headers["x-a2a-notification-token"] == "a word"
        assert post.headers["authorization"] == "Bearer s3cret"
        assert post.headers["content-type"] == "application/a2a+json"
        signed = sign(secret_bytes(SECRET), post.message_id, int(post.headers["webhook-timestamp"]), post.body)
        assert post.headers["webhook-signature"] == signed
    assert not {"authorization", "x-a2a-notification-token"} & set(endpoint.to("/late")[0].headers)
    # What was said for headers stays out of the log, and credentials are never shown again.
    logged = [one async for one in at.client.events.list(session_id="c")]
    assert not any(word in one.payload.data for one in logged for word in (b"s3cret", b"a word", b"/mine"))
    shown = await client.get_task_push_notification_config(
        a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=asking.id, id="mine"), context=at.context
    )
    assert (shown.token, shown.authentication.scheme, shown.authentication.credentials) == ("a word", "Bearer", "")


@pytest.mark.rule("P6", "X2")
async def test_configurations_are_listed_replaced_and_taken_off(at: Agency, endpoint: Endpoint) -> None:
    client = await at.speak(streaming=False)
    task = await sent(client, at, message(gate("push")), configuration=AT_ONCE)
    await eventually(lambda: "push" in ENTERED)

    async def put(config_id: str, path: str, **more: Any) -> a2a_pb2.TaskPushNotificationConfig:
        config = a2a_pb2.TaskPushNotificationConfig(task_id=task.id, id=config_id, url=endpoint.url(path), **more)
        return await client.create_task_push_notification_config(config, context=at.context)

    async def listed(**fields: Any) -> Any:
        request = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task.id, **fields)
        return await client.list_task_push_notification_configs(request, context=at.context)

    before = await at.client.tasks.get(task.id)
    for name in "cab":
        await put(name, f"/{name}")
    await put("b", "/again")
    assert [(one.id, one.url) for one in (await listed()).configs] == [
        ("a", endpoint.url("/a")),
        ("b", endpoint.url("/again")),
        ("c", endpoint.url("/c")),
    ]
    page = await listed(page_size=2)
    assert [one.id for one in page.configs] == ["a", "b"]
    assert [one.id for one in (await listed(page_size=2, page_token=page.next_page_token)).configs] == ["c"]
    for _ in range(2):
        gone = a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="a")
        await client.delete_task_push_notification_config(gone, context=at.context)
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(
            a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task.id, id="a"), context=at.context
        )
    # Beside the task: who is told of it is no change of it.
    assert await at.client.tasks.get(task.id) == before
    with pytest.raises(InvalidParamsError) as caught:
        await client.create_task_push_notification_config(
            a2a_pb2.TaskPushNotificationConfig(task_id=task.id, url="https://169.254.169.254/latest"),
            context=at.context,
        )
    assert [one["field"] for one in caught.value.data["errors"]] == ["url"]
    bad = a2a_pb2.SendMessageConfiguration(
        task_push_notification_config=a2a_pb2.TaskPushNotificationConfig(url="http://somewhere.example/")
    )
    with pytest.raises(InvalidParamsError) as caught:
        await sent(client, at, message("x"), configuration=bad)
    (problem,) = caught.value.data["errors"]
    assert problem["field"] == "configuration.task_push_notification_config.url"
    for more in (
        {"token": "a\nb"},
        {"authentication": a2a_pb2.AuthenticationInfo(scheme="B\r\nx: y", credentials="z")},
    ):
        with pytest.raises(InvalidParamsError):
            await put("d", "/d", **more)
    async with agency(at.suite, worker=False) as elsewhere:
        stranger = await elsewhere.speak(streaming=False)
        for call in (
            stranger.list_task_push_notification_configs(
                a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task.id), context=elsewhere.context
            ),
            stranger.create_task_push_notification_config(
                a2a_pb2.TaskPushNotificationConfig(task_id=task.id, url=endpoint.url()), context=elsewhere.context
            ),
            stranger.delete_task_push_notification_config(
                a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="b"), context=elsewhere.context
            ),
        ):
            with pytest.raises(TaskNotFoundError):
                await call
    GATES["push"].set()
    await eventually(lambda: states(endpoint.to("/again")) == ["COMPLETED"])
    await eventually(lambda: states(endpoint.to("/c")) == ["COMPLETED"])
    assert not endpoint.to("/a")
    assert not endpoint.to("/b")
