"""Tasks that are due later, sessions made on the way, many tasks canceled, tasks retried (R5, R6, R9, R24)."""

from datetime import timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import agent_definition, agent_key
from tests.support.runtime import SUCCEEDED, Runtime, failed, together
from tests.support.suite import Suite
from tests.support.timed import Timed, timed
from threadkeep.runtime.v1 import session_pb2, task_pb2, task_service_pb2

__all__ = ["timed"]

ENQUEUE = task_pb2.MULTITASK_STRATEGY_ENQUEUE
CREATE = task_pb2.IF_SESSION_MISSING_CREATE
FAR = Timestamp(seconds=4_000_000_000)


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def after(timed: Timed, seconds: float) -> Timestamp:
    moment = Timestamp()
    moment.FromDatetime(timed.clock.now() + timedelta(seconds=seconds))
    return moment


async def cancel_all(runtime: Runtime, **selection: object) -> task_service_pb2.CancelTasksResponse:
    request = task_service_pb2.CancelTasksRequest(request_id=fresh_id(), **selection)  # type: ignore[arg-type]
    return await runtime.call("TaskService.CancelTasks", request)


async def retry(runtime: Runtime, task_id: str, **more: object) -> task_pb2.Task:
    request = task_service_pb2.RetryTaskRequest(request_id=fresh_id(), task_id=task_id, **more)  # type: ignore[arg-type]
    return (await runtime.call("TaskService.RetryTask", request)).task


# Due later


@pytest.mark.rule("R7", "R24")
async def test_no_worker_gets_a_task_before_it_is_due_and_then_the_one_that_waits_does(timed: Timed) -> None:
    task = await timed.submit(not_before=after(timed, 60))
    assert (task.state, task.HasField("run_id")) == (task_pb2.TASK_STATE_SUBMITTED, False)
    assert task.not_before == after(timed, 60)
    assert (await timed.session(task.session_id)).status == session_pb2.SESSION_STATUS_IDLE
    timed.clock.advance(59)
    assert await timed.acquire(task.queue, wait=0.3) is None
    timed.clock.advance(1)
    held = await timed.acquire(task.queue)
    assert held is not None
    assert held.task.task_id == task.task_id
    assert (await timed.types(task.session_id)).count("run.queued") == 1
    await timed.work(held, ended=SUCCEEDED)
    assert (await timed.wait(task.task_id)).state == task_pb2.TASK_STATE_COMPLETED


@pytest.mark.rule("R5", "R24")
async def test_a_session_with_a_task_for_later_is_not_busy(timed: Timed) -> None:
    session = await timed.create()
    queue = fresh_id("queue")
    for name in ("first", "second"):
        await timed.submit(session.session_id, task_id=name, queue=queue, not_before=after(timed, 60))
    now = await timed.submit(session.session_id, queue=queue)
    held = await timed.acquire(queue)
    assert held is not None
    assert held.task.task_id == now.task_id
    timed.clock.advance(61)
    assert await timed.acquire(queue, wait=0.2) is None, "they are due, and the session is busy"
    await timed.work(held, ended=SUCCEEDED)
    order = []
    for _ in range(2):
        held = await timed.acquire(queue)
        assert held is not None
        order.append(held.task.task_id)
        await timed.work(held, ended=SUCCEEDED)
    assert order == ["first", "second"]


@pytest.mark.rule("R24", "X6")
async def test_a_task_for_later_interrupts_nobody(runtime: Runtime) -> None:
    for strategy in (task_pb2.MULTITASK_STRATEGY_INTERRUPT, task_pb2.MULTITASK_STRATEGY_ROLLBACK):
        details = await refused(runtime.submit(not_before=FAR, multitask_strategy=strategy))
        assert list(details.violations) == ["multitask_strategy"]


# Sessions that are made on the way


@pytest.mark.rule("R5", "R2")
@pytest.mark.case("B63")
async def test_many_tasks_at_once_make_the_missing_session_once(runtime: Runtime) -> None:
    name, same = fresh_id("session"), fresh_id("task")
    requests = [
        await runtime.submission(name, if_session_missing=CREATE, multitask_strategy=ENQUEUE) for _ in range(20)
    ]
    answers = await together(*(runtime.call("TaskService.SubmitTask", request) for request in requests))
    assert len({answer.task.task_id for answer in answers}) == 20
    session = await runtime.session(name)
    assert (session.task_count, session.run_count, session.agent_name) == (20, 1, await runtime.agent())
    assert (await runtime.types(name)).count("session.created") == 1
    one = await runtime.submission(fresh_id("session"), task_id=same, if_session_missing=CREATE)
    answers = await together(*(runtime.call("TaskService.SubmitTask", one) for _ in range(20)))
    assert {answer.task.SerializeToString() for answer in answers} == {answers[0].task.SerializeToString()}
    assert sorted(answer.receipt.replay for answer in answers) == [False] + 19 * [True]


@pytest.mark.rule("R5", "X6")
async def test_a_session_is_made_only_where_one_is_named(runtime: Runtime) -> None:
    details = await refused(runtime.submit(if_session_missing=CREATE))
    assert list(details.violations) == ["if_session_missing"]
    missing = await runtime.submission(fresh_id("session"), if_session_missing=task_pb2.IF_SESSION_MISSING_REFUSE)
    assert (await refused(runtime.call("TaskService.SubmitTask", missing))).reason == "SESSION_NOT_FOUND"
    missing.ClearField("agent_name")
    missing.if_session_missing = CREATE
    details = await refused(runtime.call("TaskService.SubmitTask", missing))
    assert list(details.violations) == ["agent_name"]


# Many at once


