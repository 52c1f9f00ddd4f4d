"""What time brings happens once: with two servers in processes of their own, and when one dies in the middle (R24)."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiosqlite
import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.examples.schedules import words
from tests.support.mortal import MortalSuite
from tests.support.processes import Processes
from tests.support.runtime import Runtime
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import schedule_pb2, schedule_service_pb2, task_pb2, task_service_pb2

HOURLY = "0 * * * *"


async def schedule(runtime: Runtime, policy: int) -> str:
    """A new schedule's id; each of its fires makes a session."""
    task = schedule_pb2.ScheduledTask(agent_name=await runtime.agent(), input=words("hello"), queue="nobody's")
    draft = schedule_service_pb2.ScheduleDraft(cron=HOURLY, task=task, missed_fire_policy=policy)  # type: ignore[arg-type]
    request = schedule_service_pb2.CreateScheduleRequest(request_id=fresh_id(), schedule=draft)
    made = await runtime.call("ScheduleService.CreateSchedule", request)
    return str(made.schedule.schedule_id)


async def seen(runtime: Runtime, schedule_id: str) -> schedule_pb2.Schedule:
    request = schedule_service_pb2.GetScheduleRequest(schedule_id=schedule_id)
    return (await runtime.call("ScheduleService.GetSchedule", request)).schedule


async def tasks_of(runtime: Runtime, schedule_id: str) -> list[task_pb2.Task]:
    request = task_service_pb2.ListTasksRequest(schedule_id=schedule_id)
    return list((await runtime.call("TaskService.ListTasks", request)).tasks)


@contextlib.asynccontextmanager
async def closing(suite: MortalSuite) -> AsyncIterator[MortalSuite]:
    try:
        yield suite
    finally:
        await suite.close()


@pytest.mark.rule("R24", "X3")
@pytest.mark.parametrize("failpoint", ["before_commit", "after_commit"])
async def test_a_fire_happens_once_though_its_server_dies(
    processes: Processes, databases: Databases, failpoint: str
) -> None:
    async with closing(MortalSuite(processes, databases, "sqlite", "embedded")) as suite:
        await suite.start()
        runtime = Runtime(suite)
        name = await schedule(runtime, schedule_pb2.MISSED_FIRE_POLICY_ONCE)
        suite.strike()
        await suite.died()
        folder = suite._where[1]
        async with aiosqlite.connect(f"{folder}/runtime.db", isolation_level=None) as file:
            # The fire before the next one is due, and nobody is there.
            await file.execute("UPDATE schedules SET next_fire_time = next_fire_time - 3600 * 1000000")
        # The first commit of this life is the fire's.
        try:
            await suite.resume(failpoint)
        except RuntimeError:
            pass  # it died before it said that it was up
        else:
            await suite.died()
        await suite.resume()

        async def is_noted() -> bool:
            return (await seen(runtime, name)).task_count == 1

        await eventually(is_noted)
        (task,) = await tasks_of(runtime, name)
        last = await seen(runtime, name)
        assert last.last_fire.task_id == task.task_id
        assert last.next_fire_time.ToDatetime(tzinfo=UTC) > datetime.now(UTC)
        assert (await runtime.session(task.session_id)).task_count == 1


@pytest.mark.rule("R24", "R8", "R22")
@pytest.mark.case("B66")
async def test_two_servers_do_once_what_time_brings(processes: Processes, databases: Databases) -> None:
    async with closing(MortalSuite(processes, databases, "postgres", "split")) as suite:
        await suite.start()
        await suite._daemon("serve", "runtime", *suite._peers("runtime"))
        runtime = Runtime(suite)
        fires = [await schedule(runtime, schedule_pb2.MISSED_FIRE_POLICY_ONCE) for _ in range(12)]
        soon = Timestamp()
        soon.FromDatetime(datetime.now(UTC) + timedelta(seconds=2))
        due = [await runtime.submit(not_before=soon) for _ in range(6)]
        short = task_pb2.TaskTimeouts(waiting=Duration(seconds=2))
        idle = [await runtime.submit(timeouts=short) for _ in range(6)]
        assert suite._url is not None
        probe = await asyncpg.connect(suite._url, server_settings={"search_path": "runtime"})
        await probe.execute("UPDATE schedules SET next_fire_time = next_fire_time - interval '1 hour'")
        await probe.close()

        async def all_done() -> bool:
            noted = [(await seen(runtime, name)).task_count == 1 for name in fires]
            opened = [(await runtime.task(task.task_id)).HasField("run_id") for task in due]
            ended = [(await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_FAILED for task in idle]
            return all((*noted, *opened, *ended))

        await eventually(all_done)
        for name in fires:
            assert len(await tasks_of(runtime, name)) == 1
        for task in due:
            assert (await runtime.types(task.session_id)).count("run.queued") == 1
        for task in idle:
            assert (await runtime.types(task.session_id)).count("task.failed") == 1
