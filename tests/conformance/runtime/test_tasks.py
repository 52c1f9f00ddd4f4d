"""Tasks: submitted, read, listed, waited for, canceled (R5, R6, R9, R24, X3)."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.calls import REPLAY_KEY, refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import CALL_SECONDS, agent_definition, agent_key, text_input
from tests.support.runtime import CANCELED, RUNNING, SUCCEEDED, Runtime, awaiting, failed, text, together
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.runtime.v1 import commit_pb2, run_pb2, session_service_pb2, task_pb2, task_service_pb2, ticket_pb2

pb = task_service_pb2


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def listed(runtime: Runtime, **query: Any) -> list[str]:
    page = await runtime.call("TaskService.ListTasks", pb.ListTasksRequest(**query))
    return [task.task_id for task in page.tasks]


@pytest.mark.rule("R6")
async def test_a_task_comes_back_as_it_was_submitted(runtime: Runtime) -> None:
    given = task_pb2.TaskInput()
    given.messages.messages.add(parts=[content_pb2.ContentPart(text="a\nb ü")])
    given.messages.messages.add(message_id="m2", role=content_pb2.MESSAGE_ROLE_ASSISTANT, name="n").parts.add(
        block_json='{"type":"image"}'
    )
    task = await runtime.submit(
        input=given,
        priority=-5,
        queue="warteschlange-ü",
        metadata={"k": "v"},
        retry_policy=task_pb2.RetryPolicy(max_attempts=7),
    )
    assert task == await runtime.task(task.task_id)
    first, second = task.input.messages.messages
    assert first.message_id
    assert (first.role, first.parts[0].text) == (content_pb2.MESSAGE_ROLE_USER, "a\nb ü")
    assert second == given.messages.messages[1]
    assert (task.state, task.priority, task.queue) == (task_pb2.TASK_STATE_SUBMITTED, -5, "warteschlange-ü")
    assert (task.retry_policy.max_attempts, task.crash_count, task.revision) == (7, 0, 1)
    run = await runtime.run(task.run_id)
    assert (run.state, run.epoch, run.queue) == (run_pb2.RUN_STATE_QUEUED, 0, task.queue)


@pytest.mark.rule("R6", "X8")
async def test_a_payload_input_reaches_the_worker_byte_for_byte_and_no_event(runtime: Runtime) -> None:
    content = bytes(range(256)) * 4
    given = task_pb2.TaskInput(payload=text(content))
    held = await runtime.lease(input=given)
    assert held.task.input == given
    submitted = (await runtime.events(held.run.session_id))[1]
    assert submitted.type == "threadkeep.task.submitted"
    assert len(submitted.payload.data) < 1024


@pytest.mark.rule("R6", "C9")
async def test_a_task_pins_the_manifest_of_its_submission(runtime: Runtime) -> None:
    name = await runtime.agent()
    first = await runtime.submit(queue="pinned")
    await runtime.world.put_entity(agent_key(name), agent_definition("second"))
    second = await runtime.submit(queue="pinned")
    assert second.agent_revision > first.agent_revision
    assert second.manifest_digest != first.manifest_digest
    held = await runtime.acquire("pinned")
    assert held is not None
    assert (held.task.task_id, held.task.manifest_digest) == (first.task_id, first.manifest_digest)
    assert b'"first"' in held.manifest_json


@pytest.mark.rule("R6")
async def test_an_agent_that_nobody_defined_is_refused_and_nothing_is_submitted(runtime: Runtime) -> None:
    session = await runtime.create()
    details = await refused(runtime.submit(session.session_id, agent_name="nobody"))
    assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "AGENT_UNRESOLVED")
    assert (await runtime.session(session.session_id)).thread_version == 1


@pytest.mark.rule("R6")
async def test_a_task_without_an_agent_takes_its_sessions(runtime: Runtime) -> None:
    name = await runtime.agent()
    session = await runtime.create(agent_name=name)
    bare = await runtime.submission(session.session_id)
    bare.ClearField("agent_name")
    assert (await runtime.call("TaskService.SubmitTask", bare)).task.agent_name == name
    new = await runtime.submission(create_session=session_service_pb2.SessionDraft(agent_name=name))
    new.ClearField("agent_name")
    assert (await runtime.call("TaskService.SubmitTask", new)).task.agent_name == name
    none = await runtime.submission((await runtime.create()).session_id)
    none.ClearField("agent_name")
    assert list((await refused(runtime.call("TaskService.SubmitTask", none))).violations) == ["agent_name"]
    none.session_id = "never-used"
    assert (await refused(runtime.call("TaskService.SubmitTask", none))).reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("R5")
@pytest.mark.case("B61")
async def test_a_busy_session_refuses_a_second_task(runtime: Runtime) -> None:
    task = await runtime.submit()
    details = await refused(runtime.submit(task.session_id))
    assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_BUSY")
    assert details.metadata["active_run_id"] == task.run_id
    assert await listed(runtime, session_id=task.session_id) == [task.task_id]


@pytest.mark.rule("R5")
async def test_of_many_tasks_for_one_idle_session_one_is_accepted(runtime: Runtime) -> None:
    session = await runtime.create()
    requests = [await runtime.submission(session.session_id) for _ in range(12)]
    outcomes = await together(*(runtime.call("TaskService.SubmitTask", one) for one in requests))
    assert sum(isinstance(outcome, pb.SubmitTaskResponse) for outcome in outcomes) == 1
    assert (await runtime.session(session.session_id)).run_count == 1


@pytest.mark.rule("X3")
@pytest.mark.case("B63")
async def test_one_request_sent_twenty_times_at_once_has_one_effect(runtime: Runtime) -> None:
    request = await runtime.submission()
    answers = await asyncio.gather(*(runtime.call("TaskService.SubmitTask", request) for _ in range(20)))
    assert len({answer.task.task_id for answer in answers}) == 1
    assert sum(not answer.receipt.replay for answer in answers) == 1
    for answer in answers:
        answer.receipt.replay = False
    assert all(answer == answers[0] for answer in answers)
    assert len(await listed(runtime)) == 1


@pytest.mark.rule("X3")
async def test_a_replay_gives_the_first_response_marked_and_whatever_has_happened_since(runtime: Runtime) -> None:
    request = await runtime.submission()
    first = await runtime.call("TaskService.SubmitTask", request)
    await runtime.cancel(first.task.task_id)
    call = runtime.world.bind("TaskService.SubmitTask")(request, metadata=runtime.metadata, timeout=CALL_SECONDS)
    again = await call
    trailing = dict(await call.trailing_metadata())
    assert trailing[REPLAY_KEY] == "1"
    assert again.receipt.replay
    again.receipt.replay = False
    assert again == first


@pytest.mark.rule("X3")
async def test_a_request_id_means_one_request_for_good(runtime: Runtime, shared_suite: Suite) -> None:
    request = await runtime.submission()
    await runtime.call("TaskService.SubmitTask", request)
    other = task_service_pb2.SubmitTaskRequest()
    other.CopyFrom(request)
    other.priority = 1
    details = await refused(runtime.call("TaskService.SubmitTask", other))
    assert (details.code, details.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    cancel = pb.CancelTaskRequest(request_id=request.request_id, task_id="never-used")
    assert (await refused(runtime.call("TaskService.CancelTask", cancel))).reason == "REQUEST_ID_REUSED"
    elsewhere = Runtime(shared_suite)
    request.agent_name = await elsewhere.agent()
    assert not (await elsewhere.call("TaskService.SubmitTask", request)).receipt.replay


@pytest.mark.rule("X3")
async def test_a_refused_request_may_be_tried_again(runtime: Runtime) -> None:
    task = await runtime.submit()
    request = await runtime.submission(task.session_id)
    assert (await refused(runtime.call("TaskService.SubmitTask", request))).reason == "SESSION_BUSY"
    await runtime.cancel(task.task_id)
    assert not (await runtime.call("TaskService.SubmitTask", request)).receipt.replay


@pytest.mark.rule("R6")
async def test_a_task_id_is_taken_once_in_its_scope(runtime: Runtime, shared_suite: Suite) -> None:
    await runtime.submit(task_id="mine")
    assert (await refused(runtime.submit(task_id="mine"))).reason == "ID_TAKEN"
    elsewhere = Runtime(shared_suite)
    assert (await elsewhere.submit(task_id="mine")).task_id == "mine"


@pytest.mark.rule("R6")
async def test_of_many_sessions_that_want_one_task_id_one_gets_it(runtime: Runtime) -> None:
    requests = [await runtime.submission(task_id="wanted") for _ in range(12)]
    outcomes = await together(*(runtime.call("TaskService.SubmitTask", one) for one in requests))
    won = [outcome for outcome in outcomes if isinstance(outcome, pb.SubmitTaskResponse)]
    assert len(won) == 1
    assert (await runtime.task("wanted")).session_id == won[0].task.session_id


@pytest.mark.rule("X5")
async def test_lists_filter_and_page_newest_first(runtime: Runtime) -> None:
    tasks = [await runtime.submit() for _ in range(5)]
    await runtime.cancel(tasks[1].task_id)
    names = [task.task_id for task in tasks]
    assert await listed(runtime) == names[::-1]
    assert await listed(runtime, states=[task_pb2.TASK_STATE_CANCELED]) == [names[1]]
    assert await listed(runtime, session_id=tasks[2].session_id) == [names[2]]
    assert await listed(runtime, session_id="never-used") == []
    assert await listed(runtime, agent_name="nobody") == []
    page = await runtime.call("TaskService.ListTasks", pb.ListTasksRequest(page_size=2))
    rest = pb.ListTasksRequest(page_size=2, page_token=page.next_page_token)
    following = await runtime.call("TaskService.ListTasks", rest)
    assert [task.task_id for task in (*page.tasks, *following.tasks)] == names[:0:-1]


@pytest.mark.rule("X5")
@pytest.mark.case("B92")
async def test_pages_are_bounded_by_bytes(runtime: Runtime) -> None:
    big = task_pb2.TaskInput(payload=text(b"x" * 1_200_000))
    tasks = [await runtime.submit(input=big) for _ in range(4)]
    found: list[str] = []
    request = pb.ListTasksRequest()
    pages = 0
    while True:
        page = await runtime.call("TaskService.ListTasks", request)
        assert page.ByteSize() < 4 * 1024 * 1024
        pages += 1
        found += [task.task_id for task in page.tasks]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert (found, pages) == ([task.task_id for task in reversed(tasks)], 2)


@pytest.mark.rule("R24")
@pytest.mark.parametrize("ending", ["completed", "failed", "canceled", "input", "login"])
async def test_waiting_ends_with_what_was_waited_for(runtime: Runtime, ending: str) -> None:
    held = await runtime.lease()
    waiting = asyncio.create_task(runtime.wait(held.task.task_id))
    await runtime.work(held, running=RUNNING)
    assert not waiting.done()
    if ending == "completed":
        await runtime.work(held, ended=commit_pb2.RunEnded(cause=SUCCEEDED.cause, result=text()))
    elif ending == "failed":
        await runtime.work(held, ended=failed())
    elif ending == "canceled":
        await runtime.cancel(held.task.task_id)
        await runtime.work(held, ended=CANCELED)
    else:
        kind = ticket_pb2.TICKET_KIND_AUTH if ending == "login" else ticket_pb2.TICKET_KIND_INPUT
        await runtime.work(held, awaiting=awaiting(ticket_pb2.TicketDraft(kind=kind)))
    task = await waiting
    assert task == await runtime.task(held.task.task_id)
    expected = {
        "completed": task_pb2.TASK_STATE_COMPLETED,
        "failed": task_pb2.TASK_STATE_FAILED,
        "canceled": task_pb2.TASK_STATE_CANCELED,
        "input": task_pb2.TASK_STATE_INPUT_REQUIRED,
        "login": task_pb2.TASK_STATE_AUTH_REQUIRED,
    }
    assert task.state == expected[ending]
    if ending == "completed":
        assert task.result == text()
    if ending == "failed":
        assert (task.failure.code, task.failure.message) == ("boom", "it broke")


@pytest.mark.rule("R24")
async def test_waiting_for_a_task_that_goes_on_ends_with_a_timeout_never_with_ok(runtime: Runtime) -> None:
    task = await runtime.submit()
    details = await refused(runtime.wait(task.task_id, 0.1))
    assert (details.code, details.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "WAIT_TIMEOUT")
    assert (await refused(runtime.wait("never-used", 0.1))).reason == "TASK_NOT_FOUND"


@pytest.mark.rule("R9")
async def test_canceling_is_a_fact_before_it_is_done(runtime: Runtime) -> None:
    held = await runtime.lease()
    task = await runtime.cancel(held.task.task_id, reason="changed my mind\n")
    assert task.HasField("cancel_request_time")
    assert (task.state, task.cancel_reason) == (task_pb2.TASK_STATE_WORKING, "changed my mind\n")
    told = await runtime.heartbeat(held.lease)
    assert (told.cancel_requested, told.cancel_reason) == (True, "changed my mind\n")
    await runtime.work(held, ended=CANCELED)
    assert (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_CANCELED
    assert (await runtime.types(task.session_id))[-3:] == ["task.cancel_requested", "run.ended", "task.canceled"]


@pytest.mark.rule("R9", "R4")
async def test_a_finished_task_stays_as_it_ended(runtime: Runtime) -> None:
    held = await runtime.lease()
    await runtime.work(held, ended=SUCCEEDED)
    before = await runtime.task(held.task.task_id)
    details = await refused(runtime.cancel(held.task.task_id))
    assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TASK_TERMINAL")
    assert await runtime.task(held.task.task_id) == before


@pytest.mark.rule("R9")
async def test_a_queued_task_is_canceled_at_once_and_never_leased(runtime: Runtime) -> None:
    task = await runtime.submit()
    assert (await runtime.cancel(task.task_id)).state == task_pb2.TASK_STATE_CANCELED
    assert await runtime.acquire(task.queue, wait=0) is None


@pytest.mark.rule("X8", "X9")
async def test_a_task_needs_a_session_an_input_and_sane_numbers(runtime: Runtime) -> None:
    complete = await runtime.submission()

    def without(name: str) -> pb.SubmitTaskRequest:
        request = pb.SubmitTaskRequest()
        request.CopyFrom(complete)
        request.ClearField(name)  # type: ignore[arg-type]
        return request

    bad_retry, bad_part, bad_ids = without("actor"), without("actor"), without("actor")
    bad_retry.retry_policy.max_attempts = -1
    bad_part.input.messages.messages[0].parts.add()
    bad_block = without("actor")
    bad_block.input.messages.messages[0].parts.add(block_json=" [1]")
    bad_ids.input.messages.messages.append(bad_ids.input.messages.messages[0])
    bad_actor = without("actor")
    bad_actor.actor.kind = 99  # type: ignore[assignment]
    for request, field in (
        (without("create_session"), "session"),
        (without("input"), "input"),
        (bad_retry, "retry_policy.max_attempts"),
        (bad_part, "input.messages.messages[0].parts[1]"),
        (bad_block, "input.messages.messages[0].parts[1].block_json"),
        (bad_ids, "input.messages.messages[1].message_id"),
        (bad_actor, "actor.kind"),
    ):
        assert list((await refused(runtime.call("TaskService.SubmitTask", request))).violations) == [field]
    grace = Duration(seconds=-1)
    task = await runtime.submit()
    assert list((await refused(runtime.cancel(task.task_id, grace_period=grace))).violations) == ["grace_period"]


@pytest.mark.rule("X9")
async def test_an_input_beyond_the_limit_names_the_limit(runtime: Runtime) -> None:
    big = task_pb2.TaskInput(payload=text(b"x" * (4 * 1024 * 1024 + 1)))
    details = await refused(runtime.submit(input=big))
    assert (details.code, details.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert (details.metadata["limit"], details.metadata["maximum"]) == ("max_task_input_bytes", str(4 * 1024 * 1024))
    assert "artifact" in details.metadata["advice"]


@pytest.mark.rule("X2")
async def test_another_scopes_task_does_not_exist(runtime: Runtime, shared_suite: Suite) -> None:
    task = await runtime.submit()
    elsewhere = Runtime(shared_suite)
    for act in (elsewhere.task, elsewhere.wait, elsewhere.cancel):
        foreign, unused = await refused(act(task.task_id)), await refused(act(fresh_id()))
        assert foreign.reason == "TASK_NOT_FOUND"
        assert foreign.raw == unused.raw
    assert await listed(elsewhere) == []
    await refused(elsewhere.submit(task.session_id, input=text_input("x")))
    assert (await runtime.task(task.task_id)) == task
