"""A corridor: takes what is waiting, commits it as one batch, answers, and takes the next.

While a batch is under way the next one gathers, so load makes batches larger, not waits longer. A batch runs in this
task whoever stops waiting for it: a caller's deadline never harms its neighbours.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

import structlog
from sqlalchemy.engine import Connection as SyncConnection

from threadkeep_chassis.database import (
    TransactionLost,
    Writer,
    is_data_error,
    is_serialization,
    is_unique_violation,
    shared_write,
)
from threadkeep_chassis.errors import (
    CommitUnknown,
    Contention,
    FieldInvalid,
    Internal,
    LimitExceeded,
    ShuttingDown,
    ThreadkeepError,
    Unavailable,
)
from threadkeep_chassis.logs import fault_facts
from threadkeep_runtime.pipeline.failpoints import AFTER_COMMIT, BEFORE_COMMIT, BEFORE_FIRST_STATEMENT, Failpoints
from threadkeep_runtime.pipeline.metrics import PipelineMetrics
from threadkeep_runtime.pipeline.transaction import Transactor, Written
from threadkeep_runtime.pipeline.work import Work

_log = structlog.get_logger("threadkeep.pipeline")


class Batcher:
    """A queue and its one writer."""

    def __init__(
        self,
        corridor: int,
        writer: Writer,
        transactor: Transactor,
        notify: Callable[..., None],
        failpoints: Failpoints,
        metrics: PipelineMetrics,
        *,
        max_batch_commits: int,
        max_batch_bytes: int,
        max_pending: int,
        retries: int,
    ) -> None:
        self._name = str(corridor)
        self._writer = writer
        self._transactor = transactor
        self._notify = notify
        self._failpoints = failpoints
        self._metrics = metrics
        self._max_commits = max_batch_commits
        self._max_bytes = max_batch_bytes
        self._max_pending = max_pending
        self._retries = retries
        self._waiting: deque[Work] = deque()
        self._arrived = asyncio.Event()
        self._closing = False

    def put(self, work: Work) -> None:
        """Queues work. Raises LimitExceeded when too much waits, ShuttingDown when the pipeline closes."""
        if self._closing:
            raise ShuttingDown()
        if len(self._waiting) >= self._max_pending:
            raise LimitExceeded(
                "max_pending_commits", self._max_pending, len(self._waiting) + 1, "Slow down, or add replicas."
            )
        self._waiting.append(work)
        self._arrived.set()

    def close(self) -> None:
        """Takes no more; `run` ends once what waits is done."""
        self._closing = True
        self._arrived.set()

    async def run(self) -> None:
        """Commits batch after batch until `close`."""
        try:
            while self._waiting or not self._closing:
                if not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                batch = self._pick()
                self._metrics.waiting(self._name, len(self._waiting))
                await self._commit(batch)
        finally:
            self._closing = True
            for work in self._waiting:
                work.settle(ShuttingDown())
            self._waiting.clear()

    def _pick(self) -> list[Work]:
        """The next batch, in order of arrival. A thread's second command, or a request's copy, waits for another."""
        batch: list[Work] = []
        deferred: list[Work] = []
        threads: set[str] = set()
        requests: set[tuple[str, str]] = set()
        size = 0
        looked_at = 0
        while self._waiting and len(batch) < self._max_commits and looked_at < 4 * self._max_commits:
            work = self._waiting.popleft()
            looked_at += 1
            request = None if work.request is None else (work.request.receipt_key, work.request.request_id)
            is_free = work.command.thread_key not in threads and (request is None or request not in requests)
            threads.add(work.command.thread_key)
            if not is_free:
                deferred.append(work)
                continue
            if batch and size + work.size > self._max_bytes:
                deferred.append(work)
                break
            if request is not None:
                requests.add(request)
            batch.append(work)
            size += work.size
        self._waiting.extendleft(reversed(deferred))
        return batch

    async def _commit(self, batch: Sequence[Work]) -> None:
        """Brings a batch to its end: every piece of work is settled when this returns."""
        for attempt in range(self._retries + 1):
            try:
                written = await self._attempt(batch)
            except CommitUnknown as unknown:
                self._settle_all(batch, unknown)
                return
            except TransactionLost as lost:
                # Nothing was committed; a new connection may do better.
                if attempt >= 2:
                    self._settle_all(batch, lost)
                    return
            except Unavailable as unavailable:
                self._settle_all(batch, unavailable)
                return
            except Exception as error:
                if not is_serialization(error) and len(batch) > 1:
                    # Somebody's data is at fault, or we are: each alone, so that only the guilty one fails.
                    self._metrics.replayed_alone(self._name)
                    for work in batch:
                        await self._commit([work])
                    return
                refusal = self._refusal(error, attempt)
                if refusal is not None:
                    self._settle_all(batch, refusal)
                    return
            else:
                for work, outcome in zip(batch, written.outcomes, strict=True):
                    work.settle(outcome)
                return
            self._metrics.retried(self._name)
            await asyncio.sleep(random.uniform(0, min(0.2, 0.002 * 2**attempt)))
        self._settle_all(batch, Contention())

    async def _attempt(self, batch: Sequence[Work]) -> Written:
        def process(connection: SyncConnection) -> Written:
            self._failpoints.reach(BEFORE_FIRST_STATEMENT)
            return self._transactor.process(connection, batch)

        spans = shared_write([work.span for work in batch], self._writer.backend)
        with self._metrics.timed(self._name, len(batch)), spans:
            async with self._writer.transaction() as connection:
                written = await connection.run(process)
                connection.note_transaction_id(written.transaction_id)
                if written.applied:
                    self._failpoints.reach(BEFORE_COMMIT)
        if written.applied:
            self._failpoints.reach(AFTER_COMMIT)
            self._after(written)
        return written

    def _after(self, written: Written) -> None:
        """What follows a commit. It has happened: nothing that fails here may make anyone try again."""
        try:
            self._transactor.known.learn([applied.decision for applied in written.applied])
            self._notify(*sorted(written.topics))
        except Exception as error:
            _log.error("signalling failed", corridor=self._name, **fault_facts(error))

    def _refusal(self, error: Exception, attempt: int) -> ThreadkeepError | None:
        """What the one who failed alone is told; None if another attempt may succeed."""
        if is_serialization(error):
            return None
        if isinstance(error, ThreadkeepError):
            return error
        if is_unique_violation(error):
            # Somebody else took the id, or answered the same request, meanwhile: the next view shows it.
            return None if attempt < 5 else Contention()
        if is_data_error(error):
            # Such as a key longer than the indexes take. The database does not say which field it came from.
            return FieldInvalid("request", "holds a value that the database can't hold; shorten its names and keys")
        _log.error("commit failed", corridor=self._name, **fault_facts(error))
        return Internal()

    def _settle_all(self, batch: Sequence[Work], refusal: ThreadkeepError) -> None:
        for work in batch:
            work.settle(refusal)
