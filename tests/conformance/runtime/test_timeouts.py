"""Timeouts of tasks and attempts, causes of retries, and limits of queues, over the wire (R7, R24, X9)."""

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime, awaiting, together
from tests.support.suite import Suite
from tests.support.timed import Timed, timed
from threadkeep.runtime.v1 import run_pb2, task_pb2

__all__ = ["timed"]

Timeouts = task_pb2.TaskTimeouts
ENQUEUE = task_pb2.MULTITASK_STRATEGY_ENQUEUE


def seconds(number: float) -> Duration:
    duration = Duration()
    duration.FromMicroseconds(round(number * 1e6))
    return duration


async def ended(timed: Timed, task_id: str) -> tuple[str, str]:
    """How a task ended, and the code of its failure."""
    task = await timed.wait(task_id)
    return task_pb2.TaskState.Name(task.state).removeprefix("TASK_STATE_"), task.failure.code


@pytest.mark.rule("R24", "R3")
async def test_a_task_that_takes_too_long_fails_whoever_works_on_it(timed: Timed) -> None:
    held = await timed.lease(ttl=3600, timeouts=Timeouts(total=seconds(60)))
    task_id = held.task.task_id
    assert held.time_left == seconds(60)
    following = await timed.submit(held.run.session_id, queue=held.run.queue, multitask_strategy=ENQUEUE)
    timed.clock.advance(20)
    assert (await timed.heartbeat(held.lease)).time_left == seconds(40)
    timed.clock.advance(40)
    assert await ended(timed, task_id) == ("FAILED", "task_timeout")
    run = await timed.run(held.run.run_id)
    assert (run.cause, run.failure.code) == (run_pb2.RUN_END_CAUSE_TIMED_OUT, "task_timeout")
    assert (await refused(timed.heartbeat(held.lease))).reason == "LEASE_LOST"
    assert (await refused(timed.work(held, ended=SUCCEEDED))).reason == "LEASE_LOST"
    assert (await timed.types(held.run.session_id)).count("task.failed") == 1
    again = await timed.again(held)
    assert again.task.task_id == following.task_id
    assert not again.HasField("time_left")
    assert not (await timed.heartbeat(again.lease)).HasField("time_left")


@pytest.mark.rule("R24", "R7", "R8")
async def test_an_attempt_that_takes_too_long_is_taken_back_and_tried_again(timed: Timed) -> None:
    policy = task_pb2.RetryPolicy(max_attempts=2, initial_backoff=seconds(0))
    held = await timed.lease(ttl=3600, timeouts=Timeouts(attempt=seconds(30)), retry_policy=policy)
    timed.clock.advance(29)
    assert (await timed.heartbeat(held.lease)).time_left == seconds(1)
    timed.clock.advance(1)
    again = await timed.again(held, ttl=3600)
    assert (again.run.attempt, again.run.parent_run_id) == (2, held.run.run_id)
    assert again.time_left == seconds(30)
    assert (await timed.run(held.run.run_id)).cause == run_pb2.RUN_END_CAUSE_TIMED_OUT
    assert (await refused(timed.heartbeat(held.lease))).reason == "LEASE_LOST"
    await timed.work(again, awaiting=awaiting())
    timed.clock.advance(3600)
    (ticket_id,) = (await timed.task(held.task.task_id)).open_ticket_ids
    await timed.resolve(ticket_id)
    last = await timed.again(held, ttl=3600)
    timed.clock.advance(30)
    assert await ended(timed, last.task.task_id) == ("FAILED", "attempt_timeout")


