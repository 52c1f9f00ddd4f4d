"""Example requests of schedules."""

from google.protobuf.field_mask_pb2 import FieldMask

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World
from threadkeep.runtime.v1 import schedule_pb2, task_pb2
from threadkeep.runtime.v1 import schedule_service_pb2 as pb


def words(text: str) -> task_pb2.TaskInput:
    """One message without an id."""
    given = task_pb2.TaskInput()
    given.messages.messages.add().parts.add(text=text)
    return given


async def draft(world: World) -> pb.ScheduleDraft:
    """A schedule that fires on New Year's Eve."""
    task = schedule_pb2.ScheduledTask(agent_name=await world.agent(), input=words("hello"))
    return pb.ScheduleDraft(schedule_id=fresh_id("schedule"), cron="0 0 31 12 *", time_zone="Europe/Berlin", task=task)


async def created(world: World) -> str:
    """A new schedule's id."""
    request = pb.CreateScheduleRequest(request_id=fresh_id(), schedule=await draft(world))
    return str((await world.call("ScheduleService.CreateSchedule", request)).schedule.schedule_id)


@register("ScheduleService.CreateSchedule")
async def create_schedule(world: World) -> pb.CreateScheduleRequest:
    return pb.CreateScheduleRequest(request_id=fresh_id(), schedule=await draft(world))


@register("ScheduleService.GetSchedule", "schedule_id")
async def get_schedule(world: World) -> pb.GetScheduleRequest:
    return pb.GetScheduleRequest(schedule_id=await created(world))


@register("ScheduleService.ListSchedules")
async def list_schedules(world: World) -> pb.ListSchedulesRequest:
    await created(world)
    return pb.ListSchedulesRequest()


@register("ScheduleService.UpdateSchedule", "schedule.schedule_id")
async def update_schedule(world: World) -> pb.UpdateScheduleRequest:
    changes = pb.ScheduleDraft(schedule_id=await created(world), paused=True)
    return pb.UpdateScheduleRequest(request_id=fresh_id(), schedule=changes, update_mask=FieldMask(paths=["paused"]))


@register("ScheduleService.DeleteSchedule", "schedule_id")
async def delete_schedule(world: World) -> pb.DeleteScheduleRequest:
    return pb.DeleteScheduleRequest(request_id=fresh_id(), schedule_id=await created(world))
