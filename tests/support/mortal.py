"""A suite of real `threadkeepd` processes whose runtime dies by SIGKILL and comes back on its address.

`up` is one process and dies as a whole; of the split suite only the runtime's process dies.
"""

import asyncio
import contextlib
import signal
from typing import Any

import grpc

from tests.support.databases import Databases
from tests.support.processes import Process, Processes
from tests.support.suite import SERVICES, migrate_one
from threadkeep.common.v1.server_info_service_pb2 import GetServerInfoRequest
from threadkeep.common.v1.server_info_service_pb2_grpc import ServerInfoServiceStub

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
]


class MortalSuite:
    """Four services over one set of databases, and a channel to each."""

    def __init__(self, processes: Processes, databases: Databases, backend: str, topology: str) -> None:
        self.backend, self.topology = backend, topology
        self.addresses: dict[str, str] = {}
        """Where each service listens; the same after every restart."""
        self.life = 0
        """Counts the starts of the runtime."""
        self._processes, self._databases = processes, databases
        self._where: tuple[str, ...] = ()
        self._url: str | None = None
        self._runtime: Process | None = None
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def start(self) -> None:
        """Prepares the databases and starts the services."""
        if self.backend == "postgres":
            self._url = await self._databases.migrated(" ".join(SERVICES), self._migrate_all)
            self._where = ("--database", self._url)
        else:
            folder = self._databases.folder()
            for service in SERVICES:
                await migrate_one(f"sqlite:///{folder / service}.db", service)
            self._where = ("--data-dir", str(folder))
        if self.topology == "embedded":
            await self.resume()
            return
        for service in SERVICES:
            if service == "runtime":
                await self.resume()
            else:
                _, self.addresses[service] = await self._daemon("serve", service, *self._peers(service))

    async def resume(self, failpoint: str = "") -> None:
        """Starts the process with the runtime, where it was before; it kills itself at the failpoint, if one is given.

        Raises RuntimeError when it does not come up.
        """
        self.life += 1
        alone = ("serve", "runtime", *self._peers("runtime")) if self.topology == "split" else ("up",)
        mine = ("runtime",) if self.topology == "split" else SERVICES
        listen = self.addresses.get("runtime", "127.0.0.1:0")
        process, address = await self._daemon(*alone, "--set", f"failpoint={failpoint}", listen=listen)
        self._runtime = process
        self.addresses.update(dict.fromkeys(mine, address))
        if not failpoint and address in self._channels:
            # It may be between two attempts, and would fail a call with the error of the last one.
            await asyncio.wait_for(self._channels[address].channel_ready(), 60)

    def strike(self) -> None:
        """Sends SIGKILL to the runtime, and does not wait."""
        self._process.signal(signal.SIGKILL)

    async def died(self) -> None:
        """Waits for the runtime's death, which must be by SIGKILL, and until all calls under way have learned of it."""
        code = await self._process.wait(120)
        assert code == -signal.SIGKILL, f"it ended with {code}:\n{self._process.output()}"
        # Events of one channel come in order: when this call fails, those before it have.
        with contextlib.suppress(grpc.RpcError):
            await ServerInfoServiceStub(self.channel("runtime")).GetServerInfo(GetServerInfoRequest(), timeout=60)
            raise AssertionError("it answered after its death")

    def channel(self, service: str) -> grpc.aio.Channel:
        """The channel to a service; it finds it again after a restart."""
        address = self.addresses[service]
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, OPTIONS)
        return self._channels[address]

    async def close(self) -> None:
        """Closes the channels, kills the processes and removes the database."""
        for channel in self._channels.values():
            await channel.close()
        await self._processes.close()
        if self._url is not None:
            await self._databases.drop(self._url)

    @property
    def _process(self) -> Process:
        assert self._runtime is not None, "it was not started"
        return self._runtime

    def _peers(self, service: str) -> tuple[str, ...]:
        peer = {"runtime": "config", "artifacts": "runtime", "projection": "runtime"}.get(service)
        return () if peer is None else (f"--{peer}-address", self.addresses[peer])

    async def _daemon(self, *arguments: str, listen: str = "127.0.0.1:0") -> tuple[Process, str]:
        return await self._processes.daemon(*arguments, *self._where, "--log-level", "ERROR", listen=listen)

    async def _migrate_all(self, url: str) -> None:
        for service in SERVICES:
            await migrate_one(url, service)