@pytest.mark.rule("R24")
async def test_a_task_that_no_worker_takes_in_time_fails(timed: Timed) -> None:
    task = await timed.submit(timeouts=Timeouts(waiting=seconds(5), total=seconds(60)))
    queued = await timed.submit(task.session_id, timeouts=Timeouts(waiting=seconds(5)), multitask_strategy=ENQUEUE)
    taken = await timed.submit(timeouts=Timeouts(waiting=seconds(5)))
    assert await timed.acquire(taken.queue) is not None
    timed.clock.advance(5)
    assert await ended(timed, task.task_id) == ("FAILED", "waiting_timeout")
    assert await ended(timed, queued.task_id) == ("FAILED", "waiting_timeout")
    assert not (await timed.task(queued.task_id)).HasField("run_id") or (await timed.session(task.session_id)).run_count
    assert (await timed.task(taken.task_id)).state == task_pb2.TASK_STATE_WORKING
    assert await timed.acquire(task.queue, queued.queue, wait=0) is None


@pytest.mark.rule("R24", "X6")
@pytest.mark.suite(backends=["memory"], topologies=["embedded"])
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("timeouts.total", {"timeouts": Timeouts(total=seconds(0))}),
        ("timeouts.attempt", {"timeouts": Timeouts(attempt=seconds(-1))}),
        ("timeouts.waiting", {"timeouts": Timeouts(waiting=seconds(400_000_000))}),
        ("retry_policy.causes", {"retry_policy": task_pb2.RetryPolicy(causes=[task_pb2.RETRY_CAUSE_UNSPECIFIED])}),
        ("retry_policy.causes", {"retry_policy": task_pb2.RetryPolicy(causes=[77])}),
    ],
)
async def test_bounds_that_make_no_sense_are_refused(shared_suite: Suite, path: str, more: dict[str, object]) -> None:
    details = await refused(Runtime(shared_suite).submit(**more))
    assert list(details.violations) == [path]


@pytest.mark.rule("R24", "R7")
async def test_timeouts_and_causes_come_back_as_they_were_given(shared_suite: Suite) -> None:
    runtime = Runtime(shared_suite)
    bounds = Timeouts(total=seconds(0.5e6), attempt=seconds(2.25))
    policy = task_pb2.RetryPolicy(
        max_attempts=2,
        initial_backoff=seconds(1),
        max_backoff=seconds(2),
        multiplier=3,
        causes=[task_pb2.RETRY_CAUSE_CRASH, task_pb2.RETRY_CAUSE_TIMEOUT],
    )
    task = await runtime.submit(timeouts=bounds, retry_policy=policy)
    assert (task.timeouts, task.retry_policy) == (bounds, policy)
    assert task.deadline.ToNanoseconds() == task.create_time.ToNanoseconds() + 500_000 * 10**9
    assert await runtime.task(task.task_id) == task
    bare = await runtime.submit()
    assert not bare.HasField("timeouts")
    assert not bare.HasField("deadline")


LIMITED = {"runtime": {"limits": {"max_queued_tasks": 5}, "queue_limits": {"small": 2, "wide": 1000}}}


@pytest.mark.rule("X9", "R24")
@pytest.mark.suite(topologies=["embedded"], services=["config", "runtime"], settings=LIMITED)
async def test_a_queue_takes_no_more_tasks_than_its_limit(suite: Suite) -> None:
    runtime, other = Runtime(suite), Runtime(suite)
    await runtime.agent()
    answers = await together(*(runtime.submit(queue="q") for _ in range(12)))
    assert sum(isinstance(answer, task_pb2.Task) for answer in answers) == 5
    details = await refused(runtime.submit(queue="q"))
    assert (details.code, details.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert (details.metadata["limit"], details.metadata["maximum"]) == ("max_queued_tasks", "5")
    assert "CancelTasks" in details.metadata["advice"]
    await other.submit(queue="q")
    await runtime.submit(queue=fresh_id("queue"))
    for _ in range(2):
        await runtime.submit(queue="small")
    assert (await refused(runtime.submit(queue="small"))).metadata["maximum"] == "2"
    for _ in range(6):
        await runtime.submit(queue="wide")
    held = await runtime.acquire("small", metadata=runtime.metadata)
    assert held is not None

    async def there_is_a_place() -> bool:
        try:
            await runtime.submit(queue="small")
        except grpc.RpcError:
            return False
        return True

    from tests.support.waiting import eventually

    await eventually(there_is_a_place)
