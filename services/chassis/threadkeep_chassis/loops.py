"""One owner for background work: starts it, restarts what crashes, and stops all of it. No fire and forget."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from prometheus_client import Counter, Gauge, Histogram

from threadkeep_chassis.errors import Unavailable
from threadkeep_chassis.logs import fault_facts

CRASHES = Counter("threadkeep_loop_crashes", "Background loops that failed and were started again", ["loop"])

SECONDS = Histogram(
    "threadkeep_loop_seconds", "Duration of one turn of a repeated loop that did not fail", ["loop"],
    buckets=(0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 600),
)  # fmt: skip
LAST_DONE = Gauge("threadkeep_loop_last_done_timestamp_seconds", "When a loop's last turn was done", ["loop"])

_log = structlog.get_logger("threadkeep.loops")

Work = Callable[[], Awaitable[Any]]


class Loops:
    """The background loops of one service. Add them, start them with the service, stop them with it."""

    def __init__(self) -> None:
        self._works: list[tuple[str, Work]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = asyncio.Event()
        """Set when the loops shall come to their end; long-running work looks at it between two steps."""

    def add(self, name: str, work: Work) -> None:
        """Adds work that runs until `stopping` is set. If it fails or returns, it is started again, with backoff."""
        self._works.append((name, work))

    def every(self, name: str, seconds: float, work: Work) -> None:
        """Adds work that is done again and again, `seconds` (with a tenth of jitter) after it was done."""

        async def repeat() -> None:
            while not self.stopping.is_set():
                started = time.perf_counter()
                await work()
                SECONDS.labels(name).observe(time.perf_counter() - started)
                LAST_DONE.labels(name).set_to_current_time()
                await self.pause(seconds * random.uniform(0.9, 1.1))

        self.add(name, repeat)

    async def pause(self, seconds: float) -> None:
        """Sleeps, but not beyond the stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass

    async def start(self) -> None:
        """Starts what was added."""
        for name, work in self._works:
            self._own(asyncio.create_task(self._keep(name, work), name=name))

    def spawn(self, name: str, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Runs something once, owned: a failure is logged, the stop waits for it."""

        async def once() -> Any:
            try:
                return await work
            except Exception as error:
                _log.error("task failed", loop=name, **fault_facts(error))
                raise

        task = asyncio.create_task(once(), name=name)
        self._own(task)
        # Retrieves the exception, which is logged already, so that asyncio does not complain about it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def stop(self, grace_seconds: float = 3.0) -> None:
        """Asks the loops to end, and cancels those that don't within the grace."""
        self.stopping.set()
        tasks = list(self._tasks)
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _own(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, name: str, work: Work) -> None:
        delay = 0.1
        while not self.stopping.is_set():
            started = asyncio.get_running_loop().time()
            try:
                await work()
            except Unavailable as error:
                # The database or a peer is away: expected, and over some time.
                _log.warning("loop waits", loop=name, reason=error.reason)
            except Exception as error:
                CRASHES.labels(name).inc()
                _log.error("loop failed", loop=name, **fault_facts(error))
            if self.stopping.is_set():
                return
            if asyncio.get_running_loop().time() - started > 30:
                delay = 0.1
            await self.pause(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, 5.0)
