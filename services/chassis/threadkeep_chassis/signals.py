"""Signals: hints that something was committed. The log is the truth; a lost signal costs latency, never an event.

Notify after the commit (`connection.after_commit(lambda: signals.notify(topic))`). A waiter wakes on a signal, or after
the poll interval, and reads from its own cursor either way. In-process signals live here, LISTEN/NOTIFY in
`postgres_signals`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import LimitExceeded
from threadkeep_chassis.scope import Drain

EVERYTHING = "*"
"""The topic that wakes every subscription."""


class Subscription:
    """What one waiter listens to."""

    def __init__(self, topics: tuple[str, ...], poll_seconds: float) -> None:
        self.topics = topics
        self._poll_seconds = poll_seconds
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Marks that something happened."""
        self._event.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Returns True at a signal since the last wait, False after `timeout` seconds or the poll interval.

        Whoever gets False reads as well: the signal may have been lost.
        """
        limit = self._poll_seconds if timeout is None else min(timeout, self._poll_seconds)
        if not self._event.is_set():
            try:
                async with asyncio.timeout(limit):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


class Signals(Protocol):
    """The port."""

    def notify(self, *topics: str) -> None:
        """Wakes who waits for one of the topics, here and in every replica. Returns at once; coalesced."""
        ...

    def subscribe(self, *topics: str, drain: Drain | None = None) -> AbstractAsyncContextManager[Subscription]:
        """Subscribes for the duration of the block. Subscribe first, then read, then wait: nothing is missed.

        With `drain` (a call's `draining`) the subscription also wakes when the server stops.
        """
        ...

    async def start(self) -> None:
        """Begins to listen."""
        ...

    async def close(self) -> None:
        """Stops."""
        ...


class LocalSignals:
    """Signals within one process: all that SQLite and memory need."""

    def __init__(self, *, poll_seconds: float = 2.0, max_subscriptions: int = 10_000) -> None:
        self._poll_seconds = poll_seconds
        self._max = max_subscriptions
        self._by_topic: dict[str, set[Subscription]] = {}
        self._all: set[Subscription] = set()

    def notify(self, *topics: str) -> None:
        """See Signals."""
        for topic in topics:
            if topic == EVERYTHING:
                self.wake_all()
                return
            for subscription in self._by_topic.get(topic, ()):
                subscription.wake()

    def wake_all(self) -> None:
        """Wakes every subscription."""
        for subscription in self._all:
            subscription.wake()

    @asynccontextmanager
    async def subscribe(self, *topics: str, drain: Drain | None = None) -> AsyncIterator[Subscription]:
        """See Signals. Raises LimitExceeded."""
        if len(self._all) >= self._max:
            raise LimitExceeded(
                "max_subscriptions", self._max, len(self._all) + 1, "Close streams that you do not read."
            )
        subscription = Subscription(topics, self._poll_seconds)
        self._all.add(subscription)
        for topic in topics:
            self._by_topic.setdefault(topic, set()).add(subscription)
        if drain is not None:
            drain.attach(subscription.wake)
        try:
            yield subscription
        finally:
            if drain is not None:
                drain.detach(subscription.wake)
            self._all.discard(subscription)
            for topic in topics:
                members = self._by_topic[topic]
                members.discard(subscription)
                if not members:
                    del self._by_topic[topic]

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return len(self._all)

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Wakes everyone a last time."""
        self.wake_all()


def signals_for(database: Database, *, direct_url: str | None = None, poll_seconds: float = 2.0) -> Signals:
    """The signals that fit the database: LISTEN/NOTIFY on PostgreSQL, in-process elsewhere.

    `direct_url` leads to PostgreSQL itself, where the database address leads to a pooler, through which nobody listens.
    """
    if database.postgres is None:
        return LocalSignals(poll_seconds=poll_seconds)
    from threadkeep_chassis.postgres_signals import PostgresSignals

    return PostgresSignals(database, direct_url=direct_url, poll_seconds=poll_seconds)
