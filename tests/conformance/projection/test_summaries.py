"""Summaries of sessions, tasks and runs follow what happens, and lists find them (P4)."""

from datetime import UTC, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, fresh
from tests.support.suite import Suite
from threadkeep.projection.v1 import summary_service_pb2 as pb
from threadkeep.runtime.v1 import run_pb2, session_pb2, session_service_pb2, task_pb2

pytestmark = pytest.mark.suite(services=SERVICES)


@pytest.mark.rule("P4")
async def test_a_task_is_summed_up_from_its_submission_to_its_end(talk: Talk) -> None:
    await talk.submit(("in", "Hello"), metadata={"order": "7"})
    session, task, run = await talk.session(), await talk.task(), await talk.run()
    assert (session.status, session.task_count, session.run_count) == (session_pb2.SESSION_STATUS_QUEUED, 1, 1)
    assert (task.state, task.agent_name, dict(task.metadata)) == (
        task_pb2.TASK_STATE_SUBMITTED,
        talk.agent,
        {"order": "7"},
    )
    assert (run.state, run.task_id, run.lease_count) == (run_pb2.RUN_STATE_QUEUED, task.task_id, 0)
    assert not run.HasField("start_time")

    await talk.work()
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    await talk.step(HumanMessage("Hello", id="in"), AIMessage("Hi there", id="a", usage_metadata=usage))
    session, task, run = await talk.session(), await talk.task(), await talk.run()
    assert (session.status, session.message_count) == (session_pb2.SESSION_STATUS_RUNNING, 2)
    assert session.last_message_text == "Hi there"
    assert task.state == task_pb2.TASK_STATE_WORKING
    assert (run.state, run.lease_count, run.step_count) == (run_pb2.RUN_STATE_RUNNING, 1, 1)
    assert run.HasField("start_time")

    ticket_id = await talk.ask()
    assert (await talk.session()).status == session_pb2.SESSION_STATUS_AWAITING
    task = await talk.task()
    assert (task.state, task.ticket_count) == (task_pb2.TASK_STATE_INPUT_REQUIRED, 1)
    assert (await talk.run()).state == run_pb2.RUN_STATE_AWAITING
    await talk.answer(ticket_id)
    await talk.work()
    await talk.finish()

    session, task, run = await talk.session(), await talk.task(), await talk.run()
    assert session.status == session_pb2.SESSION_STATUS_IDLE
    assert [one.usage.total_tokens for one in (session, task, run)] == [5, 5, 5]
    assert (task.state, task.HasField("failure")) == (task_pb2.TASK_STATE_COMPLETED, False)
    assert task.end_time == run.end_time
    assert (run.state, run.cause, run.lease_count) == (
        run_pb2.RUN_STATE_ENDED,
        run_pb2.RUN_END_CAUSE_SUCCEEDED,
        2,
    )


@pytest.mark.rule("P4")
async def test_a_failure_is_shown_with_its_task(talk: Talk) -> None:
    await talk.submit(("in", "x"))
    await talk.work()
    await talk.finish(failure='the "tool"\nbroke')
    task = await talk.task()
    assert (task.state, task.failure.code, task.failure.message) == (
        task_pb2.TASK_STATE_FAILED,
        "tool_error",
        'the "tool"\nbroke',
    )
    assert (await talk.run()).cause == run_pb2.RUN_END_CAUSE_FAILED


@pytest.mark.rule("P4")
async def test_a_session_shows_what_its_owner_says_of_it(world: World) -> None:
    draft = session_service_pb2.SessionDraft(title="Ships", metadata={"topic": "ships", "lang": "en"})
    made = await world.call(
        "SessionService.CreateSession", session_service_pb2.CreateSessionRequest(request_id=fresh_id(), session=draft)
    )
    session_id = made.session.session_id
    request = pb.GetSessionSummaryRequest(session_id=session_id, freshness=fresh(made.receipt))
    shown = (await world.call("SummaryService.GetSessionSummary", request)).session
    assert (shown.title, dict(shown.metadata)) == ("Ships", {"topic": "ships", "lang": "en"})
    assert shown.create_time == made.session.create_time

    change = session_service_pb2.UpdateSessionRequest(
        request_id=fresh_id(),
        session=session_service_pb2.SessionDraft(session_id=session_id, title="Boats", metadata={"topic": "boats"}),
    )
    change.update_mask.paths.extend(["title", "metadata"])
    updated = await world.call("SessionService.UpdateSession", change)
    request.freshness.CopyFrom(fresh(updated.receipt))
    shown = (await world.call("SummaryService.GetSessionSummary", request)).session
    assert (shown.title, dict(shown.metadata)) == ("Boats", {"topic": "boats"})
    for entry, expected in ((("topic", "boats"), [session_id]), (("topic", "ships"), []), (("lang", "en"), [])):
        listing = pb.ListSessionSummariesRequest(metadata=dict([entry]))
        found = await world.call("SummaryService.ListSessionSummaries", listing)
        assert [one.session_id for one in found.sessions] == expected


