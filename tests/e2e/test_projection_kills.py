"""Replicas of the projection, the runtime and the database die by SIGKILL, one after the other, under load.

What was acknowledged is projected afterwards, once and in its order, and nothing lags. A seed draws who dies when;
`KILL_SEED` repeats one, `PROJECTION_KILLS` says how many die (50 for a long run).
"""

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator

import asyncpg
import grpc
import pytest

from tests.support.calls import error_details, grant_all
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.messages import append
from tests.support.mortal import OPTIONS
from tests.support.postgres import Postgres
from tests.support.processes import Process, Processes
from tests.support.projection import all_messages, fresh
from tests.support.runtime import Runtime, commit
from tests.support.suite import migrate_one
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2
from threadkeep.runtime.v1 import session_service_pb2

KILLS = int(os.environ.get("PROJECTION_KILLS", "3"))
SESSIONS = 6
PATIENCE = 120.0
PEERS = {"config": (), "runtime": ("config",), "projection": ("runtime",), "second": ("runtime",)}
TABLES = ("sessions", "session_entries", "tasks", "task_entries", "runs", "messages", "inputs", "poison_events")


class Town:
    """A database server, a runtime and two replicas of the projection, each a process that can die."""

    def __init__(self, processes: Processes) -> None:
        self.postgres = Postgres()
        self.url = ""
        self.addresses: dict[str, str] = {}
        self._processes = processes
        self._running: dict[str, Process] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def start(self) -> None:
        """Prepares the database and starts all."""
        self.url = await self.postgres.empty_database()
        for name in PEERS:
            if name != "second":
                await migrate_one(self.url, name)
            await self.serve(name)

    async def serve(self, name: str) -> None:
        """Starts a service, where it was before."""
        service = "projection" if name == "second" else name
        peers = [part for peer in PEERS[name] for part in (f"--{peer}-address", self.addresses[peer])]
        more = ("--set", "projection_lease_ttl_seconds=1") if service == "projection" else ()
        self._running[name], self.addresses[name] = await self._processes.daemon(
            "serve", service, "--database", self.url, *peers, *more, "--log-level", "ERROR",
            listen=self.addresses.get(name, "127.0.0.1:0"),
        )  # fmt: skip

    async def kill(self, name: str) -> None:
        """Kills it, and starts it again."""
        if name == "database":
            await self.postgres.kill()
            await self.postgres.restart()
        else:
            await self._running[name].kill()
            await self.serve(name)

    def channel(self, service: str) -> grpc.aio.Channel:
        """The channel to a service; it finds it again after a restart."""
        if service not in self._channels:
            self._channels[service] = grpc.aio.insecure_channel(self.addresses[service], OPTIONS)
        return self._channels[service]

    async def rows(self) -> dict[str, list[str]]:
        """Every row that is projected, as text."""
        connection = await asyncpg.connect(self.url)
        try:
            return {
                table: [
                    row[0] for row in await connection.fetch(f"SELECT t::text FROM projection.{table} t ORDER BY 1")
                ]
                for table in TABLES
            }
        finally:
            await connection.close()

    async def close(self) -> None:
        """Ends everything."""
        for channel in self._channels.values():
            await channel.close()
        await self._processes.close()
        self.postgres.close()


class Load:
    """Sessions that get one message after the other; each request is sent until it is answered."""

    def __init__(self, runtime: Runtime) -> None:
        self.counts: dict[str, int] = {}
        self.has_ended = False
        self._runtime = runtime

    @property
    def count(self) -> int:
        """How many messages were acknowledged."""
        return sum(self.counts.values())

    async def talk(self) -> None:
        """Commits to a session of its own until the load ends."""
        session_id = fresh_id("session")
        await self._runtime.create(session_id)
        bind = self._runtime.world.bind("ThreadService.Commit")
        for number in itertools.count(1):
            name = f"{session_id}.{number}"
            request = commit(session_id, request_id=name, messages=append(name))
            while True:
                try:
                    await bind(request, metadata=self._runtime.metadata, timeout=PATIENCE, wait_for_ready=True)
                    break
                except grpc.RpcError as error:
                    if error_details(error).code != grpc.StatusCode.UNAVAILABLE:
                        raise
            self.counts[session_id] = number
            if self.has_ended:
                return

    async def grow(self, more: int) -> None:
        """Waits for so many more."""
        wanted = self.count + more
        await eventually(lambda: self.count >= wanted, PATIENCE)


@pytest.fixture
async def town(processes: Processes) -> AsyncIterator[Town]:
    made = Town(processes)
    try:
        await made.start()
        yield made
    finally:
        await made.close()


async def _kill(town: Town, load: Load, chance: random.Random) -> list[str]:
    """One death after the other while the load grows; then the load ends. Who died."""
    await load.grow(SESSIONS)
    victims: list[str] = []
    round_: list[str] = []
    for index in range(KILLS):
        if not index % 3:
            round_ = [chance.choice(("projection", "second")), "runtime", "database"]
            chance.shuffle(round_)
        await load.grow(chance.randrange(1, 60))
        victims.append(round_[index % 3])
        print(f"  {load.count} acknowledged: {victims[-1]} dies")
        await town.kill(victims[-1])
    await load.grow(SESSIONS)
    load.has_ended = True
    return victims


@pytest.mark.rule("P1", "P3", "P5", "R14")
async def test_kills_of_projection_runtime_and_database_lose_double_and_reorder_nothing(town: Town) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    runtime = Runtime(town, test=fresh_id("kills"))  # type: ignore[arg-type]
    world: World = runtime.world
    load = Load(runtime)
    talking = asyncio.gather(*(load.talk() for _ in range(SESSIONS)))
    killing = asyncio.ensure_future(_kill(town, load, chance))
    try:
        await asyncio.wait({talking, killing}, return_when=asyncio.FIRST_COMPLETED)
        if talking.done():
            talking.result()
        victims = await killing
        await talking
    finally:
        talking.cancel()
        killing.cancel()

    async def status() -> admin_service_pb2.GetStatusResponse:
        return await world.call("ProjectionAdminService.GetStatus", admin_service_pb2.GetStatusRequest())

    events = 0
    for session_id, count in load.counts.items():
        last = f"{session_id}.{count + 1}"
        cursor = (await runtime.commit(session_id, messages=append(last))).receipt.cursor
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        events += (await world.call("SessionService.GetSession", request)).session.latest_event_sequence
        found = await all_messages(world, session_id, fresh(cursor), page_size=1000)
        assert [(one.position, one.message_id) for one in found] == [
            (number, f"{session_id}.{number}") for number in range(1, count + 2)
        ]
    assert sum(one.applied_count for one in (await status()).shares) == events, "each event once"

    async def follows() -> bool:
        shares = (await status()).shares
        return len(shares) == 8 and all(one.owner and one.lag.ToMilliseconds() < 2000 for one in shares)

    await eventually(follows, PATIENCE)
    live = await town.rows()
    rebuild = admin_service_pb2.RebuildRequest(request_id=fresh_id(), everything=True)
    call = world.bind("ProjectionAdminService.Rebuild")(
        rebuild, metadata=world.metadata + grant_all(), timeout=PATIENCE
    )
    assert [frame async for frame in call][-1].session_count == SESSIONS
    assert await town.rows() == live
    print(f"  {len(victims)} died, {load.count} messages, {events} events, all projected once and in order")
