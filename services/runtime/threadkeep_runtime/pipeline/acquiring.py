"""Leases queued runs to waiting workers: one look at the queue serves all who wait for the same (R8).

A lease is a commit like any other, decided and written by the same functions. What differs is the way in: the thread's
row is taken with SKIP LOCKED, so that replicas don't queue up behind each other.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog
from sqlalchemy.engine import Connection as SyncConnection

from threadkeep_chassis.database import (
    TransactionLost,
    Writer,
    is_serialization,
    is_unique_violation,
)
from threadkeep_chassis.errors import (
    CommitUnknown,
    Contention,
    Internal,
    LimitExceeded,
    ShuttingDown,
    ThreadkeepError,
    Unavailable,
)
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.signals import Signals, Subscription
from threadkeep_runtime.domain.commands import Command, LeaseRun, SetAside
from threadkeep_runtime.domain.decide import decide
from threadkeep_runtime.domain.values import SYSTEM, Actor, Run, Ticket, Trace
from threadkeep_runtime.pipeline.metrics import PipelineMetrics
from threadkeep_runtime.pipeline.transaction import Transactor, answer_to, find_answers, receipt_row
from threadkeep_runtime.pipeline.work import Outcome, Request
from threadkeep_runtime.store.apply import Applied, apply_decisions, insert_receipts
from threadkeep_runtime.store.queue import Now, QueueFilter, load_details, lock_candidates
from threadkeep_runtime.store.views import views_of_locked

_log = structlog.get_logger("threadkeep.acquiring")

MOST_AT_ONCE = 16
ASIDE_SECONDS = 60.0
"""How long a run that can't be read, and can't be ended either, is passed by before it is tried again."""
MOST_ASIDE = 256


class Acquired(NamedTuple):
    """A leased run and what a worker needs to know."""

    applied: Applied
    """Its decision's task comes with the input."""
    answered: Sequence[Ticket]
    manifest: bytes
    scope: bytes
    """The scope's canonical JSON."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A worker that waits for a run."""

    wanted: QueueFilter
    worker_id: str
    ttl_seconds: float
    request: Request
    trace: Trace
    render: Callable[[Acquired], bytes]
    done: asyncio.Future[Outcome | ThreadkeepError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    attempt: asyncio.Future[None] | None = None
    """Done when the transaction that is under way, and may give it a run, has ended."""
    looked: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done once the queue was looked at for it: who won't wait at all still gets what is there."""

    def was_looked_for(self) -> None:
        """Marks that the queue was looked at."""
        if not self.looked.done():
            self.looked.set_result(None)


class Acquiring:
    """The waiting workers and the one task that serves them."""

    def __init__(
        self,
        writer: Writer,
        transactor: Transactor,
        due: Callable[[], Now],
        signals: Signals,
        metrics: PipelineMetrics,
        *,
        poll_seconds: float,
        max_waiting: int,
        retries: int,
        give_up: Callable[[Command], Awaitable[None]],
    ) -> None:
        """`give_up` commits that a run can't be given to anybody."""
        self._give_up = give_up
        self._tried: list[Run] = []
        self._aside: OrderedDict[str, float] = OrderedDict()
        """Threads whose queued run can't be read, and until when they are passed by."""
        self._writer = writer
        self._transactor = transactor
        self._due = due
        self._signals = signals
        self._metrics = metrics
        self._poll_seconds = poll_seconds
        self._max_waiting = max_waiting
        self._retries = retries
        self._waiting: dict[Waiter, None] = {}
        self._subscription: Subscription | None = None
        self._arrived = asyncio.Event()
        self._closing = False

    async def wait(self, waiter: Waiter, seconds: float, ending: asyncio.Future[None] | None = None) -> Outcome | None:
        """Waits for a run at most so long, or until `ending` is done; None without one.

        Once a transaction for the waiter is under way its end is awaited, so that no lease is given to nobody. Raises
        LimitExceeded, RequestIdReused, ShuttingDown, and what a lost database raises.
        """
        if self._closing:
            return None
        if len(self._waiting) >= self._max_waiting:
            raise LimitExceeded(
                "max_waiting_workers", self._max_waiting, len(self._waiting) + 1, "Wait longer per call."
            )
        self._waiting[waiter] = None
        self._wake()
        try:
            awaited: set[asyncio.Future[Any]] = {waiter.done}
            if ending is not None:
                awaited.add(ending)
            await asyncio.wait(awaited, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done.done() and not (ending is not None and ending.done()):
                first_look: set[asyncio.Future[Any]] = {waiter.done, waiter.looked}
                await asyncio.wait(first_look, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done.done() and waiter.attempt is not None:
                await asyncio.wait({waiter.attempt})
        finally:
            self._waiting.pop(waiter, None)
        if not waiter.done.done():
            return None
        outcome = waiter.done.result()
        if isinstance(outcome, ThreadkeepError):
            raise outcome
        return outcome

    async def run(self) -> None:
        """Serves until `close`."""
        async with self._signals.subscribe("queue") as subscription:
            self._subscription = subscription
            while not self._closing:
                if not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                try:
                    await self._serve_all()
                except Exception as error:
                    _log.error("acquiring failed", **fault_facts(error))
                if self._waiting:
                    await subscription.wait(self._poll_seconds * random.uniform(0.8, 1.0))

    def close(self) -> None:
        """Lets those who wait go with nothing."""
        self._closing = True
        self._wake()
        for waiter in list(self._waiting):
            waiter.was_looked_for()
            if waiter.attempt is None and not waiter.done.done():
                waiter.done.set_result(ShuttingDown())

    def _wake(self) -> None:
        self._arrived.set()
        if self._subscription is not None:
            self._subscription.wake()

    async def _serve_all(self) -> None:
        groups: dict[QueueFilter, list[Waiter]] = {}
        for waiter in self._waiting:
            if not waiter.done.done():
                groups.setdefault(waiter.wanted, []).append(waiter)
        for wanted, group in groups.items():
            while group:
                chunk = self._chunk(group)
                served = await self._serve(wanted, chunk)
                for waiter in chunk:
                    waiter.was_looked_for()
                if served < len(chunk):
                    break
            for waiter in group:
                waiter.was_looked_for()

    def _chunk(self, group: list[Waiter]) -> list[Waiter]:
        """The next who shall be served together, taken out of the group; a request that waits twice is served once."""
        chunk: list[Waiter] = []
        requests: set[tuple[str, str]] = set()
        for waiter in list(group):
            key = (waiter.request.receipt_key, waiter.request.request_id)
            if len(chunk) >= MOST_AT_ONCE or key in requests:
                continue
            group.remove(waiter)
            # Those who stopped waiting meanwhile get nothing.
            if waiter in self._waiting:
                requests.add(key)
                chunk.append(waiter)
        return chunk

    async def _serve(self, wanted: QueueFilter, chunk: list[Waiter]) -> int:
        """Gives runs to as many of the chunk as there are; returns how many were answered."""
        if not chunk:
            return 0
        attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for waiter in chunk:
            waiter.attempt = attempt
        outcomes: dict[Waiter, Outcome | ThreadkeepError] = {}
        try:
            outcomes = await self._transact(wanted, chunk)
        except ThreadkeepError as error:
            outcomes = dict.fromkeys(chunk, error)
        except BaseException:
            outcomes = dict.fromkeys(chunk, ShuttingDown())
            raise
        finally:
            for waiter in chunk:
                waiter.attempt = None
                if waiter in outcomes and not waiter.done.done():
                    waiter.done.set_result(outcomes[waiter])
            attempt.set_result(None)
        return len(outcomes)

    async def _transact(self, wanted: QueueFilter, chunk: list[Waiter]) -> dict[Waiter, Outcome | ThreadkeepError]:
        for attempt in range(self._retries + 1):
            try:
                return await self._attempt(wanted, chunk)
            except CommitUnknown:
                raise
            except TransactionLost:
                if attempt >= 2:
                    raise
            except Unavailable:
                raise
            except Exception as error:
                # A taken receipt key: the same request was answered elsewhere, and the next attempt sees it.
                if not is_serialization(error) and not is_unique_violation(error):
                    if len(chunk) > 1 and self._tried:
                        # One of them is at fault: each alone, so that the others get theirs (B65).
                        return await self._one_by_one(wanted, chunk)
                    _log.error("acquiring failed", **fault_facts(error))
                    if not self._tried:
                        raise Internal() from error
                    await self._set_aside(self._tried[0])
                    continue
            await asyncio.sleep(random.uniform(0, min(0.2, 0.002 * 2**attempt)))
        raise Contention()

    async def _one_by_one(self, wanted: QueueFilter, chunk: list[Waiter]) -> dict[Waiter, Outcome | ThreadkeepError]:
        outcomes: dict[Waiter, Outcome | ThreadkeepError] = {}
        for waiter in chunk:
            served = await self._transact(wanted, [waiter])
            if not served:
                break
            outcomes.update(served)
        return outcomes

    async def _set_aside(self, run: Run) -> None:
        """Passes by a run that can't be given to anybody, and ends it if that can be done."""
        self._aside[run.thread_key] = asyncio.get_running_loop().time() + ASIDE_SECONDS
        if len(self._aside) > MOST_ASIDE:
            self._aside.popitem(last=False)
        await self._give_up(
            SetAside(
                scope_key=run.scope_key,
                session_id=run.session_id,
                thread_key=run.thread_key,
                actor=SYSTEM,
                run_id=run.run_id,
            )
        )

    def _passed_by(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        for key in [key for key, until in self._aside.items() if until <= now]:
            del self._aside[key]
        return list(self._aside)

    async def _attempt(self, wanted: QueueFilter, chunk: list[Waiter]) -> dict[Waiter, Outcome | ThreadkeepError]:
        topics: set[str] = set()
        leased = 0
        self._tried = []
        without = self._passed_by()

        def process(connection: SyncConnection) -> tuple[dict[Waiter, Outcome | ThreadkeepError], str]:
            nonlocal leased
            answered = find_answers(connection, [waiter.request for waiter in chunk])
            outcomes: dict[Waiter, Outcome | ThreadkeepError] = {}
            free = []
            for waiter in chunk:
                answer = answer_to(waiter.request, answered)
                if answer is None:
                    free.append(waiter)
                else:
                    outcomes[waiter] = answer
            given, xid = self._lease(connection, wanted, free, without) if free else ([], "")
            leased = len(given)
            rows = []
            for waiter, acquired in given:
                response = waiter.render(acquired)
                outcomes[waiter] = Outcome(response)
                rows.append(receipt_row(waiter.request, response, acquired.applied.decision.now))
                thread = acquired.applied.decision.thread
                if thread is not None:
                    topics.add(f"log/{thread.partition}")
            insert_receipts(connection, rows)
            return outcomes, xid

        async with self._writer.transaction() as connection:
            outcomes, xid = await connection.run(process)
            connection.note_transaction_id(xid)
        if topics:
            self._metrics.leased(leased)
            self._signals.notify(*sorted(topics))
        return outcomes

    def _lease(
        self, connection: SyncConnection, wanted: QueueFilter, waiters: Sequence[Waiter], without: Sequence[str]
    ) -> tuple[list[tuple[Waiter, Acquired]], str]:
        candidates = lock_candidates(connection, wanted, len(waiters), self._due(), without)
        self._tried = [run for _, run in candidates]
        if not candidates:
            return [], ""
        commands = [
            LeaseRun(
                scope_key=run.scope_key,
                session_id=run.session_id,
                thread_key=run.thread_key,
                actor=Actor("WORKER", waiter.worker_id),
                request_id=waiter.request.request_id,
                receipt_key=None if waiter.request.receipt_key == run.scope_key else waiter.request.receipt_key,
                trace=waiter.trace,
                run_id=run.run_id,
                worker_id=waiter.worker_id,
                ttl_seconds=waiter.ttl_seconds,
            )
            for waiter, (_, run) in zip(waiters, candidates, strict=False)
        ]
        locked = {thread.thread_key: thread for thread, _ in candidates}
        transactor = self._transactor
        views = views_of_locked(connection, commands, locked, transactor.partitions, transactor.now)
        decisions = [decide(view, command, transactor.new_id) for view, command in zip(views, commands, strict=True)]
        applied, xid = apply_decisions(connection, decisions, transactor.partitions, transactor.known)
        details = load_details(connection, [run for _, run in candidates])
        given = []
        for waiter, place, (_, run) in zip(waiters, applied, candidates, strict=False):
            task = place.decision.task
            assert task is not None
            given.append(
                (
                    waiter,
                    Acquired(
                        place.with_task(details.tasks[run.thread_key, run.task_id]),
                        details.answered.get(run.task_id, ()),
                        details.manifests[task.manifest_digest],
                        details.scopes[run.scope_key],
                    ),
                )
            )
        return given, xid