@pytest.mark.rule("P4")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [2, 1, 0]),
        ({"agent_name": 0}, [1, 0]),
        ({"agent_name": 2}, [2]),
        ({"states": ["COMPLETED", "FAILED"]}, [1, 0]),
        ({"states": ["WORKING"]}, []),
        ({"states": ["SUBMITTED"], "agent_name": 0}, []),
        ({"metadata": {"tier": "gold"}}, [1, 0]),
        ({"metadata": {"tier": "gold", "n": "5"}}, []),
        ({"session_id": 1}, [1]),
        ({"created_from": 1}, [2, 1]),
        ({"created_before": 1}, [0]),
        ({"created_from": 1, "created_before": 2}, [1]),
    ],
)
async def test_tasks_are_found_by_what_they_are(world: World, wanted: dict[str, Any], expected: list[int]) -> None:
    talks = []
    for index, tier in enumerate(("gold", "gold", "free")):
        talk = Talk(world, talks[0].agent) if index == 1 else await Talk.begin(world)
        await talk.submit(("in", "x"), metadata={"tier": tier, "n": "4"})
        talks.append(talk)
    for talk, failure in ((talks[0], None), (talks[1], "no")):
        await talk.work()
        await talk.finish(failure)
    tasks = [await talk.task() for talk in talks]
    request = pb.ListTaskSummariesRequest(freshness=fresh(talks[1].receipt))
    for name, value in wanted.items():
        if name == "states":
            request.states.extend(task_pb2.TaskState.Value(f"TASK_STATE_{state}") for state in value)
        elif name == "metadata":
            request.metadata.update(value)
        elif name in ("created_from", "created_before"):
            getattr(request, name).CopyFrom(tasks[value].create_time)
        else:
            setattr(request, name, getattr(tasks[value], name))
    found = await world.call("SummaryService.ListTaskSummaries", request)
    assert [one.task_id for one in found.tasks] == [tasks[index].task_id for index in expected]


@pytest.mark.rule("P4")
@pytest.mark.rule("X5")
async def test_runs_and_sessions_are_found_and_paged_the_newest_first(world: World) -> None:
    talk = await Talk.begin(world)
    for number in range(3):
        await talk.submit((f"in-{number}", "x"))
        await talk.work()
        await talk.finish(None if number else "no")
    others = [Talk(world, talk.agent) for _ in range(2)]
    for other in others:
        await other.submit(("in", "x"))
    receipt = others[-1].receipt

    request = pb.ListRunSummariesRequest(session_id=talk.session_id, page_size=2, freshness=fresh(receipt))
    first = await world.call("SummaryService.ListRunSummaries", request)
    request.page_token = first.next_page_token
    second = await world.call("SummaryService.ListRunSummaries", request)
    assert [one.run_id for one in (*first.runs, *second.runs)] == talk.run_ids[::-1]
    assert second.next_page_token == ""
    by_task = pb.ListRunSummariesRequest(task_id=talk.task_ids[1])
    assert [one.run_id for one in (await world.call("SummaryService.ListRunSummaries", by_task)).runs] == [
        talk.run_ids[1]
    ]
    queued = pb.ListRunSummariesRequest(states=[run_pb2.RUN_STATE_QUEUED], agent_name=talk.agent)
    assert len((await world.call("SummaryService.ListRunSummaries", queued)).runs) == 2

    busy = pb.ListSessionSummariesRequest(statuses=[session_pb2.SESSION_STATUS_QUEUED])
    found = (await world.call("SummaryService.ListSessionSummaries", busy)).sessions
    assert [one.session_id for one in found] == [other.session_id for other in others[::-1]]
    every = (await world.call("SummaryService.ListSessionSummaries", pb.ListSessionSummariesRequest())).sessions
    assert [one.session_id for one in every] == [*(other.session_id for other in others[::-1]), talk.session_id]


