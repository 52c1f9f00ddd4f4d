"""LISTEN/NOTIFY between replicas, on two connections of its own that lead straight to PostgreSQL.

NOTIFY goes out after the commit, coalesced: inside transactions it takes a database-wide lock and cost 95 % of the
throughput. A heartbeat finds half-open sockets (B53), a lost listener comes back by itself (B52), and then wakes
everyone, since nobody knows what was missed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import structlog
from prometheus_client import Counter

from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.database.postgres import PostgresBackend
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.signals import EVERYTHING, LocalSignals, Subscription

MAX_PAYLOAD_BYTES = 7900
"""PostgreSQL takes less than 8000."""
MAX_TOPIC_BYTES = 200
"""Longer topics travel as their hash."""
MAX_PENDING = 10_000
"""More topics than this waiting to be sent become one signal for everything."""

RECONNECTS = Counter("threadkeep_signal_reconnects", "Signal connections that were lost and made again", ["connection"])

_log = structlog.get_logger("threadkeep.signals")


class PostgresSignals:
    """Signals across the replicas of one service. See Signals."""

    def __init__(
        self,
        database: Database,
        *,
        direct_url: str | None = None,
        poll_seconds: float = 2.0,
        heartbeat_seconds: float = 10.0,
        heartbeat_timeout_seconds: float = 5.0,
    ) -> None:
        backend = database.postgres
        assert backend is not None
        if direct_url is not None:
            url = DatabaseUrl.parse(direct_url)
            backend = PostgresBackend(url, backend.schema, backend.settings, None)
        self._backend = backend
        self._channel = f"threadkeep_{backend.schema}"
        self._sender_id = os.urandom(6).hex()
        self._local = LocalSignals(poll_seconds=poll_seconds)
        self._heartbeat_seconds = heartbeat_seconds
        self._heartbeat_timeout = heartbeat_timeout_seconds
        self._pending: set[str] = set()
        self._has_pending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.listening = asyncio.Event()
        """Set while the listener is connected."""
        self.reconnects = 0
        """How often the listener was lost."""

    def notify(self, *topics: str) -> None:
        """See Signals. Waiters of this process wake at once, the other replicas' a moment later."""
        self._local.notify(*topics)
        if len(self._pending) + len(topics) > MAX_PENDING:
            self._pending = {EVERYTHING}
        elif EVERYTHING not in self._pending:
            self._pending.update(_short(topic) for topic in topics)
        self._has_pending.set()

    @asynccontextmanager
    async def subscribe(self, *topics: str, drain: Drain | None = None) -> AsyncIterator[Subscription]:
        """See Signals."""
        both = tuple(dict.fromkeys((*topics, *(_short(topic) for topic in topics))))
        async with self._local.subscribe(*both, drain=drain) as subscription:
            yield subscription

    async def start(self) -> None:
        """Starts listener and sender. They connect in the background: signals are hints, so a start never waits."""
        self._tasks = [
            asyncio.create_task(self._forever("listener", self._listen), name="signals listener"),
            asyncio.create_task(self._forever("sender", self._send), name="signals sender"),
        ]

    async def close(self) -> None:
        """Stops both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._local.close()

    async def _forever(self, name: str, work: Any) -> None:
        delay = 0.05
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                _log.warning("signal connection lost", connection=name, error=type(error).__name__)
            RECONNECTS.labels(name).inc()
            if asyncio.get_running_loop().time() - started > 30:
                delay = 0.05
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    async def _listen(self) -> None:
        connection = await self._backend.connect("listen")
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self._channel, self._heard)
            self.listening.set()
            # What happened while nobody listened is unknown, so everyone looks.
            self._local.wake_all()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        await gone.wait()
                except TimeoutError:
                    await connection.fetchval("SELECT 1", timeout=self._heartbeat_timeout)
            raise ConnectionError("the listener's connection was closed")
        finally:
            self.listening.clear()
            self.reconnects += 1
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split("\n")
        if sender != self._sender_id:
            self._local.notify(*topics)

    async def _send(self) -> None:
        connection: asyncpg.Connection = await self._backend.connect("notify")
        try:
            while True:
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        await self._has_pending.wait()
                except TimeoutError:
                    await connection.fetchval("SELECT 1", timeout=self._heartbeat_timeout)
                    continue
                self._has_pending.clear()
                topics, self._pending = self._pending, set()
                for payload in self._payloads(topics):
                    await connection.execute(
                        "SELECT pg_notify($1, $2)", self._channel, payload, timeout=self._heartbeat_timeout
                    )
        finally:
            connection.terminate()

    def _payloads(self, topics: set[str]) -> list[str]:
        payloads: list[str] = []
        lines, size = [self._sender_id], len(self._sender_id)
        for topic in topics:
            length = len(topic.encode()) + 1
            if size + length > MAX_PAYLOAD_BYTES:
                payloads.append("\n".join(lines))
                lines, size = [self._sender_id], len(self._sender_id)
            lines.append(topic)
            size += length
        payloads.append("\n".join(lines))
        return payloads


def _short(topic: str) -> str:
    raw = topic.encode()
    if len(raw) <= MAX_TOPIC_BYTES and "\n" not in topic:
        return topic
    return "#" + hashlib.sha256(raw).hexdigest()
