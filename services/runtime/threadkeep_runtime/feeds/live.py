"""Live observations: handed from publishers to the readers of this server, never stored, never waited for (R15)."""

from __future__ import annotations

from threadkeep_runtime.domain.feeds import Extent, ThreadExtent
from threadkeep_runtime.feeds.metrics import FeedMetrics
from threadkeep_runtime.feeds.sink import LiveQueue, Observation

_EVERYTHING = ("all", "")


class LiveHub:
    """Who wants to see observations of what. One per server process."""

    def __init__(self, metrics: FeedMetrics) -> None:
        self._metrics = metrics
        self._queues: dict[tuple[str, str], dict[LiveQueue, None]] = {}

    def attach(self, queue: LiveQueue, extent: Extent) -> None:
        """From now on the queue is offered the observations of the extent."""
        for route in _routes(extent):
            self._queues.setdefault(route, {})[queue] = None

    def detach(self, queue: LiveQueue, extent: Extent) -> None:
        """Forgets the queue."""
        for route in _routes(extent):
            queues = self._queues.get(route)
            if queues is not None:
                queues.pop(queue, None)
                if not queues:
                    del self._queues[route]

    def publish(self, observation: Observation) -> int:
        """Offers an observation to every reader of its thread or scope; returns how many let it drop."""
        dropped = 0
        for route in (("thread", observation.thread_key), ("scope", observation.scope_key), _EVERYTHING):
            for queue in self._queues.get(route, ()):
                if queue.wants(observation.run_id, observation.task_id) and not queue.offer(observation):
                    dropped += 1
        self._metrics.observations.inc()
        self._metrics.dropped.inc(dropped)
        return dropped

    @property
    def readers(self) -> int:
        """How many queues are attached, for metrics and tests."""
        return sum(len(queues) for queues in self._queues.values())


def _routes(extent: Extent) -> list[tuple[str, str]]:
    if isinstance(extent, ThreadExtent):
        return [("thread", extent.thread_key)]
    if extent.scope_keys is None:
        return [_EVERYTHING]
    return [("scope", key) for key in extent.scope_keys]
