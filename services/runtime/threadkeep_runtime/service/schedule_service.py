"""ScheduleService: create, read, list, change, delete (R24). What makes schedules fire is in `loops/schedules`."""

from __future__ import annotations

from typing import Any

import grpc

from threadkeep.runtime.v1 import schedule_service_pb2, schedule_service_pb2_grpc
from threadkeep_chassis.database import Connection, is_unique_violation
from threadkeep_chassis.errors import FieldInvalid, IdTaken, LimitExceeded, RevisionConflict
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.commands import Origin
from threadkeep_runtime.domain.errors import ScheduleNotFound
from threadkeep_runtime.domain.schedules import Schedule
from threadkeep_runtime.service.calls import CHUNK
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.schedule_convert import (
    changed_schedule,
    fire_request,
    new_schedule,
    schedule_to_proto,
    updated_paths,
)
from threadkeep_runtime.service.submissions import submission_of
from threadkeep_runtime.store import schedules
from threadkeep_runtime.store.apply import Applied

pb = schedule_service_pb2


class ScheduleServicer(schedule_service_pb2_grpc.ScheduleServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def CreateSchedule(
        self, request: pb.CreateScheduleRequest, context: grpc.aio.ServicerContext
    ) -> pb.CreateScheduleResponse:
        """Creates a schedule."""
        call = current_call()
        draft = request.schedule
        schedule_id = draft.schedule_id if draft.HasField("schedule_id") else new_id()
        # What is wrong with the draft is said before anything is looked at.
        made = new_schedule(call.scope_key, schedule_id, new_id(), draft, self.rooms, self.rooms.database.clock.now())
        most = self.rooms.limits["max_schedules"]

        async def work(connection: Connection) -> pb.CreateScheduleResponse:
            now = await connection.now()
            schedule = new_schedule(call.scope_key, schedule_id, made.incarnation, draft, self.rooms, now)
            count = await connection.run(lambda sync: schedules.count_schedules(sync, call.scope_key))
            if count >= most:
                raise LimitExceeded(
                    "max_schedules", most, count + 1, "Per scope. Delete some, or submit tasks yourself."
                )
            if await connection.run(lambda sync: schedules.find_schedule(sync, call.scope_key, schedule_id)):
                raise IdTaken("schedule", schedule_id)
            await connection.run(lambda sync: schedules.add_schedule(sync, schedule, call.scope.canonical))
            return pb.CreateScheduleResponse(schedule=schedule_to_proto(schedule))

        try:
            return await idempotent(self.rooms.database, call, request, pb.CreateScheduleResponse, work)
        except Exception as error:
            if is_unique_violation(error):
                raise IdTaken("schedule", schedule_id) from error
            raise

    async def GetSchedule(
        self, request: pb.GetScheduleRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetScheduleResponse:
        """Reads a schedule."""
        scope_key = current_call().scope_key
        async with self.rooms.database.read() as connection:
            found = await _find(connection, scope_key, request.schedule_id)
        return pb.GetScheduleResponse(schedule=schedule_to_proto(found))

    async def ListSchedules(
        self, request: pb.ListSchedulesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListSchedulesResponse:
        """Lists schedules, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[Any] = PageBuilder(page)
        paused = request.paused if request.HasField("paused") else None
        after = page.after
        is_full = False
        while not is_full:
            count = min(CHUNK, builder.wanted - len(builder.items))
            async with self.rooms.database.read() as connection:
                found = await connection.run(
                    lambda sync, count=count, after=after: schedules.list_schedules(  # type: ignore[misc]
                        sync, call.scope_key, paused, count, after
                    )
                )
            for schedule in found:
                after = (schedule.create_time, schedule.schedule_id)
                if not builder.add(schedule_to_proto(schedule), after):
                    is_full = True
                    break
            is_full = is_full or len(found) < count
        token = builder.token(self.rooms.pager, call, request)
        return pb.ListSchedulesResponse(schedules=builder.items, next_page_token=token)

    async def UpdateSchedule(
        self, request: pb.UpdateScheduleRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpdateScheduleResponse:
        """Changes a schedule."""
        call = current_call()
        draft, paths = request.schedule, updated_paths(request)
        if not draft.HasField("schedule_id"):
            raise FieldInvalid("schedule.schedule_id", "is required")
        expected = request.expected_revision if request.HasField("expected_revision") else None

        async def work(connection: Connection) -> pb.UpdateScheduleResponse:
            before = await _find(connection, call.scope_key, draft.schedule_id)
            if expected is not None and expected != before.revision:
                raise RevisionConflict(before.revision)
            after = changed_schedule(before, draft, paths, self.rooms, await connection.now())
            if not await connection.run(lambda sync: schedules.change_schedule(sync, before, after)):
                now_there = await _find(connection, call.scope_key, draft.schedule_id)
                raise RevisionConflict(now_there.revision)
            return pb.UpdateScheduleResponse(schedule=schedule_to_proto(after))

        return await idempotent(self.rooms.database, call, request, pb.UpdateScheduleResponse, work)

    async def DeleteSchedule(
        self, request: pb.DeleteScheduleRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteScheduleResponse:
        """Deletes a schedule."""
        call = current_call()
        expected = request.expected_revision if request.HasField("expected_revision") else None

        async def work(connection: Connection) -> pb.DeleteScheduleResponse:
            before = await _find(connection, call.scope_key, request.schedule_id)
            if expected is not None and expected != before.revision:
                raise RevisionConflict(before.revision)
            if not await connection.run(lambda sync: schedules.delete_schedule(sync, before)):
                now_there = await _find(connection, call.scope_key, request.schedule_id)
                raise RevisionConflict(now_there.revision)
            return pb.DeleteScheduleResponse()

        return await idempotent(self.rooms.database, call, request, pb.DeleteScheduleResponse, work)


async def _find(connection: Connection, scope_key: str, schedule_id: str) -> Schedule:
    found = await connection.run(lambda sync: schedules.find_schedule(sync, scope_key, schedule_id))
    if found is None:
        raise ScheduleNotFound()
    return found


def submitter(rooms: Rooms) -> Any:
    """Submits fires as SubmitTask submits tasks; see `commands.schedules.SubmitFire`."""

    def nothing(_: Applied) -> bytes:
        return b""

    async def submit(origin: Origin, schedule: Schedule, name: str) -> None:
        submission = submission_of(fire_request(schedule, name), rooms)
        rest = {**submission.rest, "schedule_id": schedule.schedule_id}
        await rooms.commands.submit_task(origin, submission.session_id, submission.agent_name, rest, nothing)

    return submit
