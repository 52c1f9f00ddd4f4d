"""Schedules over the wire: owners' calls, fires, missed fires, what a fire may come to (R24)."""

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.schedules import words
from tests.support.examples.world import agent_definition, agent_key, text_input
from tests.support.runtime import SUCCEEDED, Runtime
from tests.support.suite import Suite
from tests.support.timed import Timed, timed
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import (
    schedule_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
)

__all__ = ["timed"]

pb = schedule_service_pb2
ONCE = schedule_pb2.MISSED_FIRE_POLICY_ONCE
ALL = schedule_pb2.MISSED_FIRE_POLICY_ALL
ENQUEUE = task_pb2.MULTITASK_STRATEGY_ENQUEUE
CREATE = task_pb2.IF_SESSION_MISSING_CREATE
HOURLY = "0 * * * *"


async def scheduled(runtime: Runtime, cron: str = HOURLY, **more: object) -> schedule_pb2.Schedule:
    """A new schedule; its tasks go into a session that is made when it is missing, one behind the other."""
    fields: dict[str, object] = {
        "session_id": fresh_id("session"),
        "if_session_missing": CREATE,
        "multitask_strategy": ENQUEUE,
        "agent_name": await runtime.agent(),
        "input": words("again"),
        "queue": fresh_id("queue"),
    }
    task = schedule_pb2.ScheduledTask(**{**fields, **more.pop("task", {})})  # type: ignore[arg-type, dict-item]
    if task.HasField("new_session"):
        task.if_session_missing = task_pb2.IF_SESSION_MISSING_UNSPECIFIED
    draft = pb.ScheduleDraft(cron=cron, task=task, **more)  # type: ignore[arg-type]
    request = pb.CreateScheduleRequest(request_id=fresh_id(), schedule=draft)
    return (await runtime.call("ScheduleService.CreateSchedule", request)).schedule


async def seen(runtime: Runtime, schedule: schedule_pb2.Schedule) -> schedule_pb2.Schedule:
    request = pb.GetScheduleRequest(schedule_id=schedule.schedule_id)
    return (await runtime.call("ScheduleService.GetSchedule", request)).schedule


async def changed(runtime: Runtime, schedule: schedule_pb2.Schedule, **values: object) -> schedule_pb2.Schedule:
    more = {"expected_revision": values.pop("expected_revision")} if "expected_revision" in values else {}
    request = pb.UpdateScheduleRequest(
        request_id=fresh_id(),
        schedule=pb.ScheduleDraft(schedule_id=schedule.schedule_id, **values),  # type: ignore[arg-type]
        update_mask=FieldMask(paths=list(values)),
        **more,  # type: ignore[arg-type]
    )
    return (await runtime.call("ScheduleService.UpdateSchedule", request)).schedule


async def fired(runtime: Runtime, schedule: schedule_pb2.Schedule, when: datetime) -> schedule_pb2.Schedule:
    """The schedule once the fire of that time was dealt with."""
    last = schedule

    async def is_done() -> bool:
        nonlocal last
        last = await seen(runtime, schedule)
        return last.last_fire.fire_time.ToDatetime(tzinfo=UTC) >= when

    await eventually(is_done)
    return last


async def tasks_of(runtime: Runtime, schedule: schedule_pb2.Schedule) -> list[task_pb2.Task]:
    request = task_service_pb2.ListTasksRequest(schedule_id=schedule.schedule_id)
    return list((await runtime.call("TaskService.ListTasks", request)).tasks)


def stamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


