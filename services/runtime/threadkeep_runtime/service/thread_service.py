"""ThreadService: the ThreadCommit (R1 to R4)."""

from __future__ import annotations

import random

import grpc

from threadkeep.runtime.v1 import thread_service_pb2, thread_service_pb2_grpc
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, origin_of, with_staged
from threadkeep_runtime.service.checkpoint_convert import ops_from_proto
from threadkeep_runtime.service.render import lease_expire_time_of, run_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store.apply import Applied

pb = thread_service_pb2


class ThreadServicer(thread_service_pb2_grpc.ThreadServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def Commit(self, request: pb.CommitRequest, context: grpc.aio.ServicerContext) -> pb.CommitResponse:
        """Applies one ThreadCommit."""
        call = current_call()
        commit = request.commit
        lease = parse.optional_lease(commit)
        disposition = parse.disposition_of(commit, new_id, self.rooms.limits)
        if disposition is None and not commit.events and not commit.checkpoint_ops:
            raise FieldInvalid("commit", "needs a disposition, events or checkpoint_ops")
        ops = ops_from_proto(commit.checkpoint_ops, "commit.checkpoint_ops", self.rooms.limits)
        rest = {
            "lease": lease,
            "expected_version": commit.expected_thread_version if commit.HasField("expected_thread_version") else None,
            "disposition": disposition,
            "events": parse.events_of(commit.events, new_id, self.rooms.limits, "commit.events"),
            "jitter": random.random(),
            "ops": ops,
        }

        def render(applied: Applied) -> bytes:
            decision = applied.decision
            response = pb.CommitResponse(
                receipt=self.rooms.receipts.render(applied),
                ticket_ids=[ticket.ticket_id for ticket in decision.opened_tickets],
            )
            if lease is not None and decision.run is not None:
                response.run.CopyFrom(run_to_proto(decision.run, lease_expire_time_of(applied)))
            return response.SerializeToString()

        outcome = await self.rooms.commands.commit(
            with_staged(origin_of(call, request, parse.actor_of(commit.actor, "commit.actor")), ops),
            commit.session_id,
            rest,
            render,
        )
        return answer(call, outcome, pb.CommitResponse)
