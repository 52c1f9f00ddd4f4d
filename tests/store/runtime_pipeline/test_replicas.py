"""Several replicas of the runtime on one database, lost connections, and damage (R8, R14, R22)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.store.runtime_pipeline.gate import connection, sample
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime, commit, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import run_pb2, task_pb2
from threadkeep_chassis.hosting import Host
from threadkeep_runtime.server import build
from threadkeep_runtime.settings import RuntimeSettings

SHORT = {"recovery_interval_seconds": 0.05}
REPLICAS = {
    "backends": ["postgres"],
    "services": ["config", "runtime"],
    "topologies": ["embedded"],
    "settings": {"runtime": SHORT},
}


class Second:
    """A second replica beside the suite's."""

    def __init__(self, suite: Suite) -> None:
        settings = RuntimeSettings(database_url=suite.urls["runtime"], **SHORT)
        self._host = Host([build(settings)], peers={"config": suite.addresses["config"]})
        self._suite = suite
        self._channel: grpc.aio.Channel

    async def start(self) -> None:
        """Serves."""
        await self._host.start()
        self._channel = grpc.aio.insecure_channel(self._host.address, options=[("grpc.use_local_subchannel_pool", 1)])

    async def stop(self) -> None:
        """Stops."""
        await self._channel.close()
        await self._host.stop(1)

    def channel(self, service: str) -> grpc.aio.Channel:
        """The runtime is here, config is the suite's."""
        return self._channel if service == "runtime" else self._suite.channel(service)


@pytest.fixture
async def replicas(suite: Suite) -> AsyncIterator[tuple[Runtime, Runtime]]:
    """One scope, seen through two replicas."""
    second = Second(suite)
    await second.start()
    first = Runtime(suite)
    await first.agent()
    other = Runtime(second, **first.world.values)
    other._agent = first._agent
    yield first, other
    await second.stop()


@pytest.mark.rule("R2", "R14")
@pytest.mark.suite(**REPLICAS)
async def test_both_replicas_write_the_same_threads_in_one_order(
    suite: Suite, replicas: tuple[Runtime, Runtime]
) -> None:
    names = [(await replicas[0].create()).session_id for _ in range(12)]
    await asyncio.gather(
        *(replicas[number % 2].commit(name, events=[event(), event()]) for name in names for number in range(8))
    )
    # The thread's lock makes them wait for each other: nobody decided on a view that was stale by the time of writing.
    assert sample(suite, "threadkeep_pipeline_batches_retried_total") == 0
    assert sample(suite, "threadkeep_pipeline_batches_replayed_alone_total") == 0
    for name in names:
        assert [one.sequence for one in await replicas[1].events(name)] == list(range(1, 18))
        assert (await replicas[0].session(name)).thread_version == 9
    async with connection(suite) as probe:
        rows = await probe.fetch(
            "SELECT p.partition, count(*) AS n, min(e.position) AS low, max(e.position) AS high, "
            "max(p.position) AS counter "
            "FROM events e JOIN log_partitions p ON p.partition = e.partition GROUP BY p.partition"
        )
        for row in rows:
            assert (row["low"], row["high"], row["counter"]) == (1, row["n"], row["n"])
        reordered = await probe.fetchval(
            "SELECT count(*) FROM events a JOIN events b "
            "ON b.thread_key = a.thread_key AND b.sequence = a.sequence + 1 WHERE b.position <= a.position"
        )
        assert reordered == 0


@pytest.mark.rule("R8")
@pytest.mark.suite(**REPLICAS)
async def test_each_run_goes_to_one_worker_of_either_replica(replicas: tuple[Runtime, Runtime]) -> None:
    queue = fresh_id("queue")
    waiting = [asyncio.create_task(replicas[number % 2].acquire(queue)) for number in range(20)]
    tasks = await asyncio.gather(*(replicas[number % 2].submit(queue=queue) for number in range(20)))
    held = await asyncio.gather(*waiting)
    assert sorted(one.task.task_id for one in held if one) == sorted(task.task_id for task in tasks)
    await asyncio.gather(*(replicas[0].work(one, ended=SUCCEEDED) for one in held if one))
    assert await replicas[1].acquire(queue, wait=0) is None


