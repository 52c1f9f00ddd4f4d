"""The servicer of SummaryService."""

from __future__ import annotations

import grpc

from threadkeep.projection.v1 import summary_pb2, summary_service_pb2_grpc
from threadkeep.projection.v1 import summary_service_pb2 as pb
from threadkeep.runtime.v1 import run_pb2, session_pb2, task_pb2
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.scope import current_call
from threadkeep_projection.service.convert import (
    agent_to_proto,
    counts_to_proto,
    run_to_proto,
    session_to_proto,
    task_to_proto,
    total_to_proto,
    wanted_counts,
    wanted_freshness,
    wanted_summaries,
    wanted_usage,
)
from threadkeep_projection.service.rooms import Rooms


class SummaryService(summary_service_pb2_grpc.SummaryServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms

    async def GetSessionSummary(
        self, request: pb.GetSessionSummaryRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetSessionSummaryResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        await rooms.freshness.wait(call, *wanted_freshness(request), request.session_id)
        found = await rooms.reading.session(call.scope_key, request.session_id)
        return pb.GetSessionSummaryResponse(session=session_to_proto(found))

    async def ListSessionSummaries(
        self, request: pb.ListSessionSummariesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListSessionSummariesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        wanted = wanted_summaries(request, request.statuses, session_pb2.SessionStatus, "SESSION_STATUS_")
        await rooms.freshness.wait(call, *wanted_freshness(request))
        builder: PageBuilder[summary_pb2.SessionSummary] = PageBuilder(page)
        for view in await rooms.reading.sessions(call.scope_key, wanted, page.after, builder.wanted):
            if not builder.add(session_to_proto(view), (view.session.create_time, view.session.session_id)):
                break
        return pb.ListSessionSummariesResponse(
            sessions=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def GetTaskSummary(
        self, request: pb.GetTaskSummaryRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetTaskSummaryResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        await rooms.freshness.wait(call, *wanted_freshness(request))
        return pb.GetTaskSummaryResponse(task=task_to_proto(await rooms.reading.task(call.scope_key, request.task_id)))

    async def ListTaskSummaries(
        self, request: pb.ListTaskSummariesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListTaskSummariesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        wanted = wanted_summaries(request, request.states, task_pb2.TaskState, "TASK_STATE_")
        await rooms.freshness.wait(call, *wanted_freshness(request), wanted.session_id)
        builder: PageBuilder[summary_pb2.TaskSummary] = PageBuilder(page)
        for view in await rooms.reading.tasks(call.scope_key, wanted, page.after, builder.wanted):
            if not builder.add(task_to_proto(view), (view.task.create_time, view.task.task_id)):
                break
        return pb.ListTaskSummariesResponse(
            tasks=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def GetRunSummary(
        self, request: pb.GetRunSummaryRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetRunSummaryResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        await rooms.freshness.wait(call, *wanted_freshness(request))
        return pb.GetRunSummaryResponse(run=run_to_proto(await rooms.reading.run(call.scope_key, request.run_id)))

    async def ListRunSummaries(
        self, request: pb.ListRunSummariesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListRunSummariesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        wanted = wanted_summaries(request, request.states, run_pb2.RunState, "RUN_STATE_")
        await rooms.freshness.wait(call, *wanted_freshness(request), wanted.session_id)
        builder: PageBuilder[summary_pb2.RunSummary] = PageBuilder(page)
        for view in await rooms.reading.runs(call.scope_key, wanted, page.after, builder.wanted):
            if not builder.add(run_to_proto(view), (view.run.create_time, view.run.run_id)):
                break
        return pb.ListRunSummariesResponse(
            runs=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def ListAgentSummaries(
        self, request: pb.ListAgentSummariesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListAgentSummariesResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        await rooms.freshness.wait(call, *wanted_freshness(request))
        builder: PageBuilder[summary_pb2.AgentSummary] = PageBuilder(page)
        name = request.agent_name if request.HasField("agent_name") else None
        for view in await rooms.reading.agents(call.scope_key, name, page.after, builder.wanted):
            if not builder.add(agent_to_proto(view), (view.agent_name,)):
                break
        return pb.ListAgentSummariesResponse(
            agents=builder.items, next_page_token=builder.token(rooms.pager, call, request)
        )

    async def GetCounts(self, request: pb.GetCountsRequest, context: grpc.aio.ServicerContext) -> pb.GetCountsResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        wanted = wanted_counts(request)
        await rooms.freshness.wait(call, *wanted_freshness(request))
        return counts_to_proto(await rooms.reading.counts(call.scope_key, wanted))

    async def ListUsage(self, request: pb.ListUsageRequest, context: grpc.aio.ServicerContext) -> pb.ListUsageResponse:
        """See the contract."""
        call, rooms = current_call(), self.rooms
        page = rooms.pager.page(call, request)
        wanted = wanted_usage(request)
        await rooms.freshness.wait(call, *wanted_freshness(request), wanted.session_id)
        builder: PageBuilder[pb.UsageTotal] = PageBuilder(page)
        for total in await rooms.reading.usage(call.scope_key, wanted, page.after, builder.wanted):
            if not builder.add(total_to_proto(total, wanted.keys), total.key):
                break
        return pb.ListUsageResponse(totals=builder.items, next_page_token=builder.token(rooms.pager, call, request))
