"""Messages come from submissions and checkpoints, keep who introduced them, and can be paged (P2, X5)."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.examples.world import World
from tests.support.projection import Talk, all_messages, fresh
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import message_service_pb2 as pb
from threadkeep.runtime.v1 import checkpoint_pb2

pytestmark = pytest.mark.suite(services=SERVICES)


@pytest.mark.rule("P2", "P5")
async def test_an_input_is_shown_at_once_and_its_checkpoint_copy_keeps_its_time(talk: Talk) -> None:
    task = await talk.submit(("in", "Count the words."))
    (first,) = await talk.messages()
    assert (first.message_id, first.position, first.role) == ("in", 1, content_pb2.MESSAGE_ROLE_USER)
    assert [part.text for part in first.parts] == ["Count the words."]
    assert (first.task_id, first.run_id) == (task.task_id, task.run_id)
    assert not first.HasField("parent_message_id")

    await talk.work()
    await talk.step(SystemMessage("Be brief.", id="sys"), HumanMessage("Count the words.", id="in"))
    shown = {one.message_id: one for one in await talk.messages()}
    assert [one.position for one in shown.values()] == [1, 2]
    assert shown["in"].create_time == first.create_time
    assert shown["in"].position == 2
    assert shown["sys"].create_time.ToNanoseconds() > first.create_time.ToNanoseconds()


@pytest.mark.rule("P2")
@pytest.mark.case("B92")
async def test_a_conversation_that_a_checkpoint_shows_by_its_size_only_is_read_whole(talk: Talk) -> None:
    await talk.submit(("in", "Write at length."))
    await talk.work()
    pages = [AIMessage("word " * 100_000, id=f"page-{number}") for number in range(4)]
    await talk.step(HumanMessage("Write at length.", id="in"), *pages)
    shown = await talk.messages()
    assert [len(one.parts[0].text) for one in shown] == [16, *[500_000] * 4]


@pytest.mark.rule("P2")
@pytest.mark.case("B103")
async def test_a_tool_step_shows_calls_results_tokens_and_model(talk: Talk) -> None:
    task = await talk.submit(("in", "Count."))
    await talk.work()
    question = HumanMessage("Count.", id="in")
    call = AIMessage(
        [{"type": "text", "text": "I count."}, {"type": "reasoning", "reasoning": "..."}],
        id="call",
        tool_calls=[{"name": "count", "args": {"text": "a b"}, "id": "call_1"}],
        response_metadata={"model_name": "scripted-1"},
        usage_metadata={"input_tokens": 10, "output_tokens": 4, "total_tokens": 14},
    )
    await talk.step(question, call)
    result = ToolMessage("2", tool_call_id="call_1", name="count", id="result")
    await talk.step(question, call, result)

    _, called, answered = await talk.messages()
    assert called.role == content_pb2.MESSAGE_ROLE_ASSISTANT
    assert (called.parts[0].text, called.parts[1].block_json) == ("I count.", '{"reasoning":"...","type":"reasoning"}')
    assert (called.tool_calls[0].tool_call_id, called.tool_calls[0].name) == ("call_1", "count")
    assert called.tool_calls[0].args_json == '{"text":"a b"}'
    assert (called.model, called.usage.total_tokens, called.parent_message_id) == ("scripted-1", 14, "in")
    assert (called.task_id, called.run_id) == (task.task_id, task.run_id)
    assert answered.role == content_pb2.MESSAGE_ROLE_TOOL
    assert (answered.tool_call_id, answered.name, answered.parent_message_id) == ("call_1", "count", "call")
    assert answered.create_time.ToNanoseconds() >= called.create_time.ToNanoseconds()


@pytest.mark.rule("P2")
async def test_the_channel_is_the_conversation_when_messages_are_removed_and_summarised(talk: Talk) -> None:
    await talk.put(HumanMessage("1", id="1"), AIMessage("2", id="2"), HumanMessage("3", id="3"))
    await talk.put(HumanMessage("1", id="1"), HumanMessage("3", id="3"))
    assert await talk.ids() == ["1", "3"]
    missing = pb.GetMessageRequest(session_id=talk.session_id, message_id="2")
    assert (await refused(talk.world.call("MessageService.GetMessage", missing))).reason == "MESSAGE_NOT_FOUND"
    await talk.put(SystemMessage("so far: 1 and 3", id="sum"), HumanMessage("3", id="3"))
    assert await talk.ids() == ["sum", "3"]
    await talk.put()
    assert await talk.ids() == []


@pytest.mark.case("B101")
async def test_tombstones_that_a_reducer_left_in_the_channel_take_effect(talk: Talk) -> None:
    await talk.put(
        HumanMessage("old", id="0"),
        RemoveMessage(REMOVE_ALL_MESSAGES),
        HumanMessage("first", id="1"),
        HumanMessage("last", id="1"),
        HumanMessage("gone", id="2"),
        RemoveMessage("2"),
    )
    (only,) = await talk.messages()
    assert (only.message_id, only.parts[0].text) == ("1", "last")


@pytest.mark.case("B100")
async def test_messages_without_ids_have_the_same_ids_in_every_checkpoint(talk: Talk) -> None:
    await talk.put(HumanMessage("a"), AIMessage("b"))
    first = await talk.messages()
    await talk.put(HumanMessage("a"), AIMessage("b"), HumanMessage("c"))
    second = await talk.messages()
    assert list(second[:2]) == list(first)
    assert len({one.message_id for one in second}) == 3


@pytest.mark.case("B72")
async def test_a_message_that_reads_like_an_interrupt_is_a_message(talk: Talk) -> None:
    await talk.submit(("in", "__interrupt__"))
    await talk.work()
    await talk.step(HumanMessage("__interrupt__", id="in"), AIMessage("__interrupt__", id="out"))
    await talk.finish()
    assert [one.parts[0].text for one in await talk.messages()] == ["__interrupt__", "__interrupt__"]
    assert (await talk.task()).ticket_count == 0


@pytest.mark.rule("P2")
@pytest.mark.parametrize(("type_tag", "value"), [("msgpack+aes", b"\x01" * 64), ("pickle", b"\x80"), ("json", b"{")])
async def test_a_checkpoint_that_must_not_be_decoded_changes_nothing_and_stops_nobody(
    talk: Talk, type_tag: str, value: bytes
) -> None:
    await talk.submit(("in", "secret"))
    await talk.work()
    await talk.step(value=checkpoint_pb2.ChannelValue(type=type_tag, data=value))
    assert await talk.ids() == ["in"]
    assert (await talk.run()).step_count == 1
    await talk.step(HumanMessage("secret", id="in"), AIMessage("plain", id="a"))
    assert await talk.ids() == ["in", "a"]


async def test_checkpoints_of_subgraphs_bring_no_messages(talk: Talk) -> None:
    await talk.submit(("in", "x"))
    await talk.work()
    await talk.step(AIMessage("inner", id="inner"), ns="agent:1")
    await talk.step(HumanMessage("x", id="in"))
    assert await talk.ids() == ["in"]
    assert (await talk.run()).step_count == 1


@pytest.mark.rule("P3")
async def test_after_delete_thread_the_inputs_of_open_tasks_are_left(talk: Talk) -> None:
    await talk.put(HumanMessage("1", id="1"), AIMessage("2", id="2"))
    await talk.submit(("in", "go on"))
    await talk.work()
    await talk.step(HumanMessage("1", id="1"), AIMessage("2", id="2"), HumanMessage("go on", id="in"))
    await talk.delete_checkpoints()
    assert await talk.ids() == ["in"]


@pytest.mark.rule("X5")
@pytest.mark.parametrize("newest_first", [False, True])
async def test_pages_hold_each_message_once_in_order(talk: Talk, newest_first: bool) -> None:
    await talk.put(*(HumanMessage(f"text {n}", id=f"m{n}") for n in range(7)))
    found = await talk.messages(page_size=3, newest_first=newest_first)
    expected = [f"m{n}" for n in range(7)]
    assert [one.message_id for one in found] == (expected[::-1] if newest_first else expected)


@pytest.mark.rule("X5")
@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_goes_on_though_the_message_that_it_stopped_at_is_gone(talk: Talk, newest_first: bool) -> None:
    everything = [HumanMessage(f"text {n}", id=f"m{n}") for n in range(9)]
    await talk.put(*everything)
    request = pb.ListMessagesRequest(
        session_id=talk.session_id, page_size=5, newest_first=newest_first, freshness=fresh(talk.receipt)
    )
    first = await talk.world.call("MessageService.ListMessages", request)
    await talk.put(*(one for one in everything if one.id not in ("m0", "m4")))
    request.page_token = first.next_page_token
    request.freshness.CopyFrom(fresh(talk.receipt))
    rest = await talk.world.call("MessageService.ListMessages", request)
    expected = ["m3", "m2", "m1"] if newest_first else ["m5", "m6", "m7", "m8"]
    assert [one.message_id for one in rest.messages] == expected


@pytest.mark.suite(services=SERVICES, topologies=["embedded"])
@pytest.mark.rule("X9", "X5")
async def test_a_page_is_bounded_by_its_bytes(talk: Talk) -> None:
    await talk.put(*(HumanMessage("x" * 1_500_000, id=f"m{n}") for n in range(5)))
    request = pb.ListMessagesRequest(session_id=talk.session_id, freshness=fresh(talk.receipt))
    page = await talk.world.call("MessageService.ListMessages", request)
    assert len(page.messages) == 2
    assert page.ByteSize() < 4 * 1024 * 1024
    assert len(await talk.messages()) == 5


@pytest.mark.rule("X2")
async def test_another_scope_sees_neither_session_nor_message(talk: Talk, world: World) -> None:
    await talk.put(HumanMessage("mine", id="m"))
    await talk.messages()
    stranger = World(world.suite)
    theirs = pb.ListMessagesRequest(session_id=talk.session_id)
    assert (await refused(stranger.call("MessageService.ListMessages", theirs))).reason == "SESSION_NOT_FOUND"
    one = pb.GetMessageRequest(session_id=talk.session_id, message_id="m")
    assert (await refused(stranger.call("MessageService.GetMessage", one))).reason == "MESSAGE_NOT_FOUND"


@pytest.mark.rule("X2")
async def test_two_scopes_may_use_one_session_id(talk: Talk, world: World) -> None:
    other = Talk(World(world.suite), talk.agent, None)
    other.session_id = talk.session_id
    await talk.put(HumanMessage("mine", id="m"))
    await other.put(HumanMessage("theirs", id="m"))
    assert [one.parts[0].text for one in await talk.messages()] == ["mine"]
    assert [one.parts[0].text for one in await other.messages()] == ["theirs"]


async def test_a_message_is_read_by_its_id(talk: Talk) -> None:
    await talk.put(HumanMessage("hello", id="m"))
    request = pb.GetMessageRequest(session_id=talk.session_id, message_id="m", freshness=fresh(talk.receipt))
    found = await talk.world.call("MessageService.GetMessage", request)
    assert found.message == (await all_messages(talk.world, talk.session_id))[0]


@pytest.mark.suite(services=SERVICES, backends=["sqlite"], topologies=["split"])
@pytest.mark.rule("P1", "X9")
async def test_large_checkpoints_are_applied_in_order_though_they_need_several_transactions(suite: Suite) -> None:
    world = World(suite)
    agent = await world.agent()
    talks = [Talk(world, agent) for _ in range(4)]
    text = "x" * 6_000_000
    for number in range(2):
        for talk in talks:
            await talk.put(HumanMessage(text, id="big"), HumanMessage("y", id=f"{number}"))
    for talk in talks:
        assert await talk.ids() == ["big", "1"]