@pytest.mark.rule("R8")
@pytest.mark.case("B66")
@pytest.mark.suite(**REPLICAS)
async def test_expired_leases_are_recovered_once_by_whichever_replica(replicas: tuple[Runtime, Runtime]) -> None:
    held = [await replicas[0].lease(ttl=1) for _ in range(8)]

    async def all_recovered() -> bool:
        runs = [await replicas[1].run(one.run.run_id) for one in held]
        return all(run.state == run_pb2.RUN_STATE_QUEUED for run in runs)

    await eventually(all_recovered)
    for one in held:
        assert (await replicas[0].run(one.run.run_id)).crash_count == 1
        assert (await replicas[0].types(one.run.session_id)).count("run.lease_expired") == 1


@pytest.mark.rule("R24", "R7")
@pytest.mark.suite(**REPLICAS)
async def test_due_tasks_are_opened_once_by_whichever_replica(replicas: tuple[Runtime, Runtime]) -> None:
    soon = Timestamp()
    soon.FromDatetime(datetime.now(UTC) + timedelta(seconds=1))
    queue = fresh_id("queue")
    tasks = await asyncio.gather(*(replicas[n % 2].submit(queue=queue, not_before=soon) for n in range(12)))
    assert await replicas[1].acquire(queue, wait=0) is None
    held = [await replicas[n % 2].acquire(queue) for n in range(12)]
    assert {one.task.task_id for one in held if one} == {task.task_id for task in tasks}
    for one in held:
        assert one is not None
        assert one.run.create_time.ToNanoseconds() >= soon.ToNanoseconds()
        assert (await replicas[0].types(one.run.session_id)).count("run.queued") == 1


@pytest.mark.rule("R24", "R7")
@pytest.mark.suite(**REPLICAS)
async def test_timeouts_happen_once_whichever_replica_sees_them(replicas: tuple[Runtime, Runtime]) -> None:
    short = task_pb2.TaskTimeouts(attempt=Duration(seconds=1))
    policy = task_pb2.RetryPolicy(max_attempts=2, initial_backoff=Duration(seconds=3600))
    held = [await replicas[0].lease(timeouts=short, retry_policy=policy) for _ in range(6)]
    waiting = task_pb2.TaskTimeouts(waiting=Duration(seconds=1))
    idle = await asyncio.gather(*(replicas[1].submit(timeouts=waiting) for _ in range(6)))

    async def all_timed_out() -> bool:
        tasks = [await replicas[1].task(one.task.task_id) for one in held]
        others = [await replicas[1].task(one.task_id) for one in idle]
        return all(task.attempt == 2 for task in tasks) and all(
            task.state == task_pb2.TASK_STATE_FAILED for task in others
        )

    await eventually(all_timed_out)
    for one in held:
        types = await replicas[0].types(one.run.session_id)
        assert (types.count("run.ended"), types.count("run.queued"), types.count("task.failed")) == (1, 2, 0)
    for task in idle:
        types = await replicas[0].types(task.session_id)
        assert (types.count("run.ended"), types.count("task.failed")) == (1, 1)


@pytest.mark.rule("X3")
@pytest.mark.suite(**REPLICAS)
async def test_one_request_sent_to_both_replicas_at_once_has_one_effect(replicas: tuple[Runtime, Runtime]) -> None:
    session = await replicas[0].create()
    for _ in range(10):
        request = commit(session.session_id, events=[event()])
        answers = await asyncio.gather(*(one.call("ThreadService.Commit", request) for one in replicas))
        assert sorted(answer.receipt.replay for answer in answers) == [False, True]
        submission = await replicas[0].submission()
        tasks = await asyncio.gather(*(one.call("TaskService.SubmitTask", submission) for one in replicas))
        assert tasks[0].task == tasks[1].task
    assert (await replicas[0].session(session.session_id)).thread_version == 11


