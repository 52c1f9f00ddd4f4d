"""Attempts of a task over the wire: retryable failures, backoff, one budget with crashes (R7)."""

from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.calls import refused
from tests.support.runtime import SUCCEEDED, Runtime, awaiting
from tests.support.suite import Suite
from threadkeep.runtime.v1 import commit_pb2, run_pb2, task_pb2, ticket_pb2

NOW = Duration()
AT_ONCE = task_pb2.RetryPolicy(max_attempts=3, initial_backoff=NOW)
FAILED = commit_pb2.RunEnded(
    cause=run_pb2.RUN_END_CAUSE_FAILED, failure=run_pb2.Failure(code="busy", message="later", retryable=True)
)


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


@pytest.mark.rule("R7")
async def test_a_retryable_failure_is_tried_again_from_the_last_checkpoint(runtime: Runtime) -> None:
    held = await runtime.lease(retry_policy=AT_ONCE)
    await runtime.work(held, awaiting=awaiting(ticket_pb2.TicketDraft(ticket_id="asked", interrupt_id="i")))
    await runtime.resolve("asked")
    held = await runtime.again(held)
    committed = await runtime.work(held, ended=FAILED)
    assert (committed.run.run_id, committed.run.state) == (held.run.run_id, run_pb2.RUN_STATE_ENDED)
    assert committed.run.failure.retryable
    following = await runtime.again(held)
    assert (following.run.attempt, following.run.parent_run_id) == (2, held.run.run_id)
    assert following.run.task_id == held.task.task_id
    assert (following.task.state, following.task.attempt) == (task_pb2.TASK_STATE_WORKING, 2)
    assert following.task.run_id == following.run.run_id
    assert [ticket.ticket_id for ticket in following.answered_tickets] == ["asked"]
    assert (await refused(runtime.work(held, ended=SUCCEEDED))).reason == "LEASE_LOST"
    await runtime.work(following, ended=SUCCEEDED)
    done = await runtime.wait(held.task.task_id)
    assert (done.state, done.HasField("failure")) == (task_pb2.TASK_STATE_COMPLETED, False)
    assert (await runtime.session(held.run.session_id)).run_count == 2


@pytest.mark.rule("R7")
@pytest.mark.case("B57")
async def test_a_spent_budget_fails_the_task_and_frees_the_session(runtime: Runtime) -> None:
    held = await runtime.lease(retry_policy=AT_ONCE)
    session_id, task_id = held.run.session_id, held.task.task_id
    await runtime.work(held, ended=FAILED)
    await runtime.work(await runtime.again(held), ended=FAILED)
    last = await runtime.again(held)
    assert last.run.attempt == 3
    await runtime.work(last, ended=FAILED)
    task = await runtime.wait(task_id)
    assert (task.state, task.failure.code, task.attempt) == (task_pb2.TASK_STATE_FAILED, "busy", 3)
    assert await runtime.acquire(held.run.queue, wait=0) is None
    await runtime.submit(session_id)


@pytest.mark.rule("R7", "R8")
async def test_no_worker_gets_an_attempt_before_it_is_due(runtime: Runtime) -> None:
    hour = Duration(seconds=3600)
    held = await runtime.lease(retry_policy=task_pb2.RetryPolicy(initial_backoff=hour))
    committed = await runtime.work(held, ended=FAILED)
    assert await runtime.acquire(held.run.queue, wait=0) is None
    assert await runtime.acquire(held.run.queue, "another", wait=0) is None
    task = await runtime.task(held.task.task_id)
    run = await runtime.run(task.run_id)
    wait = run.due_time.ToDatetime() - committed.receipt.commit_time.ToDatetime()
    assert timedelta(minutes=30) <= wait <= timedelta(hours=1)
    assert task.retry_policy.max_backoff == hour
    canceled = await runtime.cancel(task.task_id)
    assert canceled.state == task_pb2.TASK_STATE_CANCELED


@pytest.mark.rule("R7", "R8")
async def test_an_attempt_that_becomes_due_is_taken_without_anybodys_help(runtime: Runtime) -> None:
    short = Duration(nanos=300_000_000)
    held = await runtime.lease(retry_policy=task_pb2.RetryPolicy(initial_backoff=short))
    await runtime.work(held, ended=FAILED)
    assert (await runtime.again(held)).run.attempt == 2


@pytest.mark.rule("R7")
async def test_a_policy_comes_back_with_its_defaults(runtime: Runtime) -> None:
    policy = (await runtime.submit()).retry_policy
    assert (policy.max_attempts, policy.multiplier) == (3, 2.0)
    assert (policy.initial_backoff, policy.max_backoff) == (Duration(seconds=1), Duration(seconds=60))
    given = task_pb2.RetryPolicy(
        max_attempts=9,
        initial_backoff=Duration(nanos=250_000_000),
        max_backoff=Duration(seconds=3),
        multiplier=1.5,
        retryable_codes=["broken", "lost"],
    )
    task = await runtime.submit(retry_policy=given)
    assert task.retry_policy == given
    assert (await runtime.task(task.task_id)).retry_policy == given


@pytest.mark.rule("R7", "X6")
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("max_attempts", task_pb2.RetryPolicy(max_attempts=-1)),
        ("multiplier", task_pb2.RetryPolicy(multiplier=0.5)),
        ("multiplier", task_pb2.RetryPolicy(multiplier=float("nan"))),
        ("initial_backoff", task_pb2.RetryPolicy(initial_backoff=Duration(seconds=-1))),
        ("max_backoff", task_pb2.RetryPolicy(max_backoff=Duration(seconds=90_000))),
        ("max_backoff", task_pb2.RetryPolicy(initial_backoff=Duration(seconds=5), max_backoff=Duration(seconds=4))),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(
    runtime: Runtime, name: str, policy: task_pb2.RetryPolicy
) -> None:
    details = await refused(runtime.submit(retry_policy=policy))
    assert list(details.violations) == [f"retry_policy.{name}"]