@pytest.mark.rule("R24", "R6")
async def test_a_schedule_submits_a_task_whenever_it_is_due(timed: Timed) -> None:
    start = timed.clock.now()
    schedule = await scheduled(timed, task={"metadata": {"k": "v"}, "priority": 3})
    first = start + timedelta(hours=1)
    assert schedule.next_fire_time == stamp(first)
    assert not schedule.HasField("last_fire")
    timed.clock.advance(3599)
    assert await timed.acquire(schedule.task.queue, wait=0.3) is None
    timed.clock.advance(1)
    held = await timed.acquire(schedule.task.queue)
    assert held is not None
    task = held.task
    assert (task.schedule_id, task.priority, dict(task.metadata)) == (schedule.schedule_id, 3, {"k": "v"})
    assert task.session_id == schedule.task.session_id
    after = await fired(timed, schedule, first)
    assert (after.last_fire.task_id, after.last_fire.fire_time) == (task.task_id, stamp(first))
    assert not after.last_fire.HasField("failure")
    assert (after.task_count, after.next_fire_time) == (1, stamp(first + timedelta(hours=1)))
    assert after.revision == schedule.revision, "fires are no changes of its owner's"
    await timed.work(held, ended=SUCCEEDED)
    # The agent is resolved at each fire.
    await timed.world.put_entity(agent_key(await timed.agent()), agent_definition("changed"))
    timed.clock.advance(3600)
    again = await timed.acquire(schedule.task.queue)
    assert again is not None
    assert again.task.agent_revision > task.agent_revision
    assert again.task.input.messages.messages[0].message_id != task.input.messages.messages[0].message_id
    assert len(await tasks_of(timed, schedule)) == 2


@pytest.mark.rule("R24")
async def test_each_fire_may_have_a_session_of_its_own(timed: Timed) -> None:
    draft = session_service_pb2.SessionDraft(title="Daily", metadata={"k": "v"})
    schedule = await scheduled(timed, task={"session_id": None, "new_session": draft})
    for number in (1, 2):
        timed.clock.advance(3600)
        await fired(timed, schedule, datetime(2026, 1, 1, number, tzinfo=UTC))
    tasks = await tasks_of(timed, schedule)
    assert len({task.session_id for task in tasks}) == 2
    session = await timed.session(tasks[0].session_id)
    assert (session.title, dict(session.metadata)) == ("Daily", {"k": "v"})


@pytest.mark.rule("R24")
@pytest.mark.parametrize(
    ("more", "hours"),
    [({}, []), ({"missed_fire_policy": ONCE}, [5]), ({"missed_fire_policy": ALL, "max_missed_fires": 3}, [3, 4, 5])],
    ids=["skip", "once", "all"],
)
async def test_missed_fires_follow_their_policy(timed: Timed, more: dict[str, object], hours: list[int]) -> None:
    schedule = await scheduled(timed, **more)
    # Nobody looked for five hours and a half.
    timed.clock.advance(5.5 * 3600)
    following = datetime(2026, 1, 1, 6, tzinfo=UTC)

    async def is_dealt_with() -> bool:
        return (await seen(timed, schedule)).next_fire_time == stamp(following)

    await eventually(is_dealt_with)
    names = sorted(task.task_id.rpartition("-")[2] for task in await tasks_of(timed, schedule))
    assert names == [f"20260101T{hour:02d}0000Z" for hour in hours]
    after = await seen(timed, schedule)
    assert after.task_count == len(hours)
    timed.clock.advance(0.5 * 3600 + 5)
    assert (await fired(timed, schedule, following)).task_count == len(hours) + 1


@pytest.mark.rule("R24")
async def test_a_fire_that_is_refused_says_why_and_the_next_one_comes(timed: Timed) -> None:
    session = await timed.create()
    missing = await scheduled(timed, task={"if_session_missing": 0})
    no_agent = await scheduled(timed, task={"agent_name": "nobody"})
    busy = await scheduled(timed, task={"session_id": session.session_id, "multitask_strategy": 0})
    await timed.submit(session.session_id)
    timed.clock.advance(3600)
    for schedule, reason in ((missing, "SESSION_NOT_FOUND"), (no_agent, "AGENT_UNRESOLVED"), (busy, "SESSION_BUSY")):
        after = await fired(timed, schedule, datetime(2026, 1, 1, 1, tzinfo=UTC))
        assert (after.last_fire.failure.code, after.last_fire.HasField("task_id")) == (reason, False)
        assert (after.task_count, after.next_fire_time.ToDatetime().hour) == (0, 2)


