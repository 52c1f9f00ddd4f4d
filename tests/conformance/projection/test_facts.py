"""Sessions whose messages are committed facts, as the projection shows them (P2, P3)."""

import pytest

from tests.support.checkpoints import op, put
from tests.support.messages import append, calls, message, remove, replace
from tests.support.projection import fresh
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2, summary_service_pb2
from threadkeep.projection.v1 import message_pb2 as shown_pb2
from threadkeep.runtime.v1 import message_pb2


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def shown(runtime: Runtime, session_id: str, cursor: bytes) -> list[shown_pb2.Message]:
    """The conversation as the projection has it once it has come to a cursor."""
    request = message_service_pb2.ListMessagesRequest(session_id=session_id, freshness=fresh(cursor))
    return [*(await runtime.call("MessageService.ListMessages", request)).messages]


@pytest.mark.rule("P2")
async def test_facts_take_the_place_of_the_inputs_that_they_repeat(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    given = held.task.input.messages.messages[0].message_id
    (pending,) = await shown(runtime, name, (await runtime.work(held, running=RUNNING)).receipt.cursor)
    assert (pending.message_id, pending.parts[0].text) == (given, "hello")
    asks = message(
        "thinking",
        "a-1",
        role=content_pb2.MESSAGE_ROLE_ASSISTANT,
        tool_calls=calls("c-1"),
        model="m-1",
        usage=content_pb2.TokenUsage(input_tokens=3, output_tokens=4),
    )
    result = message("42", "t-1", role=content_pb2.MESSAGE_ROLE_TOOL, name="count", tool_call_id="c-1")
    changes = [message_pb2.MessageChange(append=one) for one in (message("hello!", given), asks, result)]
    done = await runtime.work(held, messages=changes, ended=SUCCEEDED)
    first, second, third = await shown(runtime, name, done.receipt.cursor)
    assert (first.message_id, first.parts[0].text, first.create_time) == (given, "hello!", pending.create_time)
    assert (second.message_id, second.model, second.parent_message_id) == ("a-1", "m-1", given)
    assert [call.args_json for call in second.tool_calls] == ['{"n":1}']
    assert (second.usage.total_tokens, second.run_id, second.task_id) == (7, held.run.run_id, held.task.task_id)
    assert (third.tool_call_id, third.name, third.position) == ("c-1", "count", 3)
    summary = await runtime.call(
        "SummaryService.GetSessionSummary", summary_service_pb2.GetSessionSummaryRequest(session_id=name)
    )
    assert (summary.session.message_count, summary.session.usage.total_tokens) == (3, 7)


@pytest.mark.rule("P2", "P3")
async def test_changes_are_followed_and_a_rebuild_is_equal(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    await runtime.commit(name, messages=append("a", "b", "c", "d"))
    await runtime.commit(name, messages=[replace("b", "B"), *remove("a", "c"), *append("e")])
    # A checkpoint of a session of facts is not looked into, and taking it away leaves the messages.
    done = await runtime.commit(name, checkpoint_ops=[op(put(1))])
    live = await shown(runtime, name, done.receipt.cursor)
    assert [(one.position, one.message_id, one.parts[0].text) for one in live] == [
        (1, "b", "B"),
        (2, "d", "d"),
        (3, "e", "e"),
    ]
    await runtime.call(
        "ProjectionAdminService.RebuildSession",
        admin_service_pb2.RebuildSessionRequest(request_id="rebuild", session_id=name),
    )
    assert await shown(runtime, name, done.receipt.cursor) == live
