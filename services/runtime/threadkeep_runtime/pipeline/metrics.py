"""What the pipeline counts (X15): batches, commits, how long they take, how much waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class PipelineMetrics:
    """Labels are corridors."""

    def __init__(self, registry: CollectorRegistry) -> None:
        names = ["corridor"]
        self._waiting = Gauge("threadkeep_pipeline_waiting", "Commits that wait for a batch", names, registry=registry)
        self._started = Counter(
            "threadkeep_pipeline_batches_started", "Batches that were begun", names, registry=registry
        )
        self._batches = Histogram(
            "threadkeep_pipeline_batch_commits", "Commits per batch", names, registry=registry, buckets=_SIZES
        )
        self._seconds = Histogram(
            "threadkeep_pipeline_batch_seconds", "Duration of batches", names, registry=registry, buckets=_SECONDS
        )
        self._alone = Counter(
            "threadkeep_pipeline_batches_replayed_alone", "Batches taken apart after an error", names, registry=registry
        )
        self._retried = Counter(
            "threadkeep_pipeline_batches_retried", "Batches tried again after a collision", names, registry=registry
        )
        self._leased = Counter("threadkeep_leases", "Runs leased to workers", registry=registry)
        self._recovered = Counter("threadkeep_recoveries", "What loops have recovered", ["kind"], registry=registry)

    def waiting(self, corridor: str, count: int) -> None:
        """How many commits wait."""
        self._waiting.labels(corridor).set(count)

    @contextmanager
    def timed(self, corridor: str, commits: int) -> Iterator[None]:
        """Counts a batch and how long it takes."""
        self._started.labels(corridor).inc()
        self._batches.labels(corridor).observe(commits)
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds.labels(corridor).observe(time.perf_counter() - started)

    def replayed_alone(self, corridor: str) -> None:
        """A batch was taken apart."""
        self._alone.labels(corridor).inc()

    def retried(self, corridor: str) -> None:
        """A batch is tried again: it collided with another replica's, or its connection was lost."""
        self._retried.labels(corridor).inc()

    def leased(self, count: int) -> None:
        """Runs were leased."""
        self._leased.inc(count)

    def recovered(self, kind: str) -> None:
        """A loop has recovered something."""
        self._recovered.labels(kind).inc()
