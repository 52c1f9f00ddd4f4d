"""Signals between replicas over LISTEN and NOTIFY.

NOTIFY goes out after the commit, coalesced: inside transactions it takes a database-wide lock and cost 95 % of the
throughput. A listener that was lost and came back wakes everyone, since nobody knows what was missed (B52).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from threadkeep_chassis.database import Database
from threadkeep_chassis.postgres_link import PostgresLink
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.signals import EVERYTHING, LocalSignals, Subscription

MAX_PAYLOAD_BYTES = 7900
"""PostgreSQL takes less than 8000."""
MAX_TOPIC_BYTES = 200
"""Longer topics travel as their hash."""
MAX_PENDING = 10_000
"""More topics than this waiting to be sent become one signal for everything."""


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
        self._link = PostgresLink(
            database,
            "signals",
            direct_url=direct_url,
            heartbeat_seconds=heartbeat_seconds,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        )
        self._channel = f"threadkeep_{self._link.schema}"
        self._sender_id = os.urandom(6).hex()
        self._local = LocalSignals(poll_seconds=poll_seconds)
        self._pending: set[str] = set()
        self._has_pending = asyncio.Event()

    @property
    def listening(self) -> asyncio.Event:
        """Set while the listener is connected."""
        return self._link.listening

    @property
    def reconnects(self) -> int:
        """How often the listener was lost."""
        return self._link.reconnects

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
        await self._link.start([self._channel], self._heard, self._joined, self._has_pending, self._send)

    async def close(self) -> None:
        """Stops both."""
        await self._link.close()
        await self._local.close()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split("\n")
        if sender != self._sender_id:
            self._local.notify(*topics)

    def _joined(self) -> None:
        # What happened while nobody listened is unknown, so everyone looks.
        self._local.wake_all()

    async def _send(self, connection: asyncpg.Connection) -> None:
        self._has_pending.clear()
        topics, self._pending = self._pending, set()
        for payload in self._payloads(topics) if topics else ():
            await connection.execute(
                "SELECT pg_notify($1, $2)", self._channel, payload, timeout=self._link.timeout_seconds
            )

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
