"""Several processes behind one port: one sees what another does, one dies and nothing is lost, all stop in order."""

import asyncio
import itertools
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import psutil
import pytest

from tests.conformance.runtime.test_live import Publisher, observation
from tests.support.artifacts import download, upload
from tests.support.calls import scope
from tests.support.databases import Databases
from tests.support.examples.world import World
from tests.support.feeds import Feed, append, subscribed
from tests.support.processes import Process, Processes
from tests.support.runtime import SUCCEEDED, Runtime, commit, event
from tests.support.suite import SERVICES, Suite, migrate_one
from tests.support.waiting import eventually
from threadkeep.artifacts.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from threadkeep.projection.v1 import summary_service_pb2
from threadkeep.runtime.v1 import task_pb2

OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50)]
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
WRITERS = 6


class Site:
    """A command line with two processes, and as many connections as it takes to reach both."""

    def __init__(self, process: Process, address: str, suite: Suite | None) -> None:
        self.process, self.address, self._suite = process, address, suite
        self.channels: list[grpc.aio.Channel] = []

    def channel(self, service: str) -> grpc.aio.Channel:
        """Any connection; config is the suite's, if there is one."""
        if self._suite is not None and service != "runtime":
            return self._suite.channel(service)
        return random.choice(self.channels)

    @property
    def servers(self) -> list[psutil.Process]:
        """The processes that serve, or are about to."""
        return psutil.Process(self.process.pid).children()

    def connections(self) -> list[int]:
        """How many connections each of them has."""
        port = int(self.address.rpartition(":")[2])
        return [
            sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in server.net_connections())
            for server in self.servers
        ]

    async def reach_both(self) -> None:
        """Connects until each process has a connection: the kernel deals them out."""
        while not self.channels or 0 in self.connections():
            channel = grpc.aio.insecure_channel(self.address, options=OPTIONS)
            self.channels.append(channel)
            await asyncio.wait_for(channel.channel_ready(), 60)

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self.channels:
            await channel.close()


@pytest.fixture(scope="module")
async def runtime_site(databases: Databases) -> AsyncIterator[Site]:
    """The runtime as two processes; config is in this one."""
    processes = Processes()
    suite = await Suite.start(databases, "postgres", "embedded", services=("config", "runtime"))
    process, address = await processes.daemon(
        *("serve", "runtime", "--database", suite.urls["runtime"], "--processes", "2"),
        *("--config-address", suite.addresses["config"], "--set", "signal_poll_seconds=30"),
    )
    site = Site(process, address, suite)
    yield site
    await site.close()
    await process.stop()
    await processes.close()
    await suite.close()


class Pinned(World):
    """A scope on one connection."""

    def __init__(self, site: Site, channel: grpc.aio.Channel, **values: str) -> None:
        super().__init__(site, **values)
        self._channel = channel
        self.suite = self

    def channel(self, service: str) -> grpc.aio.Channel:
        """The one."""
        return self._channel


async def migrate_all(url: str) -> None:
    for service in SERVICES:
        await migrate_one(url, service)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def failure(feed: Feed) -> grpc.StatusCode:
    return (await feed.failure()).code()


@pytest.mark.rule("R2", "R14", "R22", "X3", "X7")
@pytest.mark.case("B66")
async def test_one_of_two_processes_is_killed_under_load_and_nothing_is_lost(runtime_site: Site) -> None:
    site = runtime_site
    await site.reach_both()
    runtime = Runtime(site)
    sessions = [(await runtime.create()).session_id for _ in range(WRITERS)]
    stop, counts = asyncio.Event(), dict.fromkeys(sessions, 0)

    async def write(session_id: str, channel: grpc.aio.Channel) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            request = commit(session_id, events=[event(event_id=f"{session_id}.{number}")])
            while True:
                try:
                    call = Pinned(site, channel, **runtime.world.values).bind("ThreadService.Commit")
                    await call(request, metadata=runtime.metadata, timeout=20)
                    break
                except grpc.aio.AioRpcError as error:
                    if error.code() not in AGAIN:
                        raise
            counts[session_id] = number + 1

    async def progress() -> None:
        before = dict(counts)
        await eventually(lambda: all(counts[one] > before[one] + 3 for one in sessions), 60)

    channels = itertools.cycle(site.channels)
    writing = [asyncio.create_task(write(session_id, next(channels))) for session_id in sessions]
    await progress()
    first, second = site.servers
    for victim in (first, second):
        victim.kill()
        await progress()
        await eventually(lambda victim=victim: len(site.servers) == 2 and victim not in site.servers)  # type: ignore[misc]
        # It serves again before the other one dies.
        count = 3 + int(victim == second)
        await eventually(lambda count=count: site.process.output().count('"serving"') >= count)  # type: ignore[misc]
    await progress()
    stop.set()
    await asyncio.gather(*writing)
    for session_id in sessions:
        found = [one.event_id for one in await runtime.events(session_id) if one.type == "order.placed"]
        assert found == [f"{session_id}.{number}" for number in range(counts[session_id])]


