"""The commit pipeline: batches independent commits into few transactions (R1, R2).

Every change of a thread goes through here. `Pipeline.submit` is the way in for commands, `acquiring` for workers that
wait for a run, `heartbeats` for what is no commit at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from threadkeep_chassis.database import Database, Writer
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.domain.commands import Command
from threadkeep_runtime.domain.values import partition_of
from threadkeep_runtime.pipeline.acquiring import Acquired, Acquiring, Waiter
from threadkeep_runtime.pipeline.batcher import Batcher
from threadkeep_runtime.pipeline.failpoints import Failpoints
from threadkeep_runtime.pipeline.heartbeats import Heartbeats
from threadkeep_runtime.pipeline.metrics import PipelineMetrics
from threadkeep_runtime.pipeline.transaction import Transactor
from threadkeep_runtime.pipeline.work import Outcome, Render, Request, Work, clock_of, due_by
from threadkeep_runtime.store.apply import Known

_log = structlog.get_logger("threadkeep.pipeline")

__all__ = [
    "Acquired",
    "Failpoints",
    "Outcome",
    "Pipeline",
    "PipelineMetrics",
    "PipelineSettings",
    "Render",
    "Request",
    "Waiter",
    "Work",
]


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Bounds of the pipeline."""

    corridors: int = 2
    """Transactions under way at once; at most as many as there are partitions."""
    max_batch_commits: int = 64
    max_batch_bytes: int = 1024 * 1024
    """A larger commit goes alone: a row of 8 MiB holds the counter for tens of milliseconds."""
    max_pending_commits: int = 4096
    """Per corridor; more is RESOURCE_EXHAUSTED."""
    max_waiting_workers: int = 10_000
    poll_seconds: float = 2.0
    """How often the queue is looked at without a signal."""
    retries: int = 10
    """How often a batch is replayed after a collision before CONTENTION."""


class Pipeline:
    """The corridors; each serves a fixed part of the log partitions, the same part in every replica."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        partitions: int,
        new_id: Callable[[], str],
        metrics: PipelineMetrics,
        settings: PipelineSettings,
        failpoints: Failpoints,
    ) -> None:
        self.partitions = partitions
        self.metrics = metrics
        self.heartbeats = Heartbeats(database)
        self._database = database
        self._signals = signals
        self._settings = settings
        self.failpoints = failpoints
        self._transactor = Transactor(partitions, new_id, clock_of(database), Known())
        self._batchers: list[Batcher] = []
        self._writers: list[Writer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.acquiring: Acquiring

    async def start(self, loops: Loops) -> None:
        """Opens the corridors; their tasks belong to `loops`."""
        settings = self._settings
        for corridor in range(min(settings.corridors, self.partitions)):
            batcher = Batcher(
                corridor,
                await self._writer(),
                self._transactor,
                self._signals.notify,
                self.failpoints,
                self.metrics,
                max_batch_commits=settings.max_batch_commits,
                max_batch_bytes=settings.max_batch_bytes,
                max_pending=settings.max_pending_commits,
                retries=settings.retries,
            )
            self._batchers.append(batcher)
            self._tasks.append(loops.spawn(f"pipeline-{corridor}", batcher.run()))
        self.acquiring = Acquiring(
            await self._writer(),
            self._transactor,
            due_by(self._database),
            self._signals,
            self.metrics,
            poll_seconds=settings.poll_seconds,
            max_waiting=settings.max_waiting_workers,
            retries=settings.retries,
            give_up=self._give_up,
        )
        self._tasks.append(loops.spawn("acquiring", self.acquiring.run()))
        self._tasks.append(loops.spawn("heartbeats", self.heartbeats.run()))

    async def submit(self, work: Work) -> Outcome:
        """Commits. Returns the response, or raises the refusal. The commit goes on if the caller stops waiting."""
        partition = partition_of(work.command.thread_key, self.partitions)
        self._batchers[partition % len(self._batchers)].put(work)
        outcome = await asyncio.shield(work.done)
        if isinstance(outcome, ThreadkeepError):
            raise outcome
        return outcome

    async def _give_up(self, command: Command) -> None:
        """Commits on the server's own behalf; that it can't be done is logged, and no reason to stop."""
        try:
            await self.submit(Work(command))
        except ThreadkeepError as error:
            _log.warning("giving up failed", kind=command.kind, reason=error.reason)

    async def close(self) -> None:
        """Finishes what waits and closes the corridors."""
        for batcher in self._batchers:
            batcher.close()
        if self._tasks:
            self.acquiring.close()
            self.heartbeats.close()
            await asyncio.wait(self._tasks, timeout=10)
        for writer in self._writers:
            await writer.close()

    async def _writer(self) -> Writer:
        writer = await self._database.dedicated()
        self._writers.append(writer)
        return writer
