"""Applies a scope's policy: finds what is due and hands it to the pipeline, thread by thread (R19).

Nothing is decided here: a thread is looked at again under its lock, and what is not due any more stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from threadkeep_chassis.database import Connection, Database, SyncConnection
from threadkeep_runtime.commands.deletions import Sweeper
from threadkeep_runtime.domain.commands import Command, DeleteSession, PurgeThread, RemoveCheckpoints
from threadkeep_runtime.domain.errors import LeaseRequired, NothingToRecover, SessionNotFound
from threadkeep_runtime.domain.retention import Policy, Rule
from threadkeep_runtime.domain.values import SYSTEM, thread_key_of
from threadkeep_runtime.pipeline import Pipeline, Work
from threadkeep_runtime.store import purging, reads, relay, retention
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.audit import purge_audit
from threadkeep_runtime.store.retention import DueThread, StoredPolicy

SESSIONS_AT_ONCE = 100
THREADS_AT_ONCE = 200
RECEIPTS_AT_ONCE = 1000
AUDIT_AT_ONCE = 1000
DELIVERED_AT_ONCE = 500
MOST_POLICIES = 1_000_000


@dataclass(slots=True)
class Counts:
    """How much was purged."""

    tasks: int = 0
    sessions: int = 0
    checkpoints: int = 0
    events: int = 0
    receipts: int = 0
    audit: int = 0
    delivered: int = 0


class PurgeMetrics:
    """What purges count (X15)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.purged = Counter("threadkeep_purged", "What retention has removed, by kind", ["kind"], registry=registry)

    def count(self, counts: Counts) -> None:
        """Adds what one purge removed."""
        for kind in Counts.__slots__:
            self.purged.labels(kind).inc(getattr(counts, kind))


async def _go_on() -> None:
    """Nobody else's turn."""


