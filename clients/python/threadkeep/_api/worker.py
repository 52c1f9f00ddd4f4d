"""What workers call: lease a run, keep it, give it back."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence

from threadkeep._api.values import given, to_duration
from threadkeep._rpc.method import Call, method, new_request_id, whole
from threadkeep.runtime.v1 import commit_pb2, event_pb2, worker_service_pb2

_ACQUIRE = method(worker_service_pb2, "WorkerService", "AcquireRun")
_HEARTBEAT = method(worker_service_pb2, "WorkerService", "Heartbeat")
_RELEASE = method(worker_service_pb2, "WorkerService", "ReleaseRun")
PUBLISH_LIVE = method(worker_service_pb2, "WorkerService", "PublishLive")

DEFAULT_WAIT = 20.0


def acquire(
    worker_id: str,
    *,
    queues: Sequence[str] = (),
    agent_names: Sequence[str] = (),
    wait: float = DEFAULT_WAIT,
    lease_ttl: float | None = None,
    request_id: str | None = None,
) -> Call[worker_service_pb2.AcquireRunResponse]:
    """Waits up to `wait` seconds for a queued run and leases it for `lease_ttl` seconds; `acquired` is absent when
    there was none. The call names the client's grant, or its scope when it has no grant."""
    request = worker_service_pb2.AcquireRunRequest(
        request_id=request_id or new_request_id(),
        worker_id=worker_id,
        queues=queues,
        agent_names=agent_names,
        wait=to_duration(wait),
        **given(lease_ttl=to_duration(lease_ttl)),
    )
    return Call(_ACQUIRE, request, whole, wait=wait, scoped=False)


def heartbeat(lease: commit_pb2.Lease) -> Call[worker_service_pb2.HeartbeatResponse]:
    """Renews a lease; tells whether cancellation was asked for. Raises LeaseLost, RunNotFound."""
    return Call(_HEARTBEAT, worker_service_pb2.HeartbeatRequest(lease=lease), whole)


def release(lease: commit_pb2.Lease, *, request_id: str | None = None) -> Call[worker_service_pb2.ReleaseRunResponse]:
    """Gives a lease back: the run is queued again and spends no budget. Raises LeaseLost, RunNotFound."""
    request = worker_service_pb2.ReleaseRunRequest(request_id=request_id or new_request_id(), lease=lease)
    return Call(_RELEASE, request, whole)


Batch = Iterable[event_pb2.LiveObservation]


def live_requests(lease: commit_pb2.Lease, observations: Batch) -> Iterator[worker_service_pb2.PublishLiveRequest]:
    """The messages that show observations."""
    yield worker_service_pb2.PublishLiveRequest(lease=lease, observations=observations)


async def alive_requests(
    lease: commit_pb2.Lease, observations: Batch | AsyncIterable[Batch]
) -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
    """The messages that show observations, given at once or in batches as they come."""
    if not isinstance(observations, AsyncIterable):
        yield worker_service_pb2.PublishLiveRequest(lease=lease, observations=observations)
        return
    first = True
    async for batch in observations:
        yield worker_service_pb2.PublishLiveRequest(lease=lease if first else None, observations=batch)
        first = False
