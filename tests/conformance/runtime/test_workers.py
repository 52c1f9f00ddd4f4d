"""Workers: runs are leased in order, kept by heartbeats, given back, and taken from those who fall silent (R7, R8)."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.support.calls import error_details, grant, grant_all, refused
from tests.support.descriptors import fresh_id
from tests.support.runtime import CANCELED, RUNNING, SUCCEEDED, Runtime, acquisition, awaiting, event, together
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import commit_pb2, run_pb2, run_service_pb2, task_pb2, worker_service_pb2

SHORT = {"runtime": {"recovery_interval_seconds": 0.05}}
TTL = 1.0
"""The shortest lease there is, in seconds."""


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


@pytest.mark.rule("R8")
async def test_a_worker_gets_all_it_needs(runtime: Runtime) -> None:
    task = await runtime.submit(priority=3)
    held = await runtime.acquire(task.queue, ttl=77, worker_id="worker-ü")
    assert held is not None
    assert (held.lease.run_id, held.lease.epoch) == (task.run_id, 1)
    assert held.lease_ttl.ToTimedelta().total_seconds() == 77
    assert dict(held.scope.values) == runtime.world.values
    assert (held.run.state, held.run.worker_id, held.run.epoch) == (run_pb2.RUN_STATE_RUNNING, "worker-ü", 1)
    assert held.run.lease_expire_time == held.lease_expire_time
    assert held.run == await runtime.run(task.run_id)
    assert held.task == await runtime.task(task.task_id)
    assert held.task.state == task_pb2.TASK_STATE_WORKING
    assert held.session == await runtime.session(task.session_id)
    assert held.manifest_json.startswith(b"{")
    assert (held.checkpoint_id_floor, held.HasField("last_checkpoint_id")) == ("", False)


@pytest.mark.rule("R8")
async def test_the_highest_priority_goes_first_and_then_the_oldest(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    priorities = [0, 5, -1, 5, 0]
    tasks = [await runtime.submit(queue=queue, priority=priority) for priority in priorities]
    order = []
    for _ in tasks:
        held = await runtime.acquire(queue)
        assert held is not None
        order.append([task.task_id for task in tasks].index(held.task.task_id))
    assert order == [1, 3, 0, 4, 2]
    assert await runtime.acquire(queue, wait=0) is None


@pytest.mark.rule("R8")
async def test_over_several_queues_the_foremost_run_goes_first(runtime: Runtime) -> None:
    queues = [fresh_id("queue") for _ in range(3)]
    last = await runtime.submit(queue=queues[0])
    second = await runtime.submit(queue=queues[1], priority=1)
    first = await runtime.submit(queue=queues[2], priority=2)
    order = []
    for _ in range(3):
        held = await runtime.acquire(*queues)
        assert held is not None
        order.append(held.task.task_id)
    assert order == [first.task_id, second.task_id, last.task_id]


@pytest.mark.rule("R8")
async def test_a_worker_gets_only_what_it_asks_for(runtime: Runtime) -> None:
    task = await runtime.submit()
    assert await runtime.acquire(fresh_id("other"), wait=0) is None
    assert await runtime.acquire(task.queue, wait=0, agent_names=["somebody-else"]) is None
    held = await runtime.acquire(task.queue, wait=0, agent_names=["somebody-else", task.agent_name])
    assert held is not None


@pytest.mark.rule("X13", "X2")
async def test_a_worker_gets_runs_of_its_scopes_only_and_learns_which(shared_suite: Suite) -> None:
    ours, theirs = Runtime(shared_suite), Runtime(shared_suite)
    queue = fresh_id("queue")
    task = await theirs.submit(queue=queue)
    assert await ours.acquire(queue, wait=0) is None
    assert await ours.acquire(queue, wait=0, metadata=grant(ours.world.values)) is None
    held = await ours.acquire(queue, metadata=grant(ours.world.values, theirs.world.values))
    assert held is not None
    assert (held.task.task_id, dict(held.scope.values)) == (task.task_id, theirs.world.values)
    await theirs.release(held.lease)
    again = await ours.acquire(queue, metadata=grant_all())
    assert again is not None
    assert dict(again.scope.values) == theirs.world.values
    details = await refused(ours.work(again, ended=SUCCEEDED))
    assert details.reason == "SESSION_NOT_FOUND"
    assert (await refused(ours.heartbeat(again.lease))).reason == "RUN_NOT_FOUND"


@pytest.mark.rule("R8")
async def test_a_waiting_worker_is_woken_by_the_next_task(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    waiting = asyncio.create_task(runtime.acquire(queue))
    assert await runtime.acquire(queue, wait=0.2) is None
    task = await runtime.submit(queue=queue)
    held = await waiting
    assert held is not None
    assert held.task.task_id == task.task_id


@pytest.mark.rule("R8")
async def test_each_run_goes_to_one_of_many_workers(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    waiting = [asyncio.create_task(runtime.acquire(queue, worker_id=f"w{number}")) for number in range(24)]
    tasks = await asyncio.gather(*(runtime.submit(queue=queue) for _ in range(24)))
    held = await asyncio.gather(*waiting)
    assert sorted(one.task.task_id for one in held if one) == sorted(task.task_id for task in tasks)


@pytest.mark.rule("X3", "R8")
async def test_a_replay_gives_the_same_lease_and_an_empty_answer_is_asked_anew(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    request = acquisition(queue, wait=0)
    empty = await runtime.call("WorkerService.AcquireRun", request)
    assert not empty.HasField("acquired")
    await runtime.submit(queue=queue)
    first = await runtime.call("WorkerService.AcquireRun", request)
    again = await runtime.call("WorkerService.AcquireRun", request)
    assert first.HasField("acquired")
    assert again == first
    other = acquisition(queue, wait=0, request_id=request.request_id, worker_id="somebody else")
    assert (await refused(runtime.call("WorkerService.AcquireRun", other))).reason == "REQUEST_ID_REUSED"


@pytest.mark.rule("X3")
async def test_one_acquisition_sent_at_once_leases_one_run(runtime: Runtime) -> None:
    queue = fresh_id("queue")
    request = acquisition(queue)
    calls = [asyncio.create_task(runtime.call("WorkerService.AcquireRun", request)) for _ in range(8)]
    for _ in range(3):
        await runtime.submit(queue=queue)
    answers = await asyncio.gather(*calls)
    assert len({answer.acquired.lease.run_id for answer in answers}) == 1
    states = [one.state for one in (await runs_of(runtime)) if one.queue == queue]
    assert states.count(run_pb2.RUN_STATE_QUEUED) == 2


async def runs_of(runtime: Runtime, **query: Any) -> list[run_pb2.Run]:
    return list((await runtime.call("RunService.ListRuns", run_service_pb2.ListRunsRequest(**query))).runs)


@pytest.mark.rule("R7", "X5")
async def test_runs_are_listed_newest_first_and_filtered(runtime: Runtime) -> None:
    held = [await runtime.lease() for _ in range(3)]
    await runtime.work(held[0], ended=SUCCEEDED)
    names = [one.run.run_id for one in held]
    assert [run.run_id for run in await runs_of(runtime)] == names[::-1]
    assert [run.run_id for run in await runs_of(runtime, states=[run_pb2.RUN_STATE_ENDED])] == names[:1]
    assert [run.run_id for run in await runs_of(runtime, task_id=held[1].task.task_id)] == names[1:2]
    assert [run.run_id for run in await runs_of(runtime, session_id=held[2].run.session_id)] == names[2:]
    assert await runs_of(runtime, session_id="never-used") == []
    (ended,) = await runs_of(runtime, states=[run_pb2.RUN_STATE_ENDED])
    assert ended.cause == run_pb2.RUN_END_CAUSE_SUCCEEDED
    assert ended.HasField("end_time")
    assert not ended.HasField("lease_expire_time")


@pytest.mark.rule("R8")
async def test_a_heartbeat_moves_the_expiry_and_makes_no_commit(runtime: Runtime) -> None:
    held = await runtime.lease(ttl=100)
    before = await runtime.session(held.run.session_id)
    renewed = await runtime.heartbeat(held.lease)
    assert renewed.lease_expire_time.ToDatetime() > held.lease_expire_time.ToDatetime()
    assert not renewed.cancel_requested
    assert (await runtime.run(held.run.run_id)).lease_expire_time == renewed.lease_expire_time
    assert await runtime.session(held.run.session_id) == before


@pytest.mark.rule("R8", "X2")
async def test_a_heartbeat_tells_a_lost_lease_from_a_run_that_never_was(runtime: Runtime, shared_suite: Suite) -> None:
    held = await runtime.lease()
    stale = commit_pb2.Lease(run_id=held.lease.run_id, epoch=held.lease.epoch + 1)
    details = await refused(runtime.heartbeat(stale))
    assert (details.code, details.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")
    await runtime.work(held, ended=SUCCEEDED)
    assert (await refused(runtime.heartbeat(held.lease))).reason == "LEASE_LOST"
    elsewhere = Runtime(shared_suite)
    foreign = await refused(elsewhere.heartbeat(held.lease))
    unused = await refused(elsewhere.heartbeat(commit_pb2.Lease(run_id=fresh_id(), epoch=1)))
    assert foreign.reason == "RUN_NOT_FOUND"
    assert foreign.raw == unused.raw


@pytest.mark.rule("R8")
async def test_many_heartbeats_at_once_renew_each_its_own(runtime: Runtime) -> None:
    held = [await runtime.lease() for _ in range(10)]
    beats = [runtime.heartbeat(one.lease) for one in held]
    beats += [runtime.heartbeat(commit_pb2.Lease(run_id=one.lease.run_id, epoch=9)) for one in held]
    outcomes = await together(*beats)
    assert all(isinstance(one, worker_service_pb2.HeartbeatResponse) for one in outcomes[:10])
    assert {error_details(one).reason for one in outcomes[10:]} == {"LEASE_LOST"}


@pytest.mark.rule("R8", "R7")
async def test_a_released_run_is_queued_again_under_a_higher_epoch(runtime: Runtime) -> None:
    held = await runtime.lease()
    released = await runtime.release(held.lease)
    assert (released.run.state, released.run.crash_count) == (run_pb2.RUN_STATE_QUEUED, 0)
    assert (await refused(runtime.release(held.lease))).reason == "LEASE_LOST"
    again = await runtime.again(held)
    assert (again.lease.run_id, again.lease.epoch) == (held.lease.run_id, 2)
    assert (await refused(runtime.work(held, running=RUNNING))).reason == "LEASE_LOST"
    assert (await refused(runtime.release(commit_pb2.Lease(run_id="never", epoch=1)))).reason == "RUN_NOT_FOUND"


@pytest.mark.rule("R8", "X9")
@pytest.mark.parametrize(("wait", "ttl", "field"), [(61, 30, "wait"), (1, 0.5, "lease_ttl"), (1, 3601, "lease_ttl")])
async def test_times_out_of_bounds_are_refused(runtime: Runtime, wait: float, ttl: float, field: str) -> None:
    assert list((await refused(runtime.acquire("q", wait=wait, ttl=ttl))).violations) == [field]


@pytest.mark.rule("R3", "R7", "R8")
@pytest.mark.case("B60")
@pytest.mark.suite(settings=SHORT, services=["config", "runtime"], topologies=["embedded"])
async def test_a_zombie_leaves_neither_event_nor_checkpoint(suite: Suite) -> None:
    """Two workers, one expired lease. What the first one still sends is as if it had never been sent."""
    from tests.support.checkpoints import Saver, op, put, write, writes

    runtime = Runtime(suite)
    zombie = await runtime.lease(ttl=TTL)
    name = zombie.run.session_id
    await runtime.work(zombie, checkpoint_ops=[op(put(1))], running=RUNNING)
    heir = await runtime.again(zombie)
    assert (heir.lease.run_id, heir.lease.epoch) == (zombie.lease.run_id, 2)
    assert heir.run.crash_count == 1
    assert heir.last_checkpoint_id == heir.checkpoint_id_floor == put(1).checkpoint_id

    before = (await runtime.types(name), await runtime.session(name))
    plain, fenced = Saver(runtime.world, name), Saver(runtime.world, name, zombie.lease)
    for late in (
        runtime.work(zombie, events=[event()], checkpoint_ops=[op(put(2))], running=RUNNING),
        runtime.work(zombie, events=[event()], checkpoint_ops=[op(put(2))], awaiting=awaiting()),
        runtime.work(zombie, events=[event()], checkpoint_ops=[op(put(2))], ended=SUCCEEDED),
        runtime.work(zombie, events=[event()]),
        fenced.put(put(2)),
        fenced.write(writes(1, write("t", 0))),
        fenced.delete(),
        runtime.heartbeat(zombie.lease),
        runtime.release(zombie.lease),
    ):
        details = await refused(late)
        assert (details.code, details.reason) == (grpc.StatusCode.ABORTED, "LEASE_LOST")
    for meanwhile in (plain.put(put(2)), plain.write(writes(1, write("t", 0))), plain.delete()):
        assert (await refused(meanwhile)).reason == "LEASE_REQUIRED"
    assert (await runtime.types(name), await runtime.session(name)) == before
    (only,) = await plain.list()
    assert (only.checkpoint_id, list(only.pending_writes)) == (put(1).checkpoint_id, [])

    await runtime.work(heir, checkpoint_ops=[op(put(2))], ended=SUCCEEDED)
    assert (await runtime.task(heir.task.task_id)).state == task_pb2.TASK_STATE_COMPLETED


@pytest.mark.rule("R7", "R8")
@pytest.mark.case("B57")
@pytest.mark.suite(settings=SHORT, services=["config", "runtime"], topologies=["embedded"])
async def test_a_budget_spent_by_crashes_fails_the_task_and_frees_the_session(suite: Suite) -> None:
    runtime = Runtime(suite)
    held = await runtime.lease(ttl=TTL, retry_policy=task_pb2.RetryPolicy(max_attempts=2))
    held = await runtime.again(held, ttl=TTL)
    task = await runtime.wait(held.task.task_id)
    assert (task.state, task.failure.code, task.crash_count) == (task_pb2.TASK_STATE_FAILED, "lease_expired", 2)
    run = await runtime.run(held.run.run_id)
    assert (run.state, run.cause) == (run_pb2.RUN_STATE_ENDED, run_pb2.RUN_END_CAUSE_INDETERMINATE)
    expired = "run.lease_expired"
    types = await runtime.types(task.session_id)
    assert (types.count(expired), types[-3:]) == (2, [expired, "run.ended", "task.failed"])
    await runtime.submit(task.session_id)


@pytest.mark.rule("R9")
@pytest.mark.case("B56", "B62")
@pytest.mark.suite(settings=SHORT, services=["config", "runtime"], topologies=["embedded"])
async def test_a_canceled_task_whose_worker_died_is_canceled_without_a_worker(suite: Suite) -> None:
    runtime = Runtime(suite)
    dead = await runtime.lease(ttl=TTL)
    await runtime.cancel(dead.task.task_id, grace_period={"seconds": 600})
    slow = await runtime.lease()
    await runtime.cancel(slow.task.task_id, grace_period={"nanos": 200_000_000})
    for held in (dead, slow):
        task = await runtime.wait(held.task.task_id)
        assert task.state == task_pb2.TASK_STATE_CANCELED
        assert (await refused(runtime.work(held, ended=CANCELED))).reason == "LEASE_LOST"
        assert await runtime.acquire(held.run.queue, wait=0) is None
        await runtime.submit(task.session_id)


@pytest.mark.rule("R8")
@pytest.mark.suite(settings=SHORT, services=["config", "runtime"], topologies=["embedded"])
async def test_heartbeats_keep_a_lease_for_as_long_as_they_come(suite: Suite) -> None:
    runtime = Runtime(suite)
    # Long enough that a machine that stands still for a while takes nothing from the one that does heartbeats.
    held = await runtime.lease(ttl=60)
    silent = await runtime.lease(ttl=TTL)
    first = (await runtime.run(held.run.run_id)).lease_expire_time.ToNanoseconds()

    async def the_silent_one_is_lost() -> bool:
        await runtime.heartbeat(held.lease)
        return (await runtime.run(silent.run.run_id)).crash_count == 1

    await eventually(the_silent_one_is_lost, interval=0.1)
    run = await runtime.run(held.run.run_id)
    assert (run.crash_count, run.epoch, run.state) == (0, 1, run_pb2.RUN_STATE_RUNNING)
    assert run.lease_expire_time.ToNanoseconds() > first


@pytest.mark.rule("R8", "X7")
@pytest.mark.case("B97")
@pytest.mark.suite(services=["config", "runtime"], topologies=["embedded"])
async def test_a_stop_lets_waiting_workers_go_with_nothing(suite: Suite) -> None:
    runtime = Runtime(suite)
    waiting = asyncio.create_task(runtime.acquire(fresh_id("queue"), wait=30))
    task = await runtime.submit()
    watching = asyncio.create_task(refused(runtime.wait(task.task_id, 60)))
    assert await runtime.acquire(fresh_id("queue"), wait=0.2) is None
    await suite.stop()
    assert await waiting is None
    assert (await watching).reason == "SHUTTING_DOWN"