@pytest.mark.rule("X5")
async def test_a_page_token_of_another_query_is_refused(world: World) -> None:
    talks = [await Talk.begin(world) for _ in range(2)]
    for talk in talks:
        await talk.submit(("in", "x"))
    request = pb.ListTaskSummariesRequest(page_size=1, freshness=fresh(talks[-1].receipt))
    page = await world.call("SummaryService.ListTaskSummaries", request)
    request.page_token = page.next_page_token
    request.ClearField("freshness")
    assert len((await world.call("SummaryService.ListTaskSummaries", request)).tasks) == 1
    request.agent_name = talks[0].agent
    assert (await refused(world.call("SummaryService.ListTaskSummaries", request))).reason == "PAGE_TOKEN_INVALID"


@pytest.mark.rule("X8")
async def test_a_time_that_is_none_is_refused_with_its_field(world: World) -> None:
    request = pb.ListTaskSummariesRequest(created_from=Timestamp(seconds=1 << 60))
    details = await refused(world.call("SummaryService.ListTaskSummaries", request))
    assert details.reason == "FIELD_INVALID"
    assert "created_from" in details.violations
    ok = pb.ListTaskSummariesRequest()
    ok.created_from.FromDatetime(Timestamp().ToDatetime(tzinfo=UTC) + timedelta(days=1))
    assert len((await world.call("SummaryService.ListTaskSummaries", ok)).tasks) == 0


@pytest.mark.rule("P4", "P5", "X5", "X2")
async def test_counts_and_agents_say_what_there_is(shared_suite: Suite) -> None:
    world = World(shared_suite)
    first, second = await Talk.begin(world), await Talk.begin(world)
    await first.submit(("a", "one"))
    await first.work()
    await first.finish("broken")
    await first.submit(("b", "two"))
    await second.submit(("c", "three"))
    await second.work()
    usage = {"input_tokens": 4, "output_tokens": 1, "total_tokens": 5}
    await second.step(HumanMessage("three", id="c"), AIMessage("x", id="d", usage_metadata=usage))
    await first.messages()
    await second.messages()

    counts = await world.call("SummaryService.GetCounts", pb.GetCountsRequest())
    assert {one.status: one.count for one in counts.sessions} == {
        session_pb2.SESSION_STATUS_QUEUED: 1,
        session_pb2.SESSION_STATUS_RUNNING: 1,
    }
    assert {one.state: one.count for one in counts.tasks} == {
        task_pb2.TASK_STATE_FAILED: 1,
        task_pb2.TASK_STATE_SUBMITTED: 1,
        task_pb2.TASK_STATE_WORKING: 1,
    }
    assert sum(one.count for one in counts.runs) == 3
    mine = await world.call("SummaryService.GetCounts", pb.GetCountsRequest(agent_name=second.agent))
    assert [(one.state, one.count) for one in mine.runs] == [(run_pb2.RUN_STATE_RUNNING, 1)]
    assert await World(shared_suite).call("SummaryService.GetCounts", pb.GetCountsRequest()) == pb.GetCountsResponse()

    found: list[Any] = []
    request = pb.ListAgentSummariesRequest(page_size=1)
    while True:
        page = await world.call("SummaryService.ListAgentSummaries", request)
        found += page.agents
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert [one.agent_name for one in found] == sorted((first.agent, second.agent))
    by_name = {one.agent_name: one for one in found}
    one, other = by_name[first.agent], by_name[second.agent]
    assert (one.task_count, one.failed_task_count, one.open_task_count, one.run_count) == (2, 1, 1, 2)
    assert (other.task_count, other.open_task_count, other.usage.total_tokens) == (1, 1, 5)
    assert one.last_activity_time == (await first.task()).update_time
