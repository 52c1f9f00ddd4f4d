"""Delivers what the outbox holds (R16). Every replica runs it: a claimed line is one relay's, and no other's.

Within a line messages go one after the other; lines go side by side. A message that fails keeps its line waiting until
its attempts are spent; then it is a dead letter, and the next one has its turn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from threadkeep_chassis.canonical import parse_json
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import ThreadkeepError, Unavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.scope import Scope
from threadkeep_chassis.signals import Signals
from threadkeep_chassis.signals import Subscription as Signalled
from threadkeep_runtime.commands import Commands
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.outbox import SESSION, OutboxMessage, pause_seconds, webhook_body
from threadkeep_runtime.domain.webhooks import headers_of
from threadkeep_runtime.loops.outbox_settings import OutboxSettings
from threadkeep_runtime.loops.posting import Poster
from threadkeep_runtime.pipeline.failpoints import AFTER_DELIVERY, Failpoints
from threadkeep_runtime.store import relay
from threadkeep_runtime.store.relay import DEAD, DELIVERED, PENDING, Claim, ClaimLost, Settlement

_log = structlog.get_logger("threadkeep.outbox")

Arrival = Callable[[bytes], tuple[str | None, Mapping[str, Any]]]
"""Reads a stored TaskOnArrival: the agent's name, and the command's other fields."""

PATIENCE_SECONDS = 1.0
"""Pause after what is not the message's fault: the database, config or this server is away."""

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 3600)


