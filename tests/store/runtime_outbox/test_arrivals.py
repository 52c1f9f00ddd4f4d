"""Tasks that messages open are held to the limits that all tasks are held to (R16, X9)."""

import pytest

from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.examples.world import text_input
from tests.support.outbox import DELIVERED, deliveries, inbox, settled, to_session
from tests.support.runtime import SUCCEEDED, Runtime
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import outbox_pb2, task_pb2


@pytest.mark.rule("R16", "X9", "R24")
@pytest.mark.suite(backends=["memory", "postgres"])
async def test_a_full_queue_keeps_a_message_waiting(databases: Databases, backend: str) -> None:
    settings = {"queue_limits": {"narrow": 1}, "outbox": {"first_pause_seconds": 0.05, "longest_pause_seconds": 0.1}}
    settings["outbox"]["max_attempts"] = 1000
    suite = await Suite.start(databases, backend, "embedded", {"runtime": settings}, ("config", "runtime"))
    runtime = Runtime(suite)
    agent = await runtime.agent()
    first = await runtime.submit(queue="narrow")
    source, target = (await runtime.create()).session_id, (await runtime.create()).session_id
    task = outbox_pb2.TaskOnArrival(
        task_id=fresh_id("task"), agent_name=agent, input=text_input("hello"), queue="narrow"
    )
    await runtime.commit(source, outbox=[to_session(target, 1, task=task)])

    async def was_refused() -> bool:
        return (await deliveries(runtime, source))[0].last_error == "LIMIT_EXCEEDED"

    await eventually(was_refused)
    assert await inbox(runtime, target) == []
    held = await runtime.acquire("narrow")
    assert held is not None
    assert held.task.task_id == first.task_id
    await runtime.work(held, ended=SUCCEEDED)
    assert (await settled(runtime, source))[0].state == DELIVERED
    assert (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_SUBMITTED
    assert len(await inbox(runtime, target)) == 1
    await suite.close()
