"""Metrics of the projection (X15): lag, events, checkpoints, streams. No ids, no scopes."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class ProjectionMetrics:
    """The metrics, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lag = Gauge(
            "threadkeep_projection_lag_seconds",
            "How long ago what is applied was all there was, by share, at the replica that follows or last did",
            ["share"],
            registry=registry,
        )
        self.events = Counter(
            "threadkeep_projection_events", "Events that were applied by this replica", registry=registry
        )
        self.batches = Histogram(
            "threadkeep_projection_batch_events",
            "Events per transaction",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        )
        self.checkpoints = Counter(
            "threadkeep_projection_checkpoints",
            "Checkpoints that were looked into, by what came of it: decoded, absent, undecodable",
            ["outcome"],
            registry=registry,
        )
        self.is_owner = Gauge(
            "threadkeep_projection_share_owned",
            "1 while this replica follows the share, else 0",
            ["share"],
            registry=registry,
        )
        self.failures = Counter(
            "threadkeep_projection_follower_failures",
            "Times that the follower had to begin again, by the reason; nothing of the failed transaction stays",
            ["reason"],
            registry=registry,
        )
        self.poison = Counter(
            "threadkeep_projection_poison_events", "Events that the follower had to set aside", registry=registry
        )
        self.rebuilds = Counter(
            "threadkeep_projection_rebuilds", "Rebuilds, of one session, a scope or all", ["extent"], registry=registry
        )
        self.freshness = Histogram(
            "threadkeep_projection_freshness_wait_seconds",
            "How long reads waited for at_least",
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )

        self.streams_open = Gauge(
            "threadkeep_projection_streams_open", "Streams of sessions under way", ["transport"], registry=registry
        )
        self.streams_cut = Counter(
            "threadkeep_projection_streams_cut",
            "Streams that were ended because their reader took nothing for too long",
            ["transport"],
            registry=registry,
        )
        self.stream_frames = Counter(
            "threadkeep_projection_stream_frames", "Frames given to readers", ["transport"], registry=registry
        )
        self.stream_buffered = Gauge(
            "threadkeep_projection_stream_buffered_bytes",
            "What waits in this process for readers of Server-Sent Events",
            registry=registry,
        )
        self.http_requests = Counter(
            "threadkeep_projection_http_requests", "HTTP requests, by the answer's status", ["code"], registry=registry
        )

    def note_poison(self, count: int) -> None:
        """Counts events that were set aside."""
        if count:
            self.poison.inc(count)

    def show_lag(self, seconds: Callable[[], float], share: int) -> None:
        """The lag of a share is asked for whenever it is read: it grows while nothing happens."""
        self.lag.labels(str(share)).set_function(seconds)
