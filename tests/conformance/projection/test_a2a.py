"""A2A over gRPC with the official client: messages open tasks and answer them (P6)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from a2a.client import ClientFactory, minimal_agent_card
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2, a2a_pb2_grpc
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf import json_format, struct_pb2

from tests.support.a2a import ENTERED, GATES, Agency, agency, message, sent, text_of, told
from tests.support.suite import Suite
from tests.support.waiting import eventually

PAIRS = [("sqlite", "embedded"), ("postgres", "split")]
pytestmark = pytest.mark.suite(pairs=PAIRS)


@pytest.fixture
async def at(shared_suite: Suite) -> AsyncIterator[Agency]:
    async with agency(shared_suite) as made:
        yield made


def state(task: a2a_pb2.Task) -> str:
    return a2a_pb2.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def gate(name: str) -> str:
    GATES.pop(name, None)
    ENTERED.discard(name)
    return f"hold {name}"


@pytest.mark.rule("P6")
async def test_a_message_opens_a_task_and_its_result_comes_back(at: Agency) -> None:
    client = await at.speak(streaming=False)
    said = message("say hello", context_id="a talk")
    task = await sent(client, at, said)
    assert (state(task), task.context_id) == ("COMPLETED", "a talk")
    assert [(one.role, text_of(one.parts)) for one in task.history] == [
        (a2a_pb2.ROLE_USER, "say hello"),
        (a2a_pb2.ROLE_AGENT, "hello"),
    ]
    assert task.history[0].message_id == said.message_id
    (result,) = task.artifacts
    assert (result.artifact_id, text_of(result.parts)) == ("result", "hello")
    # Ids are ours.
    known = await at.client.tasks.get(task.id)
    assert (known.session_id, known.agent_name) == ("a talk", "talker")
    again = await client.get_task(a2a_pb2.GetTaskRequest(id=task.id), context=at.context)
    assert again == task
    # The session has the conversation.
    listed = [one async for one in at.client.messages.list("a talk")]
    assert [one.message_id for one in listed] == [said.message_id, f"re-{said.message_id}"]


@pytest.mark.rule("P6", "X3")
async def test_the_same_message_again_is_one_task_and_another_under_its_id_is_refused(at: Agency) -> None:
    client = await at.speak(streaming=False)
    said = message("say once")
    first = await sent(client, at, said)
    again = await sent(client, at, said)
    assert again == first
    streamed = await told(await at.speak(), at, said)
    assert streamed[0].task.id == first.id
    assert streamed[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
    with pytest.raises(A2AClientError, match="ALREADY_EXISTS"):
        await sent(client, at, message("say twice", message_id=said.message_id))
    assert len([one async for one in at.client.tasks.list()]) == 1


@pytest.mark.rule("P6", "R5")
async def test_a_second_message_to_a_busy_context_waits_for_its_turn(at: Agency) -> None:
    client = await at.speak(streaming=False)
    at_once = a2a_pb2.SendMessageConfiguration(return_immediately=True)
    first = await sent(client, at, message(gate("busy"), context_id="c"), configuration=at_once)
    await eventually(lambda: "busy" in ENTERED)
    second = await sent(client, at, message("say next", context_id="c"), configuration=at_once)
    assert (state(second), second.context_id) == ("SUBMITTED", "c")
    assert not (await at.client.tasks.get(second.id)).HasField("run_id")
    # The one that works takes no further message: it asks nothing.
    with pytest.raises(UnsupportedOperationError, match="context alone"):
        await sent(client, at, message("say more", task_id=first.id))
    GATES["busy"].set()
    seen = [
        one
        async for one in (await at.speak()).subscribe(a2a_pb2.SubscribeToTaskRequest(id=second.id), context=at.context)
    ]
    assert seen[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED
    with pytest.raises(UnsupportedOperationError, match="has ended"):
        await sent(client, at, message("say more", task_id=first.id))


@pytest.mark.rule("P6", "R10")
async def test_a_message_to_a_task_that_asks_is_the_answer_once(at: Agency) -> None:
    client = await at.speak(streaming=False)
    asking = await sent(client, at, message('ask {"question": "which?", "of": [1, 2.5, null]}'))
    assert state(asking) == "INPUT_REQUIRED"
    (part,) = asking.status.message.parts
    assert json_format.MessageToDict(part.data) == {"question": "which?", "of": [1, 2.5, None]}
    assert part.metadata.fields["ticket_id"].string_value == (await at.client.tasks.get(asking.id)).open_ticket_ids[0]
    wrong = message("blue", task_id=asking.id, context_id="another")
    with pytest.raises(InvalidParamsError):
        await sent(client, at, wrong)
    said = message("blue", task_id=asking.id)
    done = await sent(client, at, said)
    assert (done.id, state(done)) == (asking.id, "COMPLETED")
    assert text_of(done.artifacts[0].parts) == "you said blue"
    # Again: the same answer, nothing more happens. Another answer under this id is none.
    assert await sent(client, at, said) == done
    with pytest.raises(UnsupportedOperationError):
        await sent(client, at, message("red", task_id=asking.id, message_id=said.message_id))


@pytest.mark.rule("P6", "X3")
async def test_an_answer_that_is_sent_again_never_reaches_the_next_question(at: Agency) -> None:
    client = await at.speak("twice", streaming=False)
    asking = await sent(client, at, message("go"))
    tickets = await at.client.tasks.get(asking.id)
    assert len(tickets.open_ticket_ids) == 2
    with pytest.raises(UnsupportedOperationError, match="ticket_id") as caught:
        await sent(client, at, message("yes", task_id=asking.id))
    cause = caught.value.__cause__
    assert isinstance(cause, grpc.aio.AioRpcError)
    assert b"TICKET_AMBIGUOUS" in dict(cause.trailing_metadata())["grpc-status-details-bin"]
    first, second = (one.metadata.fields["ticket_id"].string_value for one in asking.status.message.parts)
    named = struct_pb2.Struct()
    named.update({"ticket_id": first})
    at_once = a2a_pb2.SendMessageConfiguration(return_immediately=True)
    one = message("yes", task_id=asking.id, metadata=named)
    await sent(client, at, one, configuration=at_once)
    # One is left; the first answer again is a replay, though the other ticket would take it.
    await sent(client, at, one, configuration=at_once)
    assert (await at.client.tasks.get(asking.id)).open_ticket_ids == [second]
    done = await sent(client, at, message("no", task_id=asking.id))
    said = {text_of(one.parts) for one in done.history if one.role == a2a_pb2.ROLE_AGENT}
    assert said == {"left: yes", "right: no"} or said == {"left: no", "right: yes"}


@pytest.mark.rule("P6")
async def test_parts_of_every_kind_reach_the_agent_and_come_back(at: Agency) -> None:
    client = await at.speak(streaming=False)
    value = json_format.ParseDict({"n": 3, "x": 0.5, "deep": [{"ok": True}, None]}, struct_pb2.Value())
    task = await sent(
        client,
        at,
        message(
            "say it",
            a2a_pb2.Part(data=value),
            a2a_pb2.Part(raw=b"\x00png", media_type="image/png", filename="a.png"),
            a2a_pb2.Part(url="https://example.com/b.pdf", media_type="application/pdf"),
        ),
    )
    text, data, image, file = task.history[0].parts
    assert text.text == "say it"
    assert json.loads(data.text) == {"n": 3, "x": 0.5, "deep": [{"ok": True}, None]}
    assert (image.raw, image.media_type, image.filename) == (b"\x00png", "image/png", "a.png")
    assert (file.url, file.media_type) == ("https://example.com/b.pdf", "application/pdf")


@pytest.mark.rule("P6", "A8")
async def test_what_a_run_saves_comes_as_artifacts_small_ones_with_their_content(at: Agency) -> None:
    client = await at.speak()
    frames = await told(client, at, message("save notes.md # Notes"))
    artifacts = [one.artifact_update.artifact for one in frames if one.HasField("artifact_update")]
    assert [one.name for one in artifacts] == ["notes.md", "result"]
    (part,) = artifacts[0].parts
    assert (part.text, part.media_type, part.filename) == ("# Notes", "text/markdown", "notes.md")
    task_id = frames[0].task.id
    task = await client.get_task(a2a_pb2.GetTaskRequest(id=task_id, history_length=0), context=at.context)
    assert list(task.artifacts) == artifacts
    assert not task.history
    large = await told(client, at, message("save big.txt " + "x" * 70_000))
    big = next(one.artifact_update.artifact for one in large if one.HasField("artifact_update"))
    assert big.parts[0].url == f"threadkeep:artifacts/{big.artifact_id}/versions/1"
    assert big.metadata.fields["size"].number_value == 70_000


@pytest.mark.rule("P6")
async def test_a_failed_task_says_why(at: Agency) -> None:
    task = await sent(await at.speak(streaming=False), at, message("fail no luck"))
    assert state(task) == "FAILED"
    assert "no luck" in text_of(task.status.message.parts)


@pytest.mark.rule("P6", "R9")
async def test_a_task_is_canceled_once(at: Agency) -> None:
    client = await at.speak(streaming=False)
    at_once = a2a_pb2.SendMessageConfiguration(return_immediately=True)
    task = await sent(client, at, message(gate("forever")), configuration=at_once)
    await eventually(lambda: "forever" in ENTERED)
    request = a2a_pb2.CancelTaskRequest(id=task.id)
    request.metadata.update({"reason": "enough"})
    await client.cancel_task(request, context=at.context)

    async def canceled() -> Any:
        found = await client.get_task(a2a_pb2.GetTaskRequest(id=task.id), context=at.context)
        return state(found) == "CANCELED" and found

    assert text_of((await eventually(canceled)).status.message.parts) == "enough"
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(a2a_pb2.CancelTaskRequest(id=task.id), context=at.context)


@pytest.mark.rule("P6", "X2")
async def test_tasks_of_other_scopes_and_other_agents_are_not_found(at: Agency) -> None:
    client = await at.speak(streaming=False)
    task = await sent(client, at, message("say mine", context_id="c"))
    other_agent = await at.speak("twice", streaming=False)
    async with agency(at.suite, worker=False) as elsewhere:
        stranger = await elsewhere.speak(streaming=False)
        for who, where in ((stranger, elsewhere), (other_agent, at)):
            for task_id in (task.id, "never-used"):
                with pytest.raises(TaskNotFoundError):
                    await who.get_task(a2a_pb2.GetTaskRequest(id=task_id), context=where.context)
                with pytest.raises(TaskNotFoundError):
                    await who.cancel_task(a2a_pb2.CancelTaskRequest(id=task_id), context=where.context)
                with pytest.raises(TaskNotFoundError):
                    await sent(who, where, message("x", task_id=task_id))
            listed = await who.list_tasks(a2a_pb2.ListTasksRequest(), context=where.context)
            assert (list(listed.tasks), listed.total_size) == ([], 0)
        # The same context id is another talk there.
        at_once = a2a_pb2.SendMessageConfiguration(return_immediately=True)
        theirs = await sent(stranger, elsewhere, message("say mine", context_id="c"), configuration=at_once)
        assert theirs.id != task.id


@pytest.mark.rule("P6", "X8")
async def test_bad_messages_are_invalid_params_that_name_the_field(at: Agency) -> None:
    client = await at.speak(streaming=False)
    ugly = a2a_pb2.Message(role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="x")])
    for said, field in (
        (ugly, "message.message_id"),
        (message(), "message.parts"),
        (message(a2a_pb2.Part()), "message.parts[0]"),
        (message(a2a_pb2.Part(data=struct_pb2.Value(number_value=float("nan")))), "message.parts[0].data"),
        (message("x", context_id="a\nb"), "message.context_id"),
        (message("x", message_id="m" * 300), "message.message_id"),
        (message(*["x"] * 257), "message.parts"),
        (message("nul \x00"), "message.parts[0].text"),
        (a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_AGENT, parts=[a2a_pb2.Part(text="x")]), "message.role"),
    ):
        with pytest.raises(InvalidParamsError) as caught:
            await sent(client, at, said)
        assert [one["field"] for one in caught.value.data["errors"]] == [field], said
    for request in (a2a_pb2.ListTasksRequest(page_size=101), a2a_pb2.ListTasksRequest(page_token="x")):
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(request, context=at.context)
    with pytest.raises(InvalidParamsError):
        await client.get_task(a2a_pb2.GetTaskRequest(id="x", history_length=-1), context=at.context)
    for ugly_request in (a2a_pb2.GetTaskRequest(id=""), a2a_pb2.GetTaskRequest(id="x", tenant="a\nb")):
        with pytest.raises(InvalidParamsError):
            await client.get_task(ugly_request, context=at.context)


@pytest.mark.rule("P6", "X1")
async def test_a_call_needs_a_scope_and_a_version_that_is_spoken(at: Agency) -> None:
    client = await at.speak(streaming=False)
    request = a2a_pb2.GetTaskRequest(id="x")
    with pytest.raises(A2AClientError, match="UNAUTHENTICATED"):
        await client.get_task(request)
    stub = a2a_pb2_grpc.A2AServiceStub(at.suite.channel("projection"))
    scope = ("threadkeep-scope", json.dumps(at.scope))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetTask(request, metadata=(scope, ("a2a-version", "0.3")))
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert b"VERSION_NOT_SUPPORTED" in dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    twice = (*at.suite.scope(**at.scope), scope)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetTask(request, metadata=twice)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.rule("P6")
async def test_the_card_tells_of_the_agent_and_its_skills(at: Agency) -> None:
    client = await at.speak()
    card = await client.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest(), context=at.context)
    assert (card.name, card.description) == ("talker", "Says what it is told to.")
    assert [(one.id, one.description) for one in card.skills] == [("terse", "Says little.")]
    (interface,) = card.supported_interfaces
    assert (interface.protocol_binding, interface.protocol_version, interface.tenant) == ("GRPC", "1.0", "talker")
    assert interface.url == at.suite.addresses["projection"]
    with pytest.raises(UnsupportedOperationError):
        await client.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest(tenant="nobody"), context=at.context)


@pytest.mark.rule("P6")
async def test_without_a_tenant_the_contexts_agent_answers_or_the_only_one(at: Agency) -> None:
    card = minimal_agent_card(at.suite.addresses["projection"], ["GRPC"])
    async with ClientFactory(at.config(streaming=False)).create(card) as anyone:
        await sent(await at.speak(streaming=False), at, message("say it", context_id="c"))
        assert text_of((await sent(anyone, at, message("say on", context_id="c"))).artifacts[0].parts) == "on"
        with pytest.raises(InvalidParamsError):
            await sent(anyone, at, message("say it"))
        await at.client.config.delete("agent", "twice")
        assert text_of((await sent(anyone, at, message("say mine"))).artifacts[0].parts) == "mine"
