"""What a run measures on: PostgreSQL from the wheel, the server in its own process, and this process as the load."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import grpc

from tests.benchmarks.echo import BELL, HEAR, STREAM, UNARY
from tests.support.databases import Databases
from tests.support.suite import migrate_one

ROOT = Path(__file__).resolve().parents[2]


class Stage:
    """A running server on a fresh database. It is what `tests.support` calls a suite."""

    def __init__(
        self,
        services: Sequence[str],
        environment: Mapping[str, str] | None = None,
        databases: Databases | None = None,
    ) -> None:
        """`databases`: where the fresh one is made; None: on a PostgreSQL of its own."""
        self.services = tuple(services)
        self._environment = dict(environment or {})
        self._databases = databases
        self._is_guest = databases is not None
        self._process: asyncio.subprocess.Process | None = None
        self._channel: grpc.aio.Channel | None = None
        self.url = ""
        self.address = ""

    async def open(self) -> None:
        """Starts everything."""
        self._databases = self._databases or Databases()
        self.url = await self._databases.migrated("bench " + " ".join(self.services), self._migrate)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.benchmarks.server",
            self.url,
            *self.services,
            cwd=ROOT,
            env={**os.environ, **self._told()},
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.address = (await self._process.stdout.readline()).decode().strip()
        if not self.address:
            raise RuntimeError("the server did not start")
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(self.address, options=unlimited)

    async def close(self) -> None:
        """Stops everything."""
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        if self._databases is not None and self._is_guest:
            await self._databases.drop(self.url)
        elif self._databases is not None:
            self._databases.close()

    async def _migrate(self, url: str) -> None:
        for service in self.services:
            await migrate_one(url, service)

    def channel(self, service: str = "runtime") -> grpc.aio.Channel:
        """The channel; all services are behind it."""
        assert self._channel is not None
        return self._channel

    @property
    def databases(self) -> Databases:
        """The PostgreSQL that it runs on, for another stage beside it."""
        assert self._databases is not None
        return self._databases

    async def empty_database(self) -> str:
        """The address of another database on the same PostgreSQL, for a baseline of its own."""
        assert self._databases is not None
        return await self._databases.empty("postgres")

    async def database(self, schema: str) -> asyncpg.Connection:
        """A bare driver connection to a service's schema."""
        return await asyncpg.connect(self.url, server_settings={"search_path": schema})

    @property
    def echo(self) -> Any:
        """Baseline E: `await stage.echo(request_bytes)`."""
        return self.channel().unary_unary(UNARY)

    @property
    def echo_stream(self) -> Any:
        """Baseline S: `async for message in stage.echo_stream(b'{"count": 10, "size": 1024}')`."""
        return self.channel().unary_stream(STREAM)

    @property
    def bell(self) -> Any:
        """Rings: `await stage.bell(message)` puts that message on every stream that hears it."""
        return self.channel().unary_unary(BELL)

    @property
    def hear(self) -> Any:
        """Baseline S on many streams: `stage.hear(b"")` gives an empty message, then what the bell is rung with."""
        return self.channel().unary_stream(HEAR)

    def resident_bytes(self) -> int:
        """Memory that the server process holds now."""
        return self._memory("VmRSS")

    def forget_peak(self) -> None:
        """From now on `peak_bytes` tells of what comes."""
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The most memory that the server process held since `forget_peak`."""
        return self._memory("VmHWM")

    def _memory(self, field: str) -> int:
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith(field))
        return int(kilobytes) * 1024

    def folder(self) -> Path:
        """A new folder on the database's disk."""
        assert self._databases is not None
        return self._databases.folder()

    def _told(self) -> dict[str, str]:
        folder = str(self.folder()) if any("{folder}" in value for value in self._environment.values()) else ""
        return {name: value.replace("{folder}", folder) for name, value in self._environment.items()}

    def flush_seconds(self) -> float:
        """The machine's own flush time: the median of 20 writes of 8 KiB with fsync, beside the database."""
        path = self.folder() / "flush"
        times = []
        with path.open("wb", buffering=0) as file:
            for _ in range(20):
                started = time.perf_counter()
                file.write(bytes(8192))
                os.fsync(file.fileno())
                times.append(time.perf_counter() - started)
        return sorted(times)[10]
