"""WorkerService: lease runs, keep them, give them back (R8). PublishLive is in `live`."""

from __future__ import annotations

import asyncio
import json

import grpc

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import commit_pb2, worker_service_pb2, worker_service_pb2_grpc
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.values import Actor, Trace
from threadkeep_runtime.pipeline import Acquired, Waiter
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, origin_of, request_of
from threadkeep_runtime.service.live import LivePublisher
from threadkeep_runtime.service.render import (
    duration_to_proto,
    run_to_proto,
    session_to_proto,
    task_to_proto,
    ticket_to_proto,
)
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.leases import Beat
from threadkeep_runtime.store.queue import QueueFilter

pb = worker_service_pb2

DEFAULT_QUEUE = "default"
DEFAULT_WAIT_SECONDS = 20.0
MAX_WAIT_SECONDS = 60.0
LEAST_TTL_SECONDS, MOST_TTL_SECONDS = 1.0, 3600.0
REPLY_SECONDS = 0.1
"""What is left of a call's deadline for the empty answer."""


class WorkerServicer(LivePublisher, worker_service_pb2_grpc.WorkerServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def AcquireRun(
        self, request: pb.AcquireRunRequest, context: grpc.aio.ServicerContext
    ) -> pb.AcquireRunResponse:
        """Waits for a queued run and leases it. An empty answer leaves no receipt: the next one may have a run."""
        call = current_call()
        ttl = parse.seconds_of(
            request,
            "lease_ttl",
            self.rooms.settings.lease_ttl_seconds,
            least=LEAST_TTL_SECONDS,
            most=MOST_TTL_SECONDS,
        )
        seconds = parse.seconds_of(request, "wait", DEFAULT_WAIT_SECONDS, most=MAX_WAIT_SECONDS)
        if call.seconds_left is not None:
            seconds = min(seconds, max(0.0, call.seconds_left - REPLY_SECONDS))
        reach = call.reach
        waiter = Waiter(
            QueueFilter(
                tuple(sorted(set(request.queues))) or (DEFAULT_QUEUE,),
                tuple(sorted(set(request.agent_names))),
                None if reach is None else tuple(sorted(reach)),
            ),
            request.worker_id,
            ttl,
            request_of(call, request),
            Trace(call.trace.traceparent, call.trace.tracestate),
            lambda acquired: _acquired(acquired, ttl),
        )
        draining = asyncio.ensure_future(call.draining.wait())
        try:
            outcome = await self.rooms.pipeline.acquiring.wait(waiter, seconds, draining)
        finally:
            draining.cancel()
        return pb.AcquireRunResponse() if outcome is None else answer(call, outcome, pb.AcquireRunResponse)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: grpc.aio.ServicerContext) -> pb.HeartbeatResponse:
        """Renews a lease."""
        beat = Beat(current_call().scope_key, request.lease.run_id, request.lease.epoch)
        renewed = await self.rooms.pipeline.heartbeats.renew(beat)
        return pb.HeartbeatResponse(
            lease_expire_time=renewed.expire_time,  # type: ignore[arg-type]
            cancel_requested=renewed.cancel_requested,
            cancel_reason=renewed.cancel_reason,
            time_left=duration_to_proto(renewed.seconds_left),
        )

    async def ReleaseRun(
        self, request: pb.ReleaseRunRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReleaseRunResponse:
        """Gives a lease back."""
        call = current_call()

        def render(applied: Applied) -> bytes:
            run = applied.decision.run
            assert run is not None
            return pb.ReleaseRunResponse(
                run=run_to_proto(run, None), receipt=self.rooms.receipts.render(applied)
            ).SerializeToString()

        outcome = await self.rooms.commands.release_run(
            origin_of(call, request, Actor("WORKER")), parse.lease_of(request.lease), render
        )
        return answer(call, outcome, pb.ReleaseRunResponse)


def _acquired(acquired: Acquired, ttl_seconds: float) -> bytes:
    decision = acquired.applied.decision
    thread, run, task, lease = decision.thread, decision.run, decision.task, decision.lease
    assert thread is not None
    assert run is not None
    assert task is not None
    assert lease is not None
    left = None if lease.attempt_deadline is None else (lease.attempt_deadline - decision.now).total_seconds()
    return pb.AcquireRunResponse(
        acquired=pb.AcquiredRun(
            lease=commit_pb2.Lease(run_id=run.run_id, epoch=lease.epoch),
            lease_expire_time=lease.expire_time,  # type: ignore[arg-type]
            lease_ttl=duration_to_proto(ttl_seconds),
            time_left=duration_to_proto(left),
            scope=payload_pb2.Scope(values=json.loads(acquired.scope)),
            run=run_to_proto(run, lease.expire_time),
            task=task_to_proto(task),
            session=session_to_proto(thread, run),
            manifest_json=acquired.manifest,
            answered_tickets=[ticket_to_proto(ticket) for ticket in acquired.answered],
            last_checkpoint_id=thread.root_checkpoint_id,
            checkpoint_id_floor=thread.checkpoint_top,
        )
    ).SerializeToString()
