"""Message facts: their shape, their place, and the conversation at any commit (R1, R12, P2)."""

from typing import Any

import grpc
import pytest

from tests.support.calls import refusing
from tests.support.checkpoints import op, put
from tests.support.descriptors import fresh_id
from tests.support.messages import append, calls, message, remove, replace
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, event
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.runtime.v1 import message_pb2, session_service_pb2

USER, ASSISTANT = content_pb2.MESSAGE_ROLE_USER, content_pb2.MESSAGE_ROLE_ASSISTANT
TOOL = content_pb2.MESSAGE_ROLE_TOOL
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def texts(runtime: Runtime, session_id: str, at: int | None = None, **more: Any) -> list[str]:
    """The conversation as `id=text`."""
    pages = await runtime.view(session_id, at, **more)
    return [
        f"{fact.message.message_id}={fact.message.parts[0].text}" if fact.message.parts else fact.message.message_id
        for page in pages
        for fact in page.messages
    ]


@pytest.mark.rule("R1", "R12", "X8")
async def test_messages_come_back_as_they_were_committed(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    asks = message(
        "\u0001 ü \U0001f600",
        "a-1",
        role=ASSISTANT,
        name="planner",
        tool_calls=calls("call-1"),
        model="m",
        usage=content_pb2.TokenUsage(input_tokens=1, output_tokens=2, total_tokens=3),
    )
    asks.parts.add(block_json='{"type": "image", "n": 12345678901234567890}')
    answers = message("42", role=TOOL, name="count", tool_call_id="call-1")
    changes = [message_pb2.MessageChange(append=one) for one in (asks, answers)]
    done = await runtime.work(held, messages=changes, running=RUNNING)
    assert done.message_ids[0] == "a-1"
    (page,) = await runtime.view(name)
    first, second = page.messages
    assert first.message == asks
    assert second.message.message_id == done.message_ids[1]
    second.message.ClearField("message_id")
    assert second.message == answers
    assert [(one.position, one.commit_sequence) for one in page.messages] == [(1, 3), (2, 3)]
    assert {(one.run_id, one.task_id) for one in page.messages} == {(held.run.run_id, held.task.task_id)}
    assert {one.create_time.ToMicroseconds() for one in page.messages} == {done.receipt.commit_time.ToMicroseconds()}
    assert page.message_source == message_pb2.MESSAGE_SOURCE_FACTS
    assert (await runtime.types(name))[-2:] == ["message.appended", "message.appended"]


@pytest.mark.rule("R12")
async def test_the_conversation_at_every_commit(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    steps = [
        append("a", "b", "c"),
        [replace("b", "b2")],
        [*remove("a"), *append("d")],
        remove("c", "d"),
        [replace("b", "b3"), *append("e")],
    ]
    for step in steps:
        await runtime.commit(name, messages=step)
    expected = [
        [],
        ["a=a", "b=b", "c=c"],
        ["a=a", "b=b2", "c=c"],
        ["b=b2", "c=c", "d=d"],
        ["b=b2"],
        ["b=b3", "e=e"],
    ]
    for at, conversation in enumerate(expected, start=1):
        assert await texts(runtime, name, at) == conversation
        assert await texts(runtime, name, at, page_size=1) == conversation
    assert await texts(runtime, name) == expected[-1]


@pytest.mark.rule("R12")
async def test_a_long_conversation_with_its_middle_removed_is_the_same_at_any_commit(runtime: Runtime) -> None:
    """Long enough for its places to be written down more than once."""
    name = (await runtime.create()).session_id
    live: list[str] = []
    history: list[list[str]] = [[]]
    for round_number in range(7):
        added = [f"{round_number}-{index}" for index in range(100)]
        gone = live[10:80] if round_number % 2 else live[:1]
        await runtime.commit(name, messages=[*append(*added), *remove(*gone)])
        live = [one for one in [*live, *added] if one not in gone]
        history.append(list(live))
    for at, conversation in enumerate(history, start=1):
        assert await texts(runtime, name, at, page_size=150) == [f"{one}={one}" for one in conversation]


@pytest.mark.rule("R1", "X2")
async def test_message_ids_are_unique_in_their_thread_for_good(runtime: Runtime) -> None:
    one, other = (await runtime.create()).session_id, (await runtime.create()).session_id
    await runtime.commit(one, messages=append("a", "b"))
    await runtime.commit(other, messages=append("a"))
    await runtime.commit(one, messages=remove("b"))
    for taken in ("a", "b"):
        with refusing(grpc.StatusCode.ALREADY_EXISTS, "ID_TAKEN"):
            await runtime.commit(one, messages=append("fresh", taken), events=[event()])
    for change in (replace("b", "x"), replace("never", "x"), *remove("b"), *remove("never")):
        with refusing(grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND"):
            await runtime.commit(one, messages=[change], events=[event()])
    with refusing(INVALID, "FIELD_INVALID") as error:
        await runtime.commit(one, messages=append("c", "c"))
    assert "commit.messages[1].append.message_id" in error.violations
    assert await texts(runtime, one) == ["a=a"]
    assert (await runtime.session(one)).thread_version == 3


@pytest.mark.rule("R1")
@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (message(role=content_pb2.MESSAGE_ROLE_UNSPECIFIED), "role"),
        (message(role=99), "role"),
        (message(""), "parts"),
        (message(tool_calls=calls("c")), "tool_calls"),
        (message(role=ASSISTANT, tool_calls=calls("c", "c")), "tool_calls[1].tool_call_id"),
        (message(role=TOOL), "tool_call_id"),
        (message(role=TOOL, tool_call_id="nobody asked"), "tool_call_id"),
        (message(tool_call_id="c"), "tool_call_id"),
    ],
)
async def test_a_message_of_no_shape_is_refused(runtime: Runtime, broken: Any, field: str) -> None:
    name = (await runtime.create()).session_id
    with refusing(INVALID, "FIELD_INVALID") as error:
        await runtime.commit(name, messages=[message_pb2.MessageChange(append=broken)])
    assert f"commit.messages[0].append.{field}" in error.violations
    assert (await runtime.session(name)).thread_version == 1


@pytest.mark.rule("R1")
async def test_a_tool_result_names_a_call_of_an_earlier_message(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    asks = message_pb2.MessageChange(append=message("", role=ASSISTANT, tool_calls=calls("c-1", "c-2")))
    first = message_pb2.MessageChange(append=message("1", role=TOOL, tool_call_id="c-1"))
    second = message_pb2.MessageChange(append=message("2", role=TOOL, tool_call_id="c-2"))
    with refusing(INVALID, "FIELD_INVALID"):
        await runtime.commit(name, messages=[first, asks])
    await runtime.commit(name, messages=[asks, first])
    await runtime.commit(name, messages=[second])
    assert len(await texts(runtime, name)) == 3


@pytest.mark.rule("P2")
async def test_a_session_has_one_source_of_messages(runtime: Runtime) -> None:
    mixed = grpc.StatusCode.FAILED_PRECONDITION, "MESSAGE_SOURCE_MIXED"
    checkpointed = (await runtime.create()).session_id
    await runtime.commit(checkpointed, checkpoint_ops=[op(put(1))])
    assert (await runtime.session(checkpointed)).message_source == message_pb2.MESSAGE_SOURCE_CHECKPOINTS
    with refusing(*mixed):
        await runtime.commit(checkpointed, messages=append("a"))
    told = (await runtime.create(message_source=message_pb2.MESSAGE_SOURCE_CHECKPOINTS)).session_id
    with refusing(*mixed):
        await runtime.commit(told, messages=append("a"))
    facts = (await runtime.create()).session_id
    await runtime.commit(facts, messages=append("a"))
    await runtime.commit(facts, checkpoint_ops=[op(put(1))], messages=append("b"))
    assert (await runtime.session(facts)).message_source == message_pb2.MESSAGE_SOURCE_FACTS
    encrypted = (await runtime.create(message_source=message_pb2.MESSAGE_SOURCE_FACTS)).session_id
    await runtime.commit(encrypted, checkpoint_ops=[op(put(1))])
    await runtime.commit(encrypted, messages=append("a"))
    assert await texts(runtime, encrypted) == ["a=a"]
    create = session_service_pb2.SessionDraft(message_source=message_pb2.MESSAGE_SOURCE_FACTS)
    task = await runtime.submit(create_session=create)
    assert (await runtime.session(task.session_id)).message_source == message_pb2.MESSAGE_SOURCE_FACTS


@pytest.mark.rule("R3")
async def test_while_a_run_is_leased_messages_need_its_lease(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    with refusing(grpc.StatusCode.FAILED_PRECONDITION, "LEASE_REQUIRED"):
        await runtime.commit(name, messages=append("a"))
    await runtime.work(held, messages=append("b"), ended=SUCCEEDED)
    with refusing(grpc.StatusCode.ABORTED, "LEASE_LOST"):
        await runtime.work(held, messages=append("c"))
    await runtime.commit(name, messages=append("d"))
    assert await texts(runtime, name) == ["b=b", "d=d"]


@pytest.mark.rule("X3", "X9")
async def test_messages_are_bounded_and_a_replay_appends_nothing(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    with refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED"):
        await runtime.commit(name, messages=[message_pb2.MessageChange(append=message("x" * (1 << 20)))])
    request_id = fresh_id()
    draft = [message_pb2.MessageChange(append=message("once"))]
    first = await runtime.commit(name, messages=draft, request_id=request_id)
    again = await runtime.commit(name, messages=draft, request_id=request_id)
    assert again.message_ids == first.message_ids
    assert again.receipt.replay
    assert await texts(runtime, name) == [f"{first.message_ids[0]}=once"]