@pytest.mark.rule("R9", "X3")
async def test_a_filter_cancels_all_that_it_selects_and_nothing_else(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    held = await runtime.lease()
    for _ in range(3):
        await runtime.submit(queue=queue)
    await runtime.submit(held.run.session_id, queue=queue, multitask_strategy=ENQUEUE)
    await runtime.submit(held.run.session_id, queue=queue, not_before=FAR)
    other = await runtime.submit()
    request = task_service_pb2.CancelTasksRequest(request_id=fresh_id(), queue=queue, reason="no more")
    answer = await runtime.call("TaskService.CancelTasks", request)
    assert answer.task_count == 5
    assert await runtime.call("TaskService.CancelTasks", request) == answer
    listed = await runtime.call("TaskService.ListTasks", task_service_pb2.ListTasksRequest())
    ended = [task for task in listed.tasks if task.state == task_pb2.TASK_STATE_CANCELED]
    assert {task.queue for task in ended} == {queue}
    assert {task.cancel_reason for task in ended} == {"no more"}
    assert (await runtime.task(other.task_id)).state == task_pb2.TASK_STATE_SUBMITTED
    assert await runtime.acquire(queue, wait=0) is None
    answer = await cancel_all(runtime, session_id=held.run.session_id, grace_period=Duration(seconds=60))
    assert answer.task_count == 1
    assert (await runtime.heartbeat(held.lease)).cancel_requested
    assert (await cancel_all(runtime, session_id=held.run.session_id)).task_count == 0


@pytest.mark.rule("R9", "X2")
async def test_another_scopes_tasks_are_not_canceled(runtime: Runtime, shared_suite: Suite) -> None:
    task = await runtime.submit()
    other = Runtime(shared_suite)
    assert (await cancel_all(other, session_id=task.session_id)).task_count == 0
    assert (await cancel_all(other, queue=task.queue)).task_count == 0
    assert (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_SUBMITTED
    request = task_service_pb2.RetryTaskRequest(request_id=fresh_id(), task_id=task.task_id)
    assert (await refused(other.call("TaskService.RetryTask", request))).reason == "TASK_NOT_FOUND"


@pytest.mark.rule("R9", "X9")
@pytest.mark.suite(backends=["sqlite"], topologies=["embedded"])
async def test_more_sessions_than_one_page_are_canceled(runtime: Runtime) -> None:
    queue, agent = fresh_id("queue"), await runtime.agent()
    await together(*(runtime.submit(queue=queue) for _ in range(140)))
    assert (await cancel_all(runtime, agent_name=agent)).task_count == 140
    assert await runtime.acquire(queue, wait=0) is None


@pytest.mark.rule("R9", "X6")
async def test_a_filter_that_selects_nothing_in_particular_is_refused(runtime: Runtime) -> None:
    details = await refused(cancel_all(runtime))
    assert (details.code, list(details.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, ["session_id"])


# Once more


@pytest.mark.rule("R6")
async def test_a_retried_task_has_the_same_work_and_names_the_old_one(runtime: Runtime) -> None:
    held = await runtime.lease(priority=3, metadata={"k": "v"}, retry_policy=task_pb2.RetryPolicy(max_attempts=7))
    task_id = held.task.task_id
    details = await refused(retry(runtime, task_id))
    assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TASK_NOT_TERMINAL")
    await runtime.work(held, ended=failed())
    old = await runtime.task(task_id)
    task = await retry(runtime, task_id, new_task_id=fresh_id("task"))
    assert (task.retry_of, task.state) == (task_id, task_pb2.TASK_STATE_SUBMITTED)
    for name in ("session_id", "agent_name", "input", "queue", "priority", "metadata", "retry_policy"):
        assert getattr(task, name) == getattr(old, name)
    assert (task.manifest_digest, task.crash_count, task.attempt) == (old.manifest_digest, 0, 1)
    assert await runtime.task(task_id) == old, "what has ended never changes"
    again = await runtime.again(held)
    assert (again.task.task_id, again.task.retry_of) == (task.task_id, task_id)
    assert again.task.input == held.task.input
    await runtime.work(again, ended=SUCCEEDED)
    assert (await retry(runtime, task.task_id)).retry_of == task.task_id


@pytest.mark.rule("R6")
async def test_a_retried_task_has_the_agent_of_today_unless_the_old_one_is_kept(runtime: Runtime) -> None:
    held = await runtime.lease()
    await runtime.work(held, ended=SUCCEEDED)
    await runtime.world.put_entity(agent_key(await runtime.agent()), agent_definition("changed"))
    old = await runtime.task(held.task.task_id)
    kept = await retry(runtime, old.task_id, keep_manifest=True)
    assert (kept.manifest_digest, kept.agent_revision) == (old.manifest_digest, old.agent_revision)
    again = await runtime.again(held)
    assert again.manifest_json == held.manifest_json
    await runtime.work(again, ended=SUCCEEDED)
    anew = await retry(runtime, old.task_id)
    assert anew.manifest_digest != old.manifest_digest
    assert anew.agent_revision > old.agent_revision


@pytest.mark.rule("R5", "R6")
async def test_a_retry_follows_the_rules_of_a_busy_session(runtime: Runtime) -> None:
    first = await runtime.submit()
    await runtime.cancel(first.task_id)
    await runtime.submit(first.session_id)
    assert (await refused(retry(runtime, first.task_id))).reason == "SESSION_BUSY"
    waiting = await retry(runtime, first.task_id, multitask_strategy=ENQUEUE)
    assert not waiting.HasField("run_id")
    later = await retry(runtime, first.task_id, not_before=FAR)
    assert later.not_before == FAR