@pytest.mark.rule("R24")
async def test_a_pause_is_no_outage(timed: Timed) -> None:
    schedule = await scheduled(timed, missed_fire_policy=ALL)
    paused = await changed(timed, schedule, paused=True)
    assert (paused.paused, paused.HasField("next_fire_time"), paused.revision) == (True, False, 2)
    timed.clock.advance(5 * 3600 + 10)
    resumed = await changed(timed, schedule, paused=False)
    assert resumed.next_fire_time == stamp(datetime(2026, 1, 1, 6, tzinfo=UTC))
    faster = await changed(timed, schedule, cron="*/10  * * * *", title="faster")
    assert (faster.cron, faster.title) == ("*/10 * * * *", "faster")
    timed.clock.advance(600)
    assert (await fired(timed, schedule, datetime(2026, 1, 1, 5, 10, tzinfo=UTC))).task_count == 1
    moved = await changed(timed, schedule, cron="0 8 * * *", time_zone="Europe/Berlin")
    assert moved.next_fire_time == stamp(datetime(2026, 1, 1, 7, tzinfo=UTC))


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


@pytest.mark.rule("R24", "X2", "X4", "X5")
async def test_owners_change_list_and_delete_their_schedules(runtime: Runtime, shared_suite: Suite) -> None:
    made = [await scheduled(runtime, "0 0 1 1 *", paused=number == 2) for number in range(3)]
    listed = await runtime.call("ScheduleService.ListSchedules", pb.ListSchedulesRequest(page_size=2))
    assert [one.schedule_id for one in listed.schedules] == [made[2].schedule_id, made[1].schedule_id]
    more = pb.ListSchedulesRequest(page_size=2, page_token=listed.next_page_token)
    listed = await runtime.call("ScheduleService.ListSchedules", more)
    assert [*listed.schedules] == [made[0]]
    only = await runtime.call("ScheduleService.ListSchedules", pb.ListSchedulesRequest(paused=True))
    assert [*only.schedules] == [made[2]]
    stale = await refused(changed(runtime, made[0], title="x", expected_revision=7))
    assert (stale.reason, stale.metadata["current_revision"]) == ("REVISION_CONFLICT", "1")
    other = Runtime(shared_suite)
    assert (await refused(seen(other, made[0]))).reason == "SCHEDULE_NOT_FOUND"
    same = await scheduled(other, schedule_id=made[0].schedule_id)
    assert same.schedule_id == made[0].schedule_id
    assert (await refused(scheduled(runtime, schedule_id=made[0].schedule_id))).reason == "ID_TAKEN"
    request = pb.DeleteScheduleRequest(request_id=fresh_id(), schedule_id=made[0].schedule_id)
    await runtime.call("ScheduleService.DeleteSchedule", request)
    await runtime.call("ScheduleService.DeleteSchedule", request)
    assert (await refused(seen(runtime, made[0]))).reason == "SCHEDULE_NOT_FOUND"
    assert await seen(other, same) == same
    again = await scheduled(runtime, schedule_id=made[0].schedule_id)
    assert again.revision == 1


@pytest.mark.rule("R24", "X6")
@pytest.mark.suite(backends=["memory"], topologies=["embedded"])
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("schedule.cron", {"cron": "nonsense"}),
        ("schedule.cron", {"cron": "* * * * * *"}),
        ("schedule.cron", {"cron": "0 0 31 2 *"}),
        ("schedule.time_zone", {"time_zone": "Mars/Phobos"}),
        ("schedule.missed_fire_policy", {"missed_fire_policy": 9}),
        ("schedule.max_missed_fires", {"max_missed_fires": 1001}),
        ("schedule.task.retry_policy.max_attempts", {"task": {"retry_policy": task_pb2.RetryPolicy(max_attempts=-1)}}),
        ("schedule.task.input.messages.messages[0].message_id", {"task": {"input": text_input("named")}}),
        (
            "schedule.task.new_session.session_id",
            {"task": {"session_id": None, "new_session": session_service_pb2.SessionDraft(session_id="s")}},
        ),
    ],
)
async def test_what_could_never_fire_is_refused_at_once(runtime: Runtime, path: str, more: dict[str, object]) -> None:
    cron = str(more.pop("cron", HOURLY))
    details = await refused(scheduled(runtime, cron, **more))
    assert list(details.violations) == [path]


@pytest.mark.rule("X9")
@pytest.mark.suite(
    backends=["sqlite"],
    topologies=["embedded"],
    services=["config", "runtime"],
    settings={"runtime": {"limits": {"max_schedules": 2}}},
)
async def test_a_scope_has_a_bounded_number_of_schedules(suite: Suite) -> None:
    runtime = Runtime(suite)
    for _ in range(2):
        await scheduled(runtime)
    details = await refused(scheduled(runtime))
    assert (details.reason, details.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_schedules")
