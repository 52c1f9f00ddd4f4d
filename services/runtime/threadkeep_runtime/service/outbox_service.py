"""OutboxService: deliveries and dead letters (R16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from threadkeep.runtime.v1 import outbox_pb2, outbox_service_pb2, outbox_service_pb2_grpc
from threadkeep_chassis.database import Connection
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, current_call
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.domain.outbox import DEAD
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import fill
from threadkeep_runtime.service.outbox_convert import delivery_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store import relay
from threadkeep_runtime.store.outbox import DeliveryQuery, list_deliveries

pb = outbox_service_pb2

AT_ONCE = 1000
"""Dead letters that one call settles."""


class OutboxServicer(outbox_service_pb2_grpc.OutboxServiceServicer):
    """Translates; `rooms` and `signals` are set once the database is open."""

    rooms: Rooms
    signals: Signals

    async def ListDeliveries(
        self, request: pb.ListDeliveriesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListDeliveriesResponse:
        """Lists messages, newest first."""
        call = current_call()
        states = parse.states_of(request, outbox_pb2.DeliveryState, "DELIVERY_STATE_")
        builder = await self._list(call, request, states)
        return pb.ListDeliveriesResponse(
            deliveries=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListDeadLettersResponse:
        """Lists dead letters, newest first."""
        call = current_call()
        builder = await self._list(call, request, [DEAD])
        return pb.ListDeadLettersResponse(
            dead_letters=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def RequeueDeadLetters(
        self, request: pb.RequeueDeadLettersRequest, context: grpc.aio.ServicerContext
    ) -> pb.RequeueDeadLettersResponse:
        """Sends dead letters again."""
        call = current_call()

        async def work(connection: Connection) -> pb.RequeueDeadLettersResponse:
            now = await connection.now()
            count, has_more = await connection.run(
                lambda sync: relay.requeue_dead(sync, call.scope_key, request.message_ids, AT_ONCE, now)
            )
            connection.after_commit(lambda: self.signals.notify("outbox"))
            return pb.RequeueDeadLettersResponse(requeued_count=count, has_more=has_more)

        return await idempotent(self.rooms.database, call, request, pb.RequeueDeadLettersResponse, work)

    async def PurgeDeadLetters(
        self, request: pb.PurgeDeadLettersRequest, context: grpc.aio.ServicerContext
    ) -> pb.PurgeDeadLettersResponse:
        """Deletes dead letters."""
        call = current_call()

        async def work(connection: Connection) -> pb.PurgeDeadLettersResponse:
            count, has_more = await connection.run(
                lambda sync: relay.purge_dead(sync, call.scope_key, request.message_ids, AT_ONCE)
            )
            return pb.PurgeDeadLettersResponse(purged_count=count, has_more=has_more)

        return await idempotent(self.rooms.database, call, request, pb.PurgeDeadLettersResponse, work)

    async def _list(self, call: Call, request: Any, states: Sequence[str]) -> PageBuilder[outbox_pb2.Delivery]:
        thread_key = parse.session_filter(call.scope_key, request)

        def query(count: int, after: tuple[Any, ...] | None) -> DeliveryQuery:
            return DeliveryQuery(
                call.scope_key,
                count,
                after,
                thread_key=thread_key,
                states=states,
                with_payload=request.include_payload,
            )

        return await fill(
            self.rooms.database,
            self.rooms.pager.page(call, request),
            query,
            list_deliveries,
            delivery_to_proto,
            lambda row: (row["create_time"], row["message_id"]),
        )
