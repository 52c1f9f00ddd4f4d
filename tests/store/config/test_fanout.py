"""Watchers on three replicas, each a process, while listeners are cut and replicas are killed (C5, C6)."""

import asyncio
import os
from pathlib import Path

import grpc
import pytest

from tests.store.chassis.wire import Wire, wire_to
from tests.support.calls import error_details
from tests.support.config import TOOL, Caller, config_database, tool
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Process, Processes
from threadkeep.config.v1 import config_service_pb2 as pb

WRITES = int(os.environ.get("THREADKEEP_TEST_WRITES", "60"))
"""Of each of two writers. Small by default; 500 is what must hold."""
CUTS = 10
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]


class Replica:
    """A config server as a process on an address that it keeps."""

    def __init__(self, processes: Processes, url: str, direct: str) -> None:
        self._processes, self._told = processes, ("--database", url, "--database-direct", direct)
        self._process: Process | None = None
        self.address = "127.0.0.1:0"

    async def start(self) -> None:
        """Starts it."""
        settings = ("--set", "signal_poll_seconds=0.5", "--set", "bookmark_seconds=0.2")
        self._process, self.address = await self._processes.daemon(
            "serve", "config", *self._told, *settings, listen=self.address
        )

    async def restart(self) -> None:
        """Kills it, and starts it again."""
        assert self._process is not None
        await self._process.kill()
        await self.start()


async def follow(channel: grpc.aio.Channel, scope: dict[str, str], until: asyncio.Future[int]) -> list[int]:
    """The revisions that a watcher sees from the first one on, going on after each break, until it has the last."""
    caller, seen, after = Caller(channel, scope), [], 0
    while not (until.done() and after >= until.result()):
        watch = caller.watch(after=after)
        try:
            while not (until.done() and after >= until.result()):
                frame = await watch.frame()
                told = [change.entity.revision for change in frame.changes.changes]
                assert all(revision > after for revision in told)
                seen += told
                after = max(after, frame.revision)
        except grpc.aio.AioRpcError as error:
            if error_details(error).reason not in ("", "SHUTTING_DOWN", "DATABASE_UNAVAILABLE"):
                raise
            await asyncio.sleep(0.05)
        finally:
            watch.cancel()
    return seen


async def write(channel: grpc.aio.Channel, scope: dict[str, str], name: str) -> int:
    """Writes one tool over and over, each write until it is acknowledged; gives the last revision."""
    caller, revision = Caller(channel, scope), 0
    for number in range(WRITES):
        request = pb.PutEntityRequest(
            request_id=fresh_id(), key=caller.key(TOOL, name), definition=tool(f"text {number}")
        )
        while True:
            try:
                answer = await caller.stub.PutEntity(request, metadata=caller.metadata, timeout=20)
                break
            except grpc.aio.AioRpcError as error:
                # The same request again: it has one effect, whatever became of the first.
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise
                await asyncio.sleep(0.05)
        revision = answer.entity.revision
    return revision


async def cut(wire: Wire, done: asyncio.Event) -> None:
    """Cuts the listeners over and over; every other time they are half-open for a while first."""
    for number in range(CUTS):
        if number % 2:
            wire.is_silent = True
            await asyncio.sleep(0.1)
        wire.cut_all()
        wire.is_silent = False
        await asyncio.sleep(0.1)
    done.set()


@pytest.mark.rule("C5", "C6")
@pytest.mark.case("B52", "B53", "B80", "B82")
@pytest.mark.suite(backends=["postgres"])
async def test_every_watcher_on_every_replica_sees_every_revision_once_in_order(
    databases: Databases, backend: str, processes: Processes, tmp_path: Path
) -> None:
    url = await config_database(databases, backend)
    scope = {"tenant": "t"}
    async with wire_to(databases.postgres.socket_folder) as wire:
        replicas = [Replica(processes, url, wire.url(url)) for _ in range(3)]
        await asyncio.gather(*(replica.start() for replica in replicas))
        channels = [grpc.aio.insecure_channel(replica.address, options=OPTIONS) for replica in replicas]
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cut_off = asyncio.Event()
        following = [asyncio.create_task(follow(channel, scope, last)) for channel in channels for _ in range(2)]
        cutting = asyncio.create_task(cut(wire, cut_off))
        writing = [asyncio.create_task(write(channels[number], scope, f"w{number}")) for number in range(2)]
        await replicas[2].restart()
        await replicas[1].restart()
        written = await asyncio.gather(*writing)
        await cut_off.wait()
        await cutting
        # One more after the last cut: it reaches everyone, whatever became of the listeners.
        final = await Caller(channels[0], scope).put(TOOL, "final", tool())
        last.set_result(final.entity.revision)
        async with asyncio.timeout(120):
            each = await asyncio.gather(*following)
        assert max(written) < final.entity.revision == 2 * WRITES + 1
        assert each == [list(range(1, 2 * WRITES + 2))] * 6
        for channel in channels:
            await channel.close()
    await databases.drop(url)
