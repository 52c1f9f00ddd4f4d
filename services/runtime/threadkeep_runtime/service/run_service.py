"""RunService: read and list (R7)."""

from __future__ import annotations

from typing import Any

import grpc

from threadkeep.runtime.v1 import run_pb2, run_service_pb2, run_service_pb2_grpc
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.errors import RunNotFound
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import fill
from threadkeep_runtime.service.render import run_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.reads import ListQuery

pb = run_service_pb2


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def GetRun(self, request: pb.GetRunRequest, context: grpc.aio.ServicerContext) -> pb.GetRunResponse:
        """Reads a run."""
        scope_key = current_call().scope_key
        async with self.rooms.database.read() as connection:
            found = await connection.run(lambda sync: reads.find_run(sync, scope_key, request.run_id))
        if found is None:
            raise RunNotFound()
        return pb.GetRunResponse(run=run_to_proto(*found))

    async def ListRuns(self, request: pb.ListRunsRequest, context: grpc.aio.ServicerContext) -> pb.ListRunsResponse:
        """Lists runs, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        states = parse.states_of(request, run_pb2.RunState, "RUN_STATE_")
        thread_key = parse.session_filter(call.scope_key, request)

        def query(count: int, after: tuple[Any, ...] | None) -> ListQuery:
            return ListQuery(
                call.scope_key,
                count,
                after,
                thread_key=thread_key,
                task_id=request.task_id if request.HasField("task_id") else None,
                states=states,
            )

        builder = await fill(
            self.rooms.database,
            page,
            query,
            reads.list_runs,
            lambda row: run_to_proto(*row),
            lambda row: (row.run.create_time, row.run.run_id),
        )
        return pb.ListRunsResponse(runs=builder.items, next_page_token=builder.token(self.rooms.pager, call, request))
