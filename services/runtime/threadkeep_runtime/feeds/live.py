"""Live observations: handed from publishers to readers, never stored, never waited for (R15)."""

from __future__ import annotations

from threadkeep_runtime.domain.feeds import Extent, ThreadExtent
from threadkeep_runtime.feeds.metrics import FeedMetrics
from threadkeep_runtime.feeds.peers import LivePeers, Route
from threadkeep_runtime.feeds.sink import LiveQueue, Observation

_EVERYTHING = ("all", "")


class LiveHub:
    """Who wants to see observations of what. One per server process."""

    def __init__(self, metrics: FeedMetrics) -> None:
        self._metrics = metrics
        self._queues: dict[Route, dict[LiveQueue, None]] = {}
        self.peers: LivePeers | None = None
        """The way to the readers of other replicas, where there can be any."""

    def attach(self, queue: LiveQueue, extent: Extent) -> None:
        """From now on the queue is offered the observations of the extent."""
        for route in _routes(extent):
            self._queues.setdefault(route, {})[queue] = None
        if self.peers is not None:
            self.peers.attach(_routes(extent))

    def detach(self, queue: LiveQueue, extent: Extent) -> None:
        """Forgets the queue."""
        for route in _routes(extent):
            queues = self._queues.get(route)
            if queues is not None:
                queues.pop(queue, None)
                if not queues:
                    del self._queues[route]
        if self.peers is not None:
            self.peers.detach(_routes(extent))

    def publish(self, observation: Observation) -> int:
        """Offers an observation to every reader of its thread or scope; returns how many here let it drop."""
        if self.peers is not None:
            self.peers.offer(observation, _routes_of(observation))
        self._metrics.observations.inc()
        return self.show(observation)

    def show(self, observation: Observation) -> int:
        """Offers an observation to the readers here."""
        dropped = 0
        for route in _routes_of(observation):
            for queue in self._queues.get(route, ()):
                if queue.wants(observation.run_id, observation.task_id) and not queue.offer(observation):
                    dropped += 1
        self._metrics.dropped.inc(dropped)
        return dropped

    def show_gap(self, of: Observation | None, count: int) -> None:
        """Tells the readers here that observations of the same run as `of` are missing, or of nobody knows which."""
        if of is None:
            readers = {queue: None for queues in self._queues.values() for queue in queues}
        else:
            readers = {
                queue: None
                for route in _routes_of(of)
                for queue in self._queues.get(route, ())
                if queue.wants(of.run_id, of.task_id)
            }
        for queue in readers:
            queue.miss(count)
        self._metrics.dropped.inc(len(readers) * count)

    @property
    def readers(self) -> int:
        """How many queues are attached, for metrics and tests."""
        return sum(len(queues) for queues in self._queues.values())


def _routes_of(observation: Observation) -> tuple[Route, Route, Route]:
    return ("thread", observation.thread_key), ("scope", observation.scope_key), _EVERYTHING


def _routes(extent: Extent) -> list[Route]:
    if isinstance(extent, ThreadExtent):
        return [("thread", extent.thread_key)]
    if extent.scope_keys is None:
        return [_EVERYTHING]
    return [("scope", key) for key in extent.scope_keys]