class RelayMetrics:
    """What relays count (X15)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.attempts = Counter(
            "threadkeep_outbox_attempts", "Deliveries tried, by what became of them: delivered, pending, dead",
            ["kind", "outcome"], registry=registry,
        )  # fmt: skip
        self.delay = Histogram(
            "threadkeep_outbox_delay_seconds", "From the commit to the delivery", ["kind"],
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip
        self.lines = Gauge("threadkeep_outbox_claimed_lines", "Lines that this server delivers", registry=registry)
        self.lost = Counter("threadkeep_outbox_claims_lost", "Claims that another relay took over", registry=registry)
        self.lag = Gauge("threadkeep_outbox_lag_seconds", "How long the oldest due line has waited", registry=registry)


class Relay:
    """One per server."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        commands: Commands,
        poster: Poster,
        arrival: Arrival,
        settings: OutboxSettings,
        metrics: RelayMetrics,
        failpoints: Failpoints,
        loops: Loops,
    ) -> None:
        self._database = database
        self._signals = signals
        self._commands = commands
        self._poster = poster
        self._arrival = arrival
        self._settings = settings
        self._metrics = metrics
        self._failpoints = failpoints
        self._loops = loops
        self._busy = 0

    async def run(self) -> None:
        """Claims and delivers until the loops stop."""
        stopping = asyncio.ensure_future(self._loops.stopping.wait())
        try:
            async with self._signals.subscribe("outbox") as changed:
                while not stopping.done():
                    wait = await self._claim(changed)
                    waiting = asyncio.ensure_future(changed.wait(wait))
                    try:
                        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        waiting.cancel()
        finally:
            stopping.cancel()

    async def _claim(self, changed: Signalled) -> float | None:
        """Claims what is due and sets about it. Returns how long there is nothing more to do; None: no end in sight."""
        free = self._settings.max_lines - self._busy
        if free <= 0:
            return None
        async with self._database.read() as connection:
            now = await connection.now()
            due = await connection.run(relay.next_due)
            overdue = due is not None and due <= now
            if not overdue:
                overdue = await connection.run(lambda sync: relay.has_lost_claims(sync, now))
        self._metrics.lag.set(0.0 if due is None else max(0.0, (now - due).total_seconds()))
        if not overdue:
            return None if due is None else (due - now).total_seconds()

        async def work(connection: Connection) -> list[Claim]:
            moment = await connection.now()
            return await connection.run(lambda sync: relay.claim(sync, moment, self._settings.claim_seconds, free))

        claims = await self._database.retrying(work)
        for held in claims:
            self._busy += 1
            self._metrics.lines.set(self._busy)
            self._loops.spawn("outbox line", self._serve(held, changed))
        # Others may hold what is due: their turn to say when they are done.
        return 0.0 if claims else PATIENCE_SECONDS / 2

    async def _serve(self, held: Claim, changed: Signalled) -> None:
        try:
            async with self._database.read() as connection:
                message = await connection.run(lambda sync: relay.first(sync, held.target_key))
                scope = Scope(parse_json(await connection.run(lambda sync: relay.scope_of(sync, held.scope_key))))
            for _ in range(self._settings.max_in_turn):
                if message is None or self._loops.stopping.is_set():
                    break
                settled = await self._attempt(message, scope)
                self._failpoints.reach(AFTER_DELIVERY)
                message = await self._settle(held, message, settled)
                if message is None:
                    return
            await self._give_back(held)
        except ClaimLost:
            self._metrics.lost.inc()
        except Unavailable as error:
            # The claim runs out, and somebody takes it up.
            _log.warning("line left", reason=error.reason)
        finally:
            self._busy -= 1
            self._metrics.lines.set(self._busy)
            changed.wake()

    async def _attempt(self, message: OutboxMessage, scope: Scope) -> Settlement:
        """One attempt, and what becomes of the message then."""
        try:
            # Well before the claim runs out: who lost it must not deliver any more.
            async with asyncio.timeout(self._settings.claim_seconds / 2):
                if message.kind == SESSION:
                    settled = await self._to_session(message, scope)
                else:
                    settled = await self._to_webhook(message, scope)
        except TimeoutError:
            settled = Settlement(PENDING, "timeout")
        except Exception as error:
            _log.error("delivery failed", kind=message.kind, **fault_facts(error))
            settled = Settlement(PENDING, "INTERNAL")
        return self._judge(message, settled)

    async def _to_webhook(self, message: OutboxMessage, scope: Scope) -> Settlement:
        headers: list[tuple[str, str]] = []
        if message.webhook_id is not None:
            async with self._database.read() as connection:
                webhook = await connection.run(lambda sync: relay.task_webhook(sync, message))
            if webhook is None:
                return Settlement(DEAD, "webhook_gone")
            headers = headers_of(webhook)
        return await self._poster.post(message, webhook_body(message, scope.values), headers)

    async def _to_session(self, message: OutboxMessage, scope: Scope) -> Settlement:
        try:
            agent_name, rest = (None, None) if message.arrival is None else self._arrival(message.arrival)
            await self._commands.deliver(scope, message, agent_name, rest)
        except SessionNotFound as error:
            return Settlement(DEAD, error.reason)
        except Unavailable as error:
            return Settlement(PENDING, error.reason, pause_seconds=PATIENCE_SECONDS, is_attempt=False)
        except ThreadkeepError as error:
            return Settlement(PENDING, error.reason)
        return Settlement(DELIVERED)

    def _judge(self, message: OutboxMessage, settled: Settlement) -> Settlement:
        if settled.state != PENDING or not settled.is_attempt:
            return settled
        attempt = message.attempt + 1
        if attempt >= self._settings.max_attempts:
            return Settlement(DEAD, settled.error, settled.status)
        pause = pause_seconds(
            attempt, self._settings.first_pause_seconds, self._settings.longest_pause_seconds, random.random()
        )
        return Settlement(PENDING, settled.error, settled.status, pause)

    async def _settle(self, held: Claim, message: OutboxMessage, settled: Settlement) -> OutboxMessage | None:
        async def work(connection: Connection) -> OutboxMessage | None:
            now = await connection.now()
            return await connection.run(
                lambda sync: relay.settle(sync, held, message, settled, now, self._settings.claim_seconds)
            )

        following = await self._database.retrying(work)
        self._metrics.attempts.labels(message.kind, settled.state.lower()).inc()
        if settled.state == DELIVERED:
            delay = (self._database.clock.now() - message.create_time).total_seconds()
            self._metrics.delay.labels(message.kind).observe(max(0.0, delay))
        elif settled.state == DEAD:
            _log.warning("dead letter", kind=message.kind, error=settled.error, status=settled.status)
        return following

    async def _give_back(self, held: Claim) -> None:
        async def work(connection: Connection) -> None:
            now = await connection.now()
            await connection.run(lambda sync: relay.give_back(sync, held, now))

        await self._database.retrying(work)
