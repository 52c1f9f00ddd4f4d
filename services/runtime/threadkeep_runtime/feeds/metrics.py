"""What feeds count (X15): open subscriptions, readers that were too slow, observations shown and dropped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class FeedMetrics:
    """One per server. No labels: scopes and sessions stay out of metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.subscriptions = Gauge("threadkeep_feed_subscriptions", "Subscriptions that are open", registry=registry)
        self.overflows = Counter(
            "threadkeep_feed_overflows", "Readers sent back to the log: they were slower than its writers",
            registry=registry,
        )  # fmt: skip
        self.slow_readers = Counter(
            "threadkeep_feed_slow_readers", "Subscriptions ended with SLOW_CONSUMER", registry=registry
        )
        self.observations = Counter("threadkeep_live_observations", "Live observations taken", registry=registry)
        self.dropped = Counter(
            "threadkeep_live_dropped", "Live observations dropped, once per reader that missed one", registry=registry
        )
