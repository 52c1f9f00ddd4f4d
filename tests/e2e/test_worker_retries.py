"""A worker's retries: which failures are tried again, and from where (R7)."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker import ExecutionSettings

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["split"])


@pytest.mark.rule("R7", "R10")
async def test_a_failed_connection_is_tried_again_from_the_last_checkpoint_with_the_answer(site: Any) -> None:
    site.worker()
    policy = task_pb2.RetryPolicy(max_attempts=3, initial_backoff=Duration(nanos=1_000_000))
    task = await site.submit("fails_twice", retry_policy=policy)
    (ticket,) = await site.asked(task)
    await site.client.tickets.resolve(ticket.ticket_id, "me")
    assert await site.completed(task) == {"log": ["a", "me"]}
    assert site.folder.effects() == ["a", "try", "try", "try"]
    runs = [run async for run in site.client.runs.list(task_id=task.task_id)]
    assert [run.attempt for run in runs] == [3, 2, 1]
    assert [run.failure.code for run in runs[1:]] == ["exception.ConnectionResetError"] * 2
    assert (await site.event_types(task)).count("ticket.opened") == 1


@pytest.mark.rule("R7")
async def test_what_may_be_tried_again_is_the_workers_to_say(site: Any) -> None:
    site.worker(settings=ExecutionSettings(heartbeat_interval=0.05, retryable=lambda error: "luck" in str(error)))
    policy = task_pb2.RetryPolicy(max_attempts=2, initial_backoff=Duration())
    task = await site.submit("fails", retry_policy=policy)
    ended = await site.ended(task)
    assert (ended.state, ended.attempt) == (task_pb2.TASK_STATE_FAILED, 2)
