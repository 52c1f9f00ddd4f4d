"""All feeds of one server: what they share, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from prometheus_client import CollectorRegistry

from threadkeep_chassis.database import Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.domain.feeds import EventFilter, Extent
from threadkeep_runtime.feeds.cursors import FeedCursors, Place
from threadkeep_runtime.feeds.frames import Frame
from threadkeep_runtime.feeds.live import LiveHub
from threadkeep_runtime.feeds.metrics import FeedMetrics
from threadkeep_runtime.feeds.reader import LogReader
from threadkeep_runtime.feeds.settings import FeedSettings
from threadkeep_runtime.feeds.subscription import Subscription
from threadkeep_runtime.feeds.tail import Tails


class Feeds:
    """Made once per server, when its database is open. Close it before the database."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        secret: bytes,
        partitions: int,
        *,
        limits: Limits,
        settings: FeedSettings | None = None,
        metrics: FeedMetrics | None = None,
    ) -> None:
        """`secret` comes from `meta.load_token_secret`, `partitions` is the number of the log's partitions."""
        self.settings = settings or FeedSettings()
        self.metrics = metrics or FeedMetrics(CollectorRegistry())
        self.partitions = partitions
        self.live = LiveHub(self.metrics)
        self.reader = LogReader(database, FeedCursors(secret), self.settings.window_positions)
        self.tails = Tails(database, signals, self.settings, partitions)
        self._limits = limits
        self._open = 0

    @property
    def subscriptions(self) -> int:
        """How many are open."""
        return self._open

    @asynccontextmanager
    async def subscribe(
        self, extent: Extent, wanted: EventFilter, place: Place, *, include_live: bool, drain: Drain
    ) -> AsyncIterator[AsyncGenerator[Frame]]:
        """The frames of a subscription that starts at the place, for the duration of the block.

        Raises LimitExceeded.
        """
        self._limits.check("max_subscriptions", self._open + 1)
        self._open += 1
        self.metrics.subscriptions.set(self._open)
        try:
            subscription = Subscription(self, extent, wanted, place, include_live=include_live, drain=drain)
            async with aclosing(subscription.frames()) as frames:
                yield frames
        finally:
            self._open -= 1
            self.metrics.subscriptions.set(self._open)

    def now(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Stops the tails."""
        await self.tails.close()
