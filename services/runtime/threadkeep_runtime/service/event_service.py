"""EventService: lists and subscriptions of the event log (R13, R14)."""

from __future__ import annotations

import asyncio

import grpc

from threadkeep.runtime.v1 import event_service_pb2, event_service_pb2_grpc
from threadkeep_chassis.errors import FieldInvalid, SlowConsumer
from threadkeep_chassis.paging import MAX_PAGE_BYTES, Pager
from threadkeep_chassis.scope import Call, current_call
from threadkeep_runtime.domain.feeds import (
    GRANT,
    RUN,
    SCOPE,
    SESSION,
    TASK,
    EventFilter,
    Extent,
    ThreadExtent,
    WideExtent,
)
from threadkeep_runtime.feeds.cursors import Place
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.service.event_convert import (
    event_to_proto,
    filter_from_proto,
    frame_to_proto,
    selection_from_proto,
)

_MEMBERS = {"session_id": SESSION, "run_id": RUN, "task_id": TASK}


class EventServicer(event_service_pb2_grpc.EventServiceServicer):
    """Translates; `feeds` and `pager` are set once the database is open."""

    feeds: Feeds
    pager: Pager

    async def ListEvents(
        self, request: event_service_pb2.ListEventsRequest, context: grpc.aio.ServicerContext
    ) -> event_service_pb2.ListEventsResponse:
        """One page, read in short reads; the token holds the place where it ended."""
        call = current_call()
        extent = await self._extent(call, request.filter)
        wanted = filter_from_proto(request.filter)
        page = self.pager.page(call, request)
        # A later page goes on where its token says, whatever became of the cursor that the first one started from.
        place = await self.feeds.reader.start(extent, request.after if page.after is None else b"")
        for index, number in enumerate(page.after or ()):
            place.move(index, number)
        response = event_service_pb2.ListEventsResponse(partition_count=self.feeds.partitions)
        if await self._fill(response, extent, wanted, place, page.size):
            response.next_page_token = self.pager.token(call, request, place.numbers)
        response.cursor = place.cursor()
        return response

    async def SubscribeEvents(  # type: ignore[override]
        self, request: event_service_pb2.SubscribeEventsRequest, context: grpc.aio.ServicerContext
    ) -> None:
        """Writes frames itself, so that a write that waits for a slow reader can be given up."""
        call = current_call()
        extent = await self._extent(call, request.filter)
        wanted = filter_from_proto(request.filter)
        sequence = request.after_sequence if request.HasField("after_sequence") else None
        if sequence is not None and not isinstance(extent, ThreadExtent):
            raise FieldInvalid("after_sequence", "counts in a feed of one session, run or task")
        if request.include_live and request.filter.partitions:
            raise FieldInvalid("include_live", "is not for a selection of partitions")
        place = await self.feeds.reader.start(extent, request.after, from_now=request.from_now, after_sequence=sequence)
        patience = self.feeds.settings.slow_consumer_seconds
        async with self.feeds.subscribe(
            extent, wanted, place, include_live=request.include_live, drain=call.draining
        ) as frames:
            async for frame in frames:
                message = frame_to_proto(frame)
                try:
                    async with asyncio.timeout(patience):
                        await context.write(message)
                except TimeoutError as error:
                    self.feeds.metrics.slow_readers.inc()
                    # The frame is on its way: it reaches the reader before the status does.
                    raise SlowConsumer(resume_cursor=place.text()) from error

    async def _extent(self, call: Call, wanted: event_service_pb2.EventFilter) -> Extent:
        which = wanted.WhichOneof("extent")
        partitions = selection_from_proto(wanted, self.feeds.partitions)
        if which is not None:
            return await self.feeds.reader.find(call.scope_key, _MEMBERS[which], getattr(wanted, which))
        if call.named_scope is not None:
            return WideExtent(SCOPE, frozenset((call.scope_key,)), call.scope_key, partitions)
        return WideExtent(GRANT, call.reach, partitions=partitions)

    async def _fill(
        self,
        response: event_service_pb2.ListEventsResponse,
        extent: Extent,
        wanted: EventFilter,
        place: Place,
        size: int,
    ) -> bool:
        """Adds events behind the place, up to a number and a size, and moves it. True if there are more."""
        filled = 0
        while True:
            # One more than fits shows whether there is more.
            page = await self.feeds.reader.page(extent, wanted, place, size - len(response.events) + 1)
            if page is None:
                return False
            rows = [row for row in page.rows if wanted.matches(row.type, row.visibility)]
            scopes = None
            if extent.kind == GRANT:
                scopes = await self.feeds.reader.scopes_of(row.scope_key for row in rows)
            for row in rows:
                if response.events and (len(response.events) >= size or filled + row.size > MAX_PAGE_BYTES):
                    return True
                place.move(page.index, row.sequence if isinstance(extent, ThreadExtent) else row.position)
                event = event_to_proto(row, place.cursor(), scopes)
                filled += row.size
                response.events.append(event)
            place.move(page.index, page.upto)
