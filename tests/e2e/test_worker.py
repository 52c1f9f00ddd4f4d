"""Workers in this process: supersteps as commits, questions as tickets, cancellation, failures, agents."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.waiting import eventually
from threadkeep import errors
from threadkeep.config.v1 import entity_pb2
from threadkeep.langgraph import ThreadkeepSaver
from threadkeep.runtime.v1 import event_pb2, run_pb2, task_pb2, ticket_pb2
from threadkeep.worker import ExecutionSettings

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["split"])


@pytest.mark.rule("R1", "R20")
async def test_a_run_ends_well_and_each_superstep_is_one_commit(site: Any) -> None:
    site.worker()
    task = await site.submit("steps", {"log": ["in"]})
    assert await site.completed(task) == {"log": ["in", "a", "b", "c", "d"]}
    events = [one async for one in site.client.events.list(session_id=task.session_id)]
    saved = [one for one in events if one.type == "threadkeep.checkpoint.saved"]
    # The input, what it maps to, and four nodes; the writes that led to each travel with it.
    assert len({one.commit_sequence for one in saved}) == len(saved) == 6
    ended = next(one for one in events if one.type == "threadkeep.run.ended")
    leased = next(one for one in events if one.type == "threadkeep.run.leased")
    assert ended.commit_sequence - leased.commit_sequence == 7
    run = await site.client.runs.get(task.run_id)
    assert (run.state, run.cause) == (run_pb2.RUN_STATE_ENDED, run_pb2.RUN_END_CAUSE_SUCCEEDED)


@pytest.mark.rule("R20")
@pytest.mark.parametrize(("durability", "commits"), [("async", range(2, 8)), ("exit", range(1, 2))])
async def test_durability_decides_how_often_a_run_commits(site: Any, durability: Any, commits: Any) -> None:
    site.worker(settings=ExecutionSettings(durability=durability, heartbeat_interval=0.05))
    task = await site.submit("steps", {"log": ["in"]})
    assert await site.completed(task) == {"log": ["in", "a", "b", "c", "d"]}
    events = [one async for one in site.client.events.list(session_id=task.session_id)]
    ended = next(one for one in events if one.type == "threadkeep.run.ended")
    leased = next(one for one in events if one.type == "threadkeep.run.leased")
    # The last checkpoints travel with what becomes of the run.
    assert ended.commit_sequence - leased.commit_sequence in commits
    head = (await site.client.checkpoints.get(task.session_id)).checkpoint
    assert json.loads(head.metadata_json)["run_id"] == task.run_id
    # A question is kept for its ticket all the same.
    (ticket,) = await site.asked(await site.submit("questions", session_id=task.session_id))
    assert json.loads(ticket.prompt.data) == {"question": 1}


@pytest.mark.rule("R20")
@pytest.mark.case("B98")
async def test_graphs_that_run_synchronously_inside_nodes_block_nothing_for_good(site: Any) -> None:
    # In a process of its own: this one's event loop serves the suite too.
    await site.worker_process()
    task = await site.submit("nested_sync")
    result = await site.completed(task)
    assert result["log"][-1] == "y"
    listed = [one async for one in site.client.checkpoints.list(session_id=task.session_id)]
    assert {one.checkpoint_ns for one in listed} == {"", "thread", "loop"}


@pytest.mark.rule("R7")
async def test_a_new_task_of_a_session_with_checkpoints_gets_its_input(site: Any) -> None:
    site.worker()
    first = await site.submit("steps", {"log": ["one"]})
    await site.completed(first)
    second = await site.submit("steps", {"log": ["two"]}, session_id=first.session_id)
    assert await site.completed(second) == {"log": ["one", *"abcd", "two", *"abcd"]}


@pytest.mark.rule("R10")
@pytest.mark.case("B71")
async def test_answers_reach_their_questions_null_too(site: Any) -> None:
    site.worker()
    task = await site.submit("questions")
    (first,) = await site.asked(task)
    assert json.loads(first.prompt.data) == {"question": 1}
    await site.client.tickets.resolve(first.ticket_id, None)
    (second,) = await site.asked(task)
    assert json.loads(second.prompt.data) == {"question": 2}
    assert second.interrupt_id != first.interrupt_id
    await site.client.tickets.resolve(second.ticket_id, {"id": None})
    assert await site.completed(task) == {"log": [None, {"id": None}]}
    types = await site.event_types(task)
    assert types.count("ticket.opened") == types.count("ticket.resolved") == 2


@pytest.mark.rule("R10", "R1")
async def test_a_question_and_its_ticket_are_one_commit(site: Any) -> None:
    site.worker()
    task = await site.submit("two_at_once")
    left, right = sorted(await site.asked(task), key=lambda ticket: ticket.prompt.data)
    assert (left.prompt.data, right.prompt.data) == (b'"left?"', b'"right?"')
    stored = (await site.client.checkpoints.get(task.session_id)).checkpoint
    asked = [one for one in stored.pending_writes if one.channel == "__interrupt__"]
    assert len(asked) == 2
    events = [one async for one in site.client.events.list(session_id=task.session_id)]
    opened = {one.commit_sequence for one in events if one.type == "threadkeep.ticket.opened"}
    assert len(opened) == 1
    await site.client.tickets.resolve(left.ticket_id, "L")
    await site.client.tickets.resolve(right.ticket_id, "R")
    result = await site.completed(task)
    assert sorted(map(str, result["log"])) == ["['left', 'L']", "['right', 'R']", "beside"]
    assert site.folder.effects() == ["beside"]


@pytest.mark.case("B72")
async def test_text_that_looks_like_an_interrupt_is_text(site: Any) -> None:
    site.worker()
    assert await site.completed(await site.submit("says_interrupt")) == {"log": ["__interrupt__"]}


@pytest.mark.rule("R9")
@pytest.mark.case("B62")
@pytest.mark.parametrize("agent", ["steps", "blocks"])
async def test_cancelling_ends_a_run_at_work(site: Any, agent: str) -> None:
    name = {"steps": "b", "blocks": "blocked"}[agent]
    site.folder.hold(name)
    site.worker()
    task = await site.submit(agent)
    await eventually(lambda: site.folder.has_entered(name))
    await site.client.tasks.cancel(task.task_id, reason="enough", grace_period=60)
    ended = await site.ended(task)
    assert ended.state == task_pb2.TASK_STATE_CANCELED
    assert (await site.client.runs.get(task.run_id)).cause == run_pb2.RUN_END_CAUSE_CANCELED
    site.folder.free(name)
    with pytest.raises(errors.TaskTerminal):
        await site.client.tasks.cancel(task.task_id)
    # The session takes the next task.
    site.folder.hold()
    again = await site.submit("says_interrupt", session_id=task.session_id)
    await site.completed(again)


@pytest.mark.rule("R24", "R3")
async def test_a_run_that_takes_too_long_is_stopped_and_commits_nothing_more(site: Any) -> None:
    site.folder.hold("b")
    site.worker()
    task = await site.submit("steps", attempt_timeout=2.0, max_attempts=1)
    ended = await site.ended(task)
    assert (ended.state, ended.failure.code) == (task_pb2.TASK_STATE_FAILED, "attempt_timeout")
    assert (await site.client.runs.get(task.run_id)).cause == run_pb2.RUN_END_CAUSE_TIMED_OUT
    site.folder.hold()
    again = await site.submit("says_interrupt", session_id=task.session_id)
    await site.completed(again)


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("agent", "code"),
    [("fails", "exception.ValueError"), ("forever", "max_steps_exceeded"), ("no_graph", "agent_build_failed")],
)
async def test_a_failure_ends_the_task_with_a_code(site: Any, agent: str, code: str) -> None:
    if agent == "no_graph":
        await site.agent(agent)
    if agent == "forever":
        await site.agent(agent, max_steps=5)
    site.worker()
    task = await site.submit(agent)
    ended = await site.ended(task)
    assert (ended.state, ended.failure.code) == (task_pb2.TASK_STATE_FAILED, code)
    assert (await site.client.runs.get(task.run_id)).failure.code == code


@pytest.mark.rule("X9")
async def test_a_write_that_the_server_refuses_fails_the_run_by_its_reason(site: Any) -> None:
    info = await site.client.info.get("runtime")
    largest = next(one.value for one in info.limits if one.name == "max_message_bytes")

    def grow(build: Any) -> Any:
        from langgraph.graph import START, StateGraph

        from tests.support.worker_graphs import Log

        big = lambda state: {"log": ["x" * (largest + 1)]}  # noqa: E731
        return StateGraph(Log).add_node("big", big).add_edge(START, "big")

    await site.agent("grow")
    site.worker(graphs={"grow": grow})
    failed = await site.ended(await site.submit("grow"))
    assert failed.state == task_pb2.TASK_STATE_FAILED
    assert "limit" in failed.failure.code or "resource" in failed.failure.code.lower(), failed.failure


@pytest.mark.rule("X9")
@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_result_above_the_limit_fails_the_run_by_name_and_its_state_is_kept(site: Any, durability: str) -> None:
    info = await site.client.info.get("runtime")
    largest = next(one.value for one in info.limits if one.name == "max_task_result_bytes")

    def grow(build: Any) -> Any:
        from langgraph.graph import START, StateGraph

        from tests.support.worker_graphs import Log

        big = lambda state: {"log": ["x" * largest]}  # noqa: E731
        return StateGraph(Log).add_node("big", big).add_edge(START, "big")

    await site.agent("grow")
    site.worker(graphs={"grow": grow}, settings=ExecutionSettings(durability=durability))
    task = await site.submit("grow")
    failed = await site.ended(task)
    assert (failed.state, failed.failure.code) == (task_pb2.TASK_STATE_FAILED, "threadkeep.limit_exceeded")
    for said in ("max_task_result_bytes", str(largest), "artifact"):
        assert said in failed.failure.message
    head = await ThreadkeepSaver(site.client).aget_tuple({"configurable": {"thread_id": task.session_id}})
    assert head is not None
    assert head.checkpoint["channel_values"]["log"] == ["x" * largest]


@pytest.mark.rule("R1", "R20")
@pytest.mark.case("B92")
async def test_a_state_larger_than_a_message_is_one_commit_all_the_same(site: Any) -> None:
    def grow(build: Any) -> Any:
        from langgraph.graph import START, StateGraph

        from tests.support.worker_graphs import Log

        # Bytes are no JSON: the result goes without them.
        big = lambda state: {"log": [bytes(18 * 1024 * 1024)]}  # noqa: E731
        after = lambda state: {"log": [len(state["log"][0])]}  # noqa: E731
        return StateGraph(Log).add_node("big", big).add_node("after", after).add_edge(START, "big").add_edge(
            "big", "after"
        )  # fmt: skip

    await site.agent("grow")
    site.worker(graphs={"grow": grow})
    task = await site.submit("grow")
    assert await site.completed(task) == {}
    saver = ThreadkeepSaver(site.client)
    head = await saver.aget_tuple({"configurable": {"thread_id": task.session_id}})
    assert head is not None
    assert head.checkpoint["channel_values"]["log"] == [bytes(18 * 1024 * 1024), 18 * 1024 * 1024]
    events = [one async for one in site.client.events.list(session_id=task.session_id)]
    saved = [one for one in events if one.type == "threadkeep.checkpoint.saved"]
    assert len({one.commit_sequence for one in saved}) == len(saved)


SCRIPT = [
    {"text": "I count.", "tool_calls": [{"name": "count", "args": {"text": "{{input}}"}}]},
    {"tool_calls": [{"name": "report", "args": {"title": "Words", "body": "{{tool.count.words}} words"}}]},
    {"text": "The report is {{tool.report}}."},
]


async def _writer(site: Any, **agent: Any) -> None:
    options = {"script": SCRIPT, "chunk_characters": 3}
    await site.client.config.put("script", entity_pb2.Provider(type="scripted", options_json=json.dumps(options)))
    for name, function, approved in (("count", "count_words", False), ("report", "write_report", True)):
        entry_point = entity_pb2.PythonEntryPoint(entry_point=f"tests.support.worker_graphs:{function}")
        await site.client.config.put(name, entity_pb2.Tool(python=entry_point, approval_required=approved))
    await site.agent("writer", system_prompt="Count.", provider="script", tools=["count", "report"], **agent)


@pytest.mark.rule("C9", "R10", "R15", "A5", "A6", "A8")
async def test_an_agent_from_its_manifest_uses_tools_and_asks_for_approval(site: Any) -> None:
    await _writer(site)
    site.worker()
    session_id = (await site.client.sessions.create()).session.session_id
    live: list[Any] = []
    watching = asyncio.create_task(_watch(site, session_id, live))
    await eventually(lambda: bool(live))
    task = await site.submit("writer", "one two three", session_id=session_id)
    (ticket,) = await site.asked(task)
    assert ticket.kind == ticket_pb2.TICKET_KIND_APPROVAL
    assert [*ticket.allowed_decisions] == ["approve", "edit", "reject"]
    request = json.loads(ticket.prompt.data)["action_requests"][0]
    assert (request["name"], request["args"]) == ("report", {"title": "Words", "body": "3 words"})
    await site.client.tickets.resolve(ticket.ticket_id, decision="approve")
    result = await site.completed(task)
    await asyncio.wait_for(watching, 60)
    # The report is private to the run, which has ended: operators see it.
    operator = site.client.with_scope(site.scope, "all")
    (note,) = [one async for one in site.client.artifacts.list(run_id=task.run_id)]
    made = {one.metadata.path: one async for one in operator.artifacts.list(run_id=task.run_id)}
    assert (set(made), made["/notes.md"]) == ({"/report.md", "/notes.md"}, note)
    artifact = made["/report.md"]
    assert result["text"] == f"The report is {artifact.artifact_id}."
    assert await operator.artifacts.read(artifact.artifact_id) == b"# Words\n\n3 words\n"
    for one in made.values():
        assert (one.metadata.session_id, one.metadata.task_id) == (task.session_id, task.task_id)
    # Each version is announced once, in the thread's log, and names the checkpoint that the tool worked on.
    events = [one for one in live if isinstance(one, event_pb2.Event)]
    announced = [json.loads(one.payload.data) for one in events if one.type == "artifact.saved"]
    assert [(one["artifact_id"], one["version"], one["path"]) for one in announced] == [
        (made[path].artifact_id, 1, path) for path in ("/report.md", "/notes.md")
    ]
    assert (announced[0]["sha256"], announced[0]["size"]) == (artifact.sha256, artifact.size)
    saved = [json.loads(one.payload.data) for one in events if one.type == "threadkeep.checkpoint.saved"]
    assert artifact.metadata.checkpoint_id in [one["checkpoint_id"] for one in saved]
    tokens = [json.loads(one.payload.data) for one in live if isinstance(one, event_pb2.LiveObservation)]
    said = "".join(one["content"] for one in tokens if isinstance(one["content"], str))
    assert "I count." in said
    assert len(tokens) > 5


async def _watch(site: Any, session_id: str, items: list[Any]) -> None:
    """Collects what a session shows, until its task is done."""
    async with site.client.events.subscribe(session_id=session_id, include_live=True) as feed:
        async for item in feed:
            items.append(item)
            if isinstance(item, event_pb2.Event) and item.type == "threadkeep.task.completed":
                return


@pytest.mark.rule("R10")
async def test_a_rejected_tool_call_has_no_effect(site: Any) -> None:
    await _writer(site)
    site.worker()
    task = await site.submit("writer", "one two three")
    (ticket,) = await site.asked(task)
    with pytest.raises(errors.TicketAnswerInvalid):
        await site.client.tickets.resolve(ticket.ticket_id, decision="ignore")
    await site.client.tickets.resolve(ticket.ticket_id, "not today", decision="reject")
    assert "not today" in (await site.completed(task))["text"]
    assert site.folder.effects() == []
    assert [one async for one in site.client.artifacts.list(run_id=task.run_id)] == []


@pytest.mark.rule("R23")
async def test_a_sessions_settings_override_the_agents(site: Any) -> None:
    await _writer(site, max_steps=50)
    site.worker()
    draft = site.client.sessions.draft(settings={"max_steps": 1})
    ended = await site.ended(await site.submit("writer", "x", create_session=draft))
    assert (ended.state, ended.failure.code) == (task_pb2.TASK_STATE_FAILED, "max_steps_exceeded")


async def test_a_worker_works_on_several_runs_at_once_and_no_more(site: Any) -> None:
    site.folder.hold("a")
    site.worker(max_runs=2)
    tasks = [await site.submit("steps") for _ in range(3)]

    async def running() -> int:
        return len([one async for one in site.client.runs.list(states=[run_pb2.RUN_STATE_RUNNING])])

    await eventually(lambda: _is(running, 2))
    await asyncio.sleep(0)
    assert await running() == 2
    site.folder.free("a")
    for task in tasks:
        await site.completed(task)


async def _is(count: Any, expected: int) -> bool:
    return await count() == expected


@pytest.mark.rule("R5")
@pytest.mark.case("B61")
async def test_an_enqueued_task_runs_when_the_one_before_is_done(site: Any) -> None:
    site.folder.hold("b")
    site.worker()
    first = await site.submit("steps", {"log": ["one"]})
    await eventually(lambda: site.folder.has_entered("b"))
    enqueue = task_pb2.MULTITASK_STRATEGY_ENQUEUE
    second = await site.submit("steps", {"log": ["two"]}, session_id=first.session_id, multitask_strategy=enqueue)
    assert not second.HasField("run_id")
    site.folder.free("b")
    assert await site.completed(second) == {"log": ["one", *"abcd", "two", *"abcd"]}
    assert await site.completed(first) == {"log": ["one", *"abcd"]}


@pytest.mark.rule("R5", "R3")
@pytest.mark.case("B61")
@pytest.mark.parametrize(("strategy", "left"), [("INTERRUPT", ["one", "a"]), ("ROLLBACK", [])])
async def test_a_task_that_breaks_in_goes_on_from_what_is_left(site: Any, strategy: str, left: list[str]) -> None:
    site.folder.hold("b")
    site.worker()
    first = await site.submit("steps", {"log": ["one"]})
    await eventually(lambda: site.folder.has_entered("b"))
    chosen = task_pb2.MultitaskStrategy.Value(f"MULTITASK_STRATEGY_{strategy}")
    second = await site.submit("steps", {"log": ["two"]}, session_id=first.session_id, multitask_strategy=chosen)
    assert (await site.ended(first)).state == task_pb2.TASK_STATE_CANCELED
    site.folder.free("b")
    assert await site.completed(second) == {"log": [*left, "two", *"abcd"]}