@pytest.mark.rule("R14", "R15", "R22")
@pytest.mark.case("B97")
async def test_subscribers_of_both_processes_get_all_events_and_live_deltas_and_resume(runtime_site: Site) -> None:
    site = runtime_site
    await site.reach_both()
    world = World(site)
    held = await world.lease()
    session_id = held.run.session_id
    async with AsyncExitStack() as stack:
        extent = {"session_id": session_id, "include_live": True, "from_now": True}
        feeds = [
            await stack.enter_async_context(subscribed(channel, world.metadata, **extent)) for channel in site.channels
        ]
        for feed in feeds:
            await feed.until("bookmark")
        # Each connection in turn writes and publishes; every feed gets all of it, whichever process it is on.
        for number, channel in enumerate(site.channels):
            pinned = Pinned(site, channel, **world.values)
            await append(pinned, session_id, f"order.{number}")
            assert [(await feed.event()).type for feed in feeds] == [f"order.{number}"] * len(feeds)
            publisher = Publisher(pinned)
            publisher.send(observation(number + 1), lease=held.lease)
            assert [(await feed.until("live")).index for feed in feeds] == [number + 1] * len(feeds)
            await publisher.finish()
        site.process.signal(signal.SIGTERM)
        assert await asyncio.gather(*map(failure, feeds)) == [grpc.StatusCode.UNAVAILABLE] * len(feeds)
        assert all(feed.cursor for feed in feeds), "each ends where it can be resumed"
        assert await site.process.wait() == 0
    assert "Traceback" not in site.process.output()


@pytest.mark.rule("R22", "P1")
async def test_up_serves_all_four_in_two_processes(processes: Processes, databases: Databases) -> None:
    url = await databases.migrated(" ".join(SERVICES), migrate_all)
    process, address = await processes.daemon(
        "up", "--database", url, "--processes", "2", "--metrics-listen", "127.0.0.1:0", "--log-level", "ERROR"
    )
    line = await process.printed(
        r"is ready on (\S+) \(.*; postgresql\), HTTP on \S+, 2 processes with metrics on \d+, \d+$"
    )
    assert line[1] == address
    assert process.output().count("is ready on") == 1

    site = Site(process, address, None)
    await site.reach_both()
    runtime = Runtime(site)
    task = await runtime.submit()
    held = await runtime.acquire(task.queue)
    assert held is not None
    await runtime.work(held, ended=SUCCEEDED)
    assert (await runtime.wait(task.task_id)).state == task_pb2.TASK_STATE_COMPLETED

    async def is_summed_up() -> bool:
        listing = summary_service_pb2.ListSessionSummariesRequest()
        page = await runtime.call("SummaryService.ListSessionSummaries", listing)
        return [one.session_id for one in page.sessions] == [task.session_id]

    await eventually(is_summed_up)
    metadata = scope(**runtime.world.values)
    mine = (await upload(ArtifactServiceStub(site.channels[0]), metadata, b"kept")).artifact_id
    for channel in site.channels:
        assert await download(ArtifactServiceStub(channel), metadata, mine) == b"kept"

    servers = site.servers
    await site.close()
    await process.kill()
    # Processes whose parent is gone stop by themselves.
    await eventually(lambda: not any(map(is_alive, servers)), 60)
    await databases.drop(url)
