"""One queued run that can't be read holds up no other (R8)."""

import asyncio

import pytest

from tests.store.runtime_pipeline.gate import connection
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import run_pb2, session_pb2

FEW = {"backends": ["sqlite", "postgres"], "services": ["config", "runtime"], "topologies": ["embedded"]}


@pytest.mark.rule("R8")
@pytest.mark.case("B65")
@pytest.mark.suite(**FEW)
@pytest.mark.parametrize("damaged", [("input", "x'ffff'"), ("retryable_codes", "'no list'")], ids=["input", "row"])
async def test_a_run_that_can_not_be_read_strands_none_of_its_batch(suite: Suite, damaged: tuple[str, str]) -> None:
    runtime = Runtime(suite)
    queue = fresh_id("queue")
    tasks = [await runtime.submit(queue=queue) for _ in range(5)]
    column, value = damaged
    if suite.backend == "postgres" and column == "input":
        value = "'\\xffff'::bytea"
    async with connection(suite) as owner:
        await owner.execute(f"UPDATE tasks SET {column} = {value} WHERE task_id = '{tasks[1].task_id}'")
    held = await asyncio.gather(*(runtime.acquire(queue, wait=5) for _ in range(5)))
    given = [one for one in held if one is not None]
    assert {one.task.task_id for one in given} == {task.task_id for task in (tasks[0], *tasks[2:])}
    for one in given:
        await runtime.work(one, ended=SUCCEEDED)
    if column != "input":
        return  # nothing can be decided about it; it stays where it is, passed by

    async def is_ended() -> bool:
        return (await runtime.run(tasks[1].run_id)).state == run_pb2.RUN_STATE_ENDED

    await eventually(is_ended)
    run = await runtime.run(tasks[1].run_id)
    assert (run.cause, run.failure.code) == (run_pb2.RUN_END_CAUSE_FAILED, "task_unreadable")
    assert (await runtime.session(tasks[1].session_id)).status == session_pb2.SESSION_STATUS_IDLE