@pytest.mark.rule("R24")
@pytest.mark.suite(**REPLICAS)
async def test_who_waits_at_one_replica_sees_what_the_other_commits(replicas: tuple[Runtime, Runtime]) -> None:
    held = await replicas[0].lease()
    waiting = asyncio.create_task(replicas[1].wait(held.task.task_id))
    await replicas[1].heartbeat(held.lease)
    await replicas[0].work(held, ended=SUCCEEDED)
    assert (await waiting).state == task_pb2.TASK_STATE_COMPLETED


@pytest.mark.rule("X7", "R22")
@pytest.mark.case("B45")
@pytest.mark.suite(backends=["postgres"], services=["config", "runtime"], topologies=["embedded"])
async def test_lost_connections_cost_no_call_and_double_none(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for number in range(3):
        async with connection(suite) as killer:
            await killer.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'threadkeep-runtime%' AND pid <> pg_backend_pid()"
            )
        assert (await runtime.session(session.session_id)).thread_version == 1 + number
        await runtime.commit(session.session_id, events=[event()])
    assert [one.sequence for one in await runtime.events(session.session_id)] == [1, 2, 3, 4]
    held = await runtime.lease()
    assert (await runtime.heartbeat(held.lease)).lease_expire_time


@pytest.mark.rule("X7")
@pytest.mark.suite(backends=["postgres"], services=["config", "runtime"], topologies=["embedded"])
async def test_connections_killed_under_load_leave_every_request_settled(suite: Suite) -> None:
    runtime = Runtime(suite)
    names = [(await runtime.create()).session_id for _ in range(8)]
    requests = [commit(name, events=[event()]) for name in names for _ in range(25)]
    stop = asyncio.Event()

    async def kill() -> None:
        async with connection(suite) as killer:
            while not stop.is_set():
                await killer.fetch(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'threadkeep-runtime' AND state <> 'idle'"
                )
                await asyncio.sleep(0.2)

    async def insist(request: object) -> None:
        async def answered() -> bool:
            try:
                await runtime.call("ThreadService.Commit", request)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                return False
            return True

        await eventually(answered)

    killing = asyncio.create_task(kill())
    await asyncio.gather(*(insist(request) for request in requests))
    stop.set()
    await killing
    for name in names:
        assert (await runtime.session(name)).thread_version == 26
        assert [one.sequence for one in await runtime.events(name)] == list(range(1, 27))


@pytest.mark.rule("R8")
@pytest.mark.case("B58")
@pytest.mark.suite(
    backends=["sqlite", "postgres"],
    services=["config", "runtime"],
    topologies=["embedded"],
    settings={"runtime": SHORT},
)
async def test_a_running_run_without_a_lease_row_is_recovered(suite: Suite) -> None:
    runtime = Runtime(suite)
    held = await runtime.lease()
    async with connection(suite) as owner:
        await owner.execute("DELETE FROM leases")
    again = await runtime.again(held)
    assert (again.lease.epoch, again.run.crash_count) == (2, 1)
    assert (await refused(runtime.work(held, ended=SUCCEEDED))).reason == "LEASE_LOST"


@pytest.mark.rule("R8")
@pytest.mark.suite(
    backends=["postgres"],
    services=["config", "runtime"],
    topologies=["embedded"],
    settings={"runtime": SHORT},
)
async def test_a_heartbeat_that_is_under_way_beats_the_recovery(suite: Suite) -> None:
    """The loop finds the lease expired while its renewal is not yet committed; it waits for that and lets go."""
    runtime = Runtime(suite)
    held = await runtime.lease(ttl=1)
    async with connection(suite) as beating, connection(suite) as probe:
        async with beating.transaction():
            await beating.execute("UPDATE leases SET expire_time = expire_time + interval '1 hour'")

            async def the_recovery_waits() -> bool:
                return bool(
                    await probe.fetchval(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                        "AND application_name = 'threadkeep-runtime'"
                    )
                )

            await eventually(the_recovery_waits)
    other = await runtime.lease(ttl=1)

    async def the_other_is_recovered() -> bool:
        return (await runtime.run(other.run.run_id)).crash_count == 1

    await eventually(the_other_is_recovered)
    run = await runtime.run(held.run.run_id)
    assert (run.state, run.epoch, run.crash_count) == (run_pb2.RUN_STATE_RUNNING, 1, 0)
    await runtime.work(held, ended=SUCCEEDED)
