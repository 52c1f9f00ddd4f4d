"""What it costs to get work done: submit, lease, finish, wait."""

from __future__ import annotations

import asyncio

from tests.benchmarks.harness import Case, median_latency, rate
from tests.support.runtime import SUCCEEDED, Runtime


class SubmitToDone(Case):
    """The whole way of a task."""

    name = "task.16"
    what = "tasks from submission to WaitTask's answer, 16 callers and a worker without LangGraph, against empty calls"
    unit = "calls/s"
    target = 0.05
    at_least = True

    async def prepare(self) -> None:
        """An agent, and 16 places of a worker."""
        self.runtime = Runtime(self.stage)
        await self.runtime.agent()
        self.workers = [asyncio.create_task(self._work()) for _ in range(16)]

    async def _work(self) -> None:
        while True:
            held = await self.runtime.acquire("bench", wait=20)
            if held is not None:
                await self.runtime.work(held, ended=SUCCEEDED)

    async def _task(self) -> None:
        task = await self.runtime.submit(queue="bench")
        await self.runtime.wait(task.task_id)

    async def product(self) -> float:
        """Tasks."""
        return await rate(self.scale.seconds * 2, [self._task] * 16)

    async def baseline(self) -> float:
        """E."""
        echo = self.stage.echo
        request = (await self.runtime.submission(queue="bench")).SerializeToString()
        return await rate(self.scale.seconds, [lambda: echo(request)] * 16)

    async def clean_up(self) -> None:
        """Stops the worker."""
        for worker in self.workers:
            worker.cancel()
        await asyncio.gather(*self.workers, return_exceptions=True)


class AcquireDeep(Case):
    """Length of the queue. Each acquired run goes to the end of its queue again."""

    name = "acquire.deep"
    what = "median AcquireRun with a long queue, against one with 100 queued"
    unit = "s"
    target = 2.0
    at_least = False

    async def prepare(self) -> None:
        """A deep queue and a shallow one."""
        self.runtime = Runtime(self.stage)
        await self.runtime.agent()
        deep = max(2_000, self.scale.rows // 10)
        for queue, count in (("deep", deep), ("shallow", 100 + 60 * (self.scale.pairs + 1))):
            for start in range(0, count, 64):
                await asyncio.gather(*(self.runtime.submit(queue=queue) for _ in range(start, min(count, start + 64))))

    async def _acquire(self, queue: str) -> float:
        return await median_latency(60, lambda: self.runtime.acquire(queue, wait=5))

    async def product(self) -> float:
        """The deep queue."""
        return await self._acquire("deep")

    async def baseline(self) -> float:
        """The shallow one."""
        return await self._acquire("shallow")
