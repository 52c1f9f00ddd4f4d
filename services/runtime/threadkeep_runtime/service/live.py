"""PublishLive: what workers show while they work, handed to the readers of this server (R15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc

from threadkeep.runtime.v1 import commit_pb2, event_pb2, worker_service_pb2
from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import FieldInvalid, ShuttingDown
from threadkeep_chassis.scope import Drain, Scope, current_call
from threadkeep_runtime.domain.errors import LeaseLost, RunNotFound
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.feeds.sink import Observation
from threadkeep_runtime.store import reads


class _Holder(NamedTuple):
    """Who publishes, as the lease says."""

    thread_key: str
    session_id: str
    task_id: str
    run_id: str


class LivePublisher:
    """The live part of WorkerService; `database` and `feeds` are set once the database is open."""

    database: Database
    feeds: Feeds

    async def PublishLive(
        self, request_iterator: AsyncIterator[worker_service_pb2.PublishLiveRequest], context: grpc.aio.ServicerContext
    ) -> worker_service_pb2.PublishLiveResponse:
        """Takes observations while the lease is held: looked at first, and again now and then.

        Raises RunNotFound, LeaseLost, FieldInvalid (no lease in the first message), ShuttingDown.
        """
        call = current_call()
        accepted = 0
        lease: commit_pb2.Lease | None = None
        holder: _Holder | None = None
        checked_at = 0.0
        async for request in _until_drained(request_iterator, call.draining):
            if request.HasField("lease") and (lease is None or request.lease != lease):
                lease, holder = request.lease, None
            if lease is None:
                raise FieldInvalid("lease", "is required in the first message")
            now = asyncio.get_running_loop().time()
            if holder is None or now - checked_at >= self.feeds.settings.live_lease_check_seconds:
                holder = await self._holder(call.scope_key, lease)
                checked_at = now
            for observation in request.observations:
                self._publish(call.scope, holder, observation)
                accepted += 1
        return worker_service_pb2.PublishLiveResponse(accepted_count=accepted)

    async def _holder(self, scope_key: str, lease: commit_pb2.Lease) -> _Holder:
        async with self.database.read() as connection:
            found = await connection.run(lambda c: reads.find_run(c, scope_key, lease.run_id))
        if found is None:
            raise RunNotFound()
        run = found.run
        if run.state != "RUNNING" or run.epoch != lease.epoch:
            raise LeaseLost()
        return _Holder(run.thread_key, run.session_id, run.task_id, run.run_id)

    def _publish(self, scope: Scope, holder: _Holder, content: event_pb2.LiveObservation) -> None:
        content.session_id = holder.session_id
        content.task_id = holder.task_id
        content.run_id = holder.run_id
        content.ClearField("scope")
        self.feeds.live.publish(
            Observation(
                scope_key=scope.key,
                scope=scope.values,
                thread_key=holder.thread_key,
                run_id=holder.run_id,
                task_id=holder.task_id,
                content=content,
                size=content.ByteSize(),
            )
        )


async def _until_drained(
    requests: AsyncIterator[worker_service_pb2.PublishLiveRequest], drain: Drain
) -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
    """The requests, until the server stops: an idle publisher must not hold the stop up. Raises ShuttingDown."""
    draining = asyncio.ensure_future(drain.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(requests, None))
            try:
                await asyncio.wait({coming, draining}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
            if not coming.done() or coming.cancelled():
                raise ShuttingDown()
            request = coming.result()
            if request is None:
                return
            yield request
    finally:
        draining.cancel()
