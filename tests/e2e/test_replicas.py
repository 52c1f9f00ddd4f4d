"""Three replicas of the runtime as processes on one database, killed one after the other while they work.

Writers, a follower, a sender of messages and a worker use whichever replica answers. What was acknowledged is there
once, in order, for the follower too; each message arrived once; the run whose worker fell silent is recovered.
"""

import asyncio
import base64
import itertools
import json
import os
import random
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.support.databases import Databases
from tests.support.feeds import Feed, subscription
from tests.support.outbox import inbox, to_session
from tests.support.processes import Process, Processes
from tests.support.runtime import SUCCEEDED, Runtime, acquisition, commit, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import event_service_pb2_grpc, task_pb2, worker_service_pb2

REPLICAS, WRITERS = 3, 6
KILLS = int(os.environ.get("REPLICA_KILLS", "3"))
CALL_SECONDS = 10.0
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Fleet:
    """The replicas. `channel` gives one that ran lately; a call that fails goes to another."""

    def __init__(self, processes: Processes, suite: Suite) -> None:
        self._processes, self._suite = processes, suite
        self._running: dict[str, Process] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def add(self) -> None:
        """Starts one more."""
        process, address = await self._processes.daemon(
            *("serve", "runtime", "--database", self._suite.urls["runtime"]),
            *("--config-address", self._suite.addresses["config"]),
            *("--set", "recovery_interval_seconds=0.2", "--set", "signal_poll_seconds=0.5"),
            *("--set", 'outbox={"claim_seconds": 2, "webhook_timeout_seconds": 1}', "--log-level", "ERROR"),
        )
        self._running[address] = process
        self._channels[address] = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    async def kill_one(self) -> None:
        """SIGKILL for the one that has run longest."""
        address, process = next(iter(self._running.items()))
        del self._running[address]
        await process.kill()
        await self._channels.pop(address).close()

    def channel(self, service: str) -> grpc.aio.Channel:
        """Any replica for the runtime; config is the suite's."""
        if service != "runtime":
            return self._suite.channel(service)
        return random.choice(list(self._channels.values()))

    async def close(self) -> None:
        """Closes the channels; the processes end with the fixture."""
        for channel in self._channels.values():
            await channel.close()


@pytest.fixture
async def suite(databases: Databases) -> AsyncIterator[Suite]:
    """Config, and the runtime's database."""
    running = await Suite.start(databases, "postgres", "embedded", services=("config", "runtime"))
    yield running
    await running.close()


async def insist(runtime: Runtime, name: str, request: object) -> object:
    """Sends one request until a replica answers."""
    while True:
        try:
            return await runtime.world.bind(name)(request, metadata=runtime.metadata, timeout=CALL_SECONDS)
        except (grpc.RpcError, asyncio.CancelledError, grpc.aio.UsageError) as error:
            # The channel of a killed replica closes under its calls.
            if isinstance(error, grpc.RpcError) and error.code() not in (*AGAIN, grpc.StatusCode.CANCELLED):
                raise
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            await asyncio.sleep(0.02)


@pytest.mark.rule("R2", "R8", "R14", "R16", "X3", "X7")
@pytest.mark.case("B50", "B66", "B90")
async def test_three_replicas_under_kills_lose_and_double_nothing(processes: Processes, suite: Suite) -> None:
    fleet = Fleet(processes, suite)
    for _ in range(REPLICAS):
        await fleet.add()
    runtime = Runtime(fleet)
    await runtime.agent()
    sessions = [(await runtime.create()).session_id for _ in range(WRITERS)]
    target = (await runtime.create()).session_id
    task = await runtime.submit(target)
    held = await runtime.acquire(task.queue, ttl=1)
    assert held is not None
    stop, counts, seen = asyncio.Event(), dict.fromkeys(sessions, 0), {}

    async def write(session_id: str) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            drafts = [to_session(target, [session_id, number])] if number % 5 == 0 else []
            request = commit(session_id, events=[event(event_id=f"{session_id}.{number}")], outbox=drafts)
            await insist(runtime, "ThreadService.Commit", request)
            counts[session_id] = number + 1

    async def follow() -> None:
        cursor = b""
        while True:
            stub = event_service_pb2_grpc.EventServiceStub(fleet.channel("runtime"))
            start = {"after": cursor} if cursor else {"from_start": True}
            call = stub.SubscribeEvents(subscription(types=("order.placed",), **start), metadata=runtime.metadata)
            feed = Feed(call)
            try:
                while True:
                    frame = await feed.frame()
                    for one in frame.events.events:
                        seen.setdefault(one.session_id, []).append(one.event_id)
                    cursor = frame.cursor or cursor
            except (grpc.RpcError, StopAsyncIteration, TimeoutError, grpc.aio.UsageError):
                await asyncio.sleep(0.02)
            finally:
                call.cancel()

    writing = [asyncio.create_task(write(session_id)) for session_id in sessions]
    following = asyncio.create_task(follow())
    for _ in range(KILLS):
        before = dict(counts)
        await eventually(lambda before=before: all(counts[one] > before[one] + 3 for one in sessions), 60)  # type: ignore[misc]
        await fleet.kill_one()
        await fleet.add()
    stop.set()
    await asyncio.gather(*writing)

    expected = {one: [f"{one}.{number}" for number in range(counts[one])] for one in sessions}
    for session_id in sessions:
        found = await eventually(lambda session_id=session_id: _events(runtime, session_id))  # type: ignore[misc]
        assert found == expected[session_id]
    await eventually(lambda: seen == expected, 60)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    sent = {one: list(range(0, counts[one], 5)) for one in sessions}

    async def all_arrived() -> bool:
        facts = await inbox(runtime, target)
        values = [json.loads(base64.b64decode(fact["payload"]["data"])) for fact in facts]
        arrived = {one: [number for name, number in values if name == one] for one in sessions}
        assert all(len(arrived[one]) <= len(sent[one]) for one in sessions), "a message arrived twice"
        return arrived == sent

    await eventually(all_arrived, 60)
    # The run's lease ran out meanwhile, and whichever replica was there put it back, once for each lease that ran out.
    request = acquisition(task.queue, wait=20)
    answer = await insist(runtime, "WorkerService.AcquireRun", request)
    assert isinstance(answer, worker_service_pb2.AcquireRunResponse)
    again = answer.acquired
    assert (again.run.run_id, again.lease.epoch, again.run.crash_count) == (held.run.run_id, 2, 1)
    await runtime.work(again, ended=SUCCEEDED)
    assert (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_COMPLETED
    await fleet.close()


async def _events(runtime: Runtime, session_id: str) -> list[str]:
    return [one.event_id for one in await runtime.events(session_id) if one.type == "order.placed"]
