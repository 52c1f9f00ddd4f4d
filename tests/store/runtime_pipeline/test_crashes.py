"""The server dies at the worst moments of a commit, under 16 concurrent committers (R1, X3, X7).

What was acknowledged is there afterwards, once; what was not is settled by sending the same request again.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.examples.world import CALL_SECONDS
from tests.support.processes import Process, Processes
from tests.support.runtime import Runtime, commit, event
from tests.support.suite import migrate_one
from threadkeep.runtime.v1 import thread_service_pb2

COMMITTERS = 16


class Server:
    """Channels to a server in another process."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def channel(self, service: str) -> grpc.aio.Channel:
        """The one channel."""
        return self._channel


@asynccontextmanager
async def serving(
    processes: Processes, url: str, runtime: Runtime, failpoint: str = ""
) -> AsyncIterator[tuple[Process, Runtime]]:
    """The runtime in a process of its own; the scope is that of `runtime`."""
    process, address = await processes.daemon(
        *("serve", "runtime", "--database", url, "--config-address", "127.0.0.1:1"),
        *("--set", f"failpoint={failpoint}", "--log-level", "ERROR"),
    )
    server = Server(address)
    try:
        yield process, Runtime(server, **runtime.world.values)
    finally:
        await server.channel("runtime").close()
        if process.is_running:
            await process.stop()


class Committer:
    """Commits one event after the other, and writes down what was acknowledged."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.acknowledged: list[str] = []
        self.unanswered: thread_service_pb2.CommitRequest | None = None

    async def run(self, runtime: Runtime) -> None:
        """Commits until a call fails, or 40 times."""
        bind = runtime.world.bind("ThreadService.Commit")
        for number in itertools.count():
            if number == 40:
                return
            name = f"{self.session_id}.{number}"
            request = commit(self.session_id, events=[event(event_id=name), event(event_id=name + ".b")])
            try:
                await bind(request, metadata=runtime.metadata, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                self.unanswered = request
                return
            self.acknowledged.append(name)


@pytest.mark.rule("R1", "X3", "X7")
@pytest.mark.suite(backends=["sqlite", "postgres"])
@pytest.mark.parametrize("failpoint", ["before_first_statement", "before_commit", "after_commit"])
async def test_a_crash_loses_nothing_and_doubles_nothing(
    processes: Processes, databases: Databases, database_url: str, backend: str, failpoint: str
) -> None:
    await migrate_one(database_url, "runtime")
    nowhere = Runtime(Server("127.0.0.1:1"))
    committers = [Committer(fresh_id("session")) for _ in range(COMMITTERS)]
    async with serving(processes, database_url, nowhere) as (_, runtime):
        await asyncio.gather(*(runtime.create(one.session_id) for one in committers))

    async with serving(processes, database_url, nowhere, f"{failpoint}:3") as (process, runtime):
        await asyncio.gather(*(one.run(runtime) for one in committers))
        assert await process.wait() == -9
    pending = [one for one in committers if one.unanswered is not None]
    assert pending, "the kill found no commit in flight"

    async with serving(processes, database_url, nowhere) as (_, runtime):
        replays = 0
        for one in pending:
            assert one.unanswered is not None
            response = await runtime.call("ThreadService.Commit", one.unanswered)
            replays += response.receipt.replay
            one.acknowledged.append(one.unanswered.commit.events[0].event_id)
        for one in committers:
            events = await runtime.events(one.session_id)
            assert [e.sequence for e in events] == list(range(1, len(events) + 1))
            expected = [name for first in one.acknowledged for name in (first, first + ".b")]
            assert [e.event_id for e in events[1:]] == expected
            assert (await runtime.session(one.session_id)).thread_version == 1 + len(one.acknowledged)
    if failpoint == "after_commit":
        assert replays >= 1
    elif backend == "sqlite":
        assert replays == 0