class Purger:
    """The purges of one server."""

    def __init__(
        self,
        database: Database,
        pipeline: Pipeline,
        sweeper: Sweeper,
        receipts_seconds: float,
        delivered_seconds: float,
        metrics: PurgeMetrics,
    ) -> None:
        """How long receipts and delivered messages live where no policy says more, or other."""
        self._delivered_seconds = delivered_seconds
        self._database = database
        self._pipeline = pipeline
        self._sweeper = sweeper
        self._receipts_seconds = receipts_seconds
        self._metrics = metrics

    async def policy(self, scope_key: str) -> StoredPolicy:
        """The scope's policy."""
        return await self._read(retention.find_policy, scope_key)

    async def apply(
        self,
        scope_key: str,
        policy: Policy,
        before_each: Callable[[], Awaitable[None]] = _go_on,
        session_id: str | None = None,
    ) -> Counts:
        """Purges what is due in the scope, or in one session; returns how much that was.

        `before_each` is awaited before each batch; what it raises ends the purge. Raises SessionNotFound, Unavailable.
        """
        counts = Counts()
        try:
            await self._apply(scope_key, policy, counts, before_each, session_id)
        finally:
            self._metrics.count(counts)
        return counts

    async def _apply(
        self,
        scope_key: str,
        policy: Policy,
        counts: Counts,
        before_each: Callable[[], Awaitable[None]],
        session_id: str | None,
    ) -> None:
        if session_id is None:
            await self._purge_sessions(scope_key, policy, counts, before_each)
        elif await self._read(reads.find_session, thread_key_of(scope_key, session_id)) is None:
            raise SessionNotFound()
        await self._purge_threads(scope_key, policy, counts, before_each, session_id)
        await self.sweep_histories(before_each)
        if policy.audit is not None and session_id is None:
            await self._purge_audit(scope_key, policy.audit, counts, before_each)
        if policy.receipts_seconds is not None and session_id is None:
            counts.receipts = await self._purge_receipts((scope_key, policy.receipts_seconds))
        if policy.delivered_seconds is not None and session_id is None:
            counts.delivered = await self._purge_delivered((scope_key, policy.delivered_seconds))

    async def sweep_histories(self, before_each: Callable[[], Awaitable[None]] = _go_on) -> None:
        """Deletes the rows below all floors."""
        while keys := await self._read(purging.unswept_histories, THREADS_AT_ONCE):
            await before_each()
            for key in keys:
                await self._sweeper.sweep_history(key)

    async def purge_receipts(self) -> int:
        """Deletes receipts past their time, in every scope; returns how many went."""
        total = await self._purge_receipts(None)
        after = ""
        while policies := await self._read(retention.policies_after, after, 100):
            for scope_key, policy in policies:
                if policy.receipts_seconds is not None:
                    total += await self._purge_receipts((scope_key, policy.receipts_seconds))
            after = policies[-1][0]
        self._metrics.count(Counts(receipts=total))
        return total

    async def purge_delivered(self) -> int:
        """Deletes delivered messages past the server's time, in every scope without a time of its own."""
        delivered = await self._purge_delivered(None)
        self._metrics.count(Counts(delivered=delivered))
        return delivered

    async def _purge_delivered(self, scope: tuple[str, float] | None) -> int:
        def once(connection: SyncConnection, now: datetime) -> int:
            if scope is not None:
                before = now - timedelta(seconds=scope[1])
                return relay.purge_delivered_of(connection, scope[0], before, DELIVERED_AT_ONCE)
            spared = [
                key
                for key, policy in retention.policies_after(connection, "", MOST_POLICIES)
                if policy.delivered_seconds is not None
            ]
            before = now - timedelta(seconds=self._delivered_seconds)
            return relay.purge_delivered(connection, before, DELIVERED_AT_ONCE, spared)

        async def work(connection: Connection) -> int:
            now = await connection.now()
            return await connection.run(lambda sync: once(sync, now))

        purged = 0
        while True:
            count = await self._database.retrying(work)
            purged += count
            if count < DELIVERED_AT_ONCE:
                return purged

    async def _purge_sessions(
        self, scope_key: str, policy: Policy, counts: Counts, before_each: Callable[[], Awaitable[None]]
    ) -> None:
        rule = policy.sessions
        if rule is None:
            return
        while True:
            await before_each()
            now = await self._now()
            found = await self._read(retention.idle_sessions, scope_key, rule, now, SESSIONS_AT_ONCE)
            gone = 0
            for one in found:
                command = DeleteSession(
                    scope_key=scope_key,
                    session_id=one.session_id,
                    thread_key=one.thread_key,
                    actor=SYSTEM,
                    idle_since=one.last_activity_time,
                )
                if await self._commit(command) is not None:
                    await self._sweeper.sweep(one.thread_key)
                    gone += 1
            counts.sessions += gone
            if not gone:
                return

    async def _purge_audit(
        self, scope_key: str, rule: Rule, counts: Counts, before_each: Callable[[], Awaitable[None]]
    ) -> None:
        """Records go without a commit: they outlive their threads."""

        async def work(connection: Connection) -> int:
            now = await connection.now()
            return await connection.run(lambda sync: purge_audit(sync, scope_key, rule, now, AUDIT_AT_ONCE))

        while True:
            await before_each()
            gone = await self._database.retrying(work)
            counts.audit += gone
            if gone < AUDIT_AT_ONCE:
                return

    async def _purge_threads(
        self,
        scope_key: str,
        policy: Policy,
        counts: Counts,
        before_each: Callable[[], Awaitable[None]],
        session_id: str | None,
    ) -> None:
        after: tuple[Any, ...] | None = None
        while True:
            await before_each()
            now = await self._now()
            found = await self._read(
                retention.due_threads,
                scope_key,
                policy,
                self._receipts_seconds,
                now,
                after,
                THREADS_AT_ONCE,
                session_id,
            )
            for thread in found:
                await self._purge_thread(scope_key, policy, thread, counts)
                after = (thread.create_time, thread.session_id)
            if len(found) < THREADS_AT_ONCE:
                return

    async def _purge_thread(self, scope_key: str, policy: Policy, thread: DueThread, counts: Counts) -> None:
        """Whatever is due in one thread, commit by commit."""
        base: dict[str, Any] = {
            "scope_key": scope_key,
            "session_id": thread.session_id,
            "thread_key": thread.thread_key,
            "actor": SYSTEM,
        }
        if thread.has_checkpoints:
            while applied := await self._commit(RemoveCheckpoints(**base, rule=policy.checkpoints)):
                change = applied.decision.checkpoints
                if change is None or change.removal is None:
                    break
                counts.checkpoints += len(change.removal.checkpoints)
        if not (thread.has_history or thread.has_tasks):
            return
        purge = PurgeThread(**base, events=policy.events, tasks=policy.tasks, receipts_seconds=self._receipts_seconds)
        while applied := await self._commit(purge):
            plan = applied.decision.purge
            assert plan is not None
            counts.tasks += len(plan.task_ids)
            counts.events += plan.event_count
            if len(plan.task_ids) < purging.TASKS_AT_ONCE:
                return

    async def _commit(self, command: Command) -> Applied | None:
        """What was committed; None if nothing was due any more, or a lease holds it off."""
        done: list[Applied] = []

        def note(applied: Applied) -> bytes:
            # A batch that is tried again renders again: the last time counts.
            done[:] = [applied]
            return b""

        try:
            await self._pipeline.submit(Work(command, note))
        except (NothingToRecover, SessionNotFound, LeaseRequired):
            return None
        return done[0]

    async def _purge_receipts(self, scope: tuple[str, float] | None) -> int:
        async def work(connection: Connection) -> int:
            now = await connection.now()
            return await connection.run(
                lambda sync: retention.purge_receipts(sync, now, self._receipts_seconds, RECEIPTS_AT_ONCE, scope)
            )

        purged = 0
        while True:
            count = await self._database.retrying(work)
            purged += count
            if count < RECEIPTS_AT_ONCE:
                return purged

    async def _read(self, work: Callable[..., Any], *args: Any) -> Any:
        async with self._database.read() as connection:
            return await connection.run(lambda sync: work(sync, *args))

    async def _now(self) -> Any:
        async with self._database.read() as connection:
            return await connection.now()
