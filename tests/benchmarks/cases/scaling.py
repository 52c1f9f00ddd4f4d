"""How commits grow with server processes behind one port, each against empty calls on as many."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

from tests.benchmarks.harness import Case

CALLERS = 64
GENERATORS = 2
CONNECTIONS = 16
"""Of each generator: the kernel deals out connections, and few would land unevenly."""


class Generator:
    """Load from a process of its own; see tests/benchmarks/load.py."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, address: str, callers: int, connections: int) -> Generator:
        """Starts it; each of its callers has a session of its own."""
        command = [sys.executable, "-m", "tests.benchmarks.load", address, str(callers), str(connections)]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))

    async def rate(self, kind: str, seconds: float) -> float:
        """Calls per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {seconds}\n".encode())
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator ended")
        return float(line)

    async def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


class Scaling1(Case):
    """One process, under the load of the others."""

    name = "scaling.1"
    what = "commits with 1 KiB and 3 events, 64 callers in 2 processes, 1 server process, against empty calls"
    unit = "calls/s"
    target = 0.5
    at_least = True

    async def prepare(self) -> None:
        """The load generators."""
        self.generators = await asyncio.gather(
            *(Generator.start(self.stage.address, CALLERS // GENERATORS, CONNECTIONS) for _ in range(GENERATORS))
        )

    async def _rate(self, kind: str) -> float:
        return sum(await asyncio.gather(*(one.rate(kind, self.scale.seconds) for one in self.generators)))

    async def product(self) -> float:
        """Commits."""
        return await self._rate("commit")

    async def baseline(self) -> float:
        """E, on the same processes."""
        return await self._rate("echo")

    async def clean_up(self) -> None:
        """Ends the generators."""
        for one in self.generators:
            await one.close()


class Scaling2(Scaling1):
    """Two processes."""

    name = "scaling.2"
    what = "the same with 2 server processes, against empty calls on as many"
    environment: ClassVar = {"BENCH_PROCESSES": "2"}


class Scaling4(Scaling1):
    """Four processes."""

    name = "scaling.4"
    what = "the same with 4 server processes, against empty calls on as many"
    environment: ClassVar = {"BENCH_PROCESSES": "4"}
