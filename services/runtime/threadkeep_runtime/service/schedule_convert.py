"""Between schedules and messages, and from a schedule's task to the submission of a fire."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from threadkeep.runtime.v1 import schedule_pb2, schedule_service_pb2, task_service_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_runtime.commands.calendar import Calendar
from threadkeep_runtime.domain.schedules import Schedule
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.render import failure_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.submissions import submission_of

DEFAULT_MISSED, MOST_MISSED = 100, 1000
UTC_ZONE = "UTC"

_UPDATABLE = ("title", "cron", "time_zone", "paused", "missed_fire_policy", "max_missed_fires", "task")


def schedule_to_proto(schedule: Schedule) -> schedule_pb2.Schedule:
    """A schedule."""
    fire = schedule.last_fire
    last = None
    if fire is not None:
        last = schedule_pb2.ScheduleFire(
            fire_time=fire.fire_time,  # type: ignore[arg-type]
            submit_time=fire.submit_time,  # type: ignore[arg-type]
            task_id=fire.task_id,
            failure=failure_to_proto(fire.failure),
        )
    return schedule_pb2.Schedule(
        schedule_id=schedule.schedule_id,
        title=schedule.title,
        cron=schedule.cron,
        time_zone=schedule.time_zone,
        paused=schedule.paused,
        missed_fire_policy=f"MISSED_FIRE_POLICY_{schedule.policy}",  # type: ignore[arg-type]
        max_missed_fires=schedule.max_missed,
        task=schedule_pb2.ScheduledTask.FromString(schedule.task),
        next_fire_time=schedule.next_fire_time,  # type: ignore[arg-type]
        last_fire=last,
        task_count=schedule.task_count,
        create_time=schedule.create_time,  # type: ignore[arg-type]
        update_time=schedule.update_time,  # type: ignore[arg-type]
        revision=schedule.revision,
    )


def new_schedule(
    scope_key: str,
    schedule_id: str,
    incarnation: str,
    draft: schedule_service_pb2.ScheduleDraft,
    rooms: Rooms,
    now: datetime,
) -> Schedule:
    """The schedule that a draft describes. Raises FieldInvalid, LimitExceeded."""
    bare = Schedule(
        scope_key=scope_key,
        schedule_id=schedule_id,
        incarnation=incarnation,
        title="",
        cron="",
        time_zone="",
        paused=False,
        policy="SKIP",
        max_missed=DEFAULT_MISSED,
        task=b"",
        next_fire_time=None,
        create_time=now,
        update_time=now,
    )
    return replace(changed_schedule(bare, draft, _UPDATABLE, rooms, now), revision=1)


def updated_paths(request: schedule_service_pb2.UpdateScheduleRequest) -> tuple[str, ...]:
    """The fields that an update names. Raises FieldInvalid."""
    unknown = [path for path in request.update_mask.paths if path not in _UPDATABLE]
    if unknown or not request.update_mask.paths:
        raise FieldInvalid("update_mask", f"names some of {', '.join(_UPDATABLE)}")
    return tuple(request.update_mask.paths)


def changed_schedule(
    before: Schedule, draft: schedule_service_pb2.ScheduleDraft, paths: tuple[str, ...], rooms: Rooms, now: datetime
) -> Schedule:
    """The schedule with the draft's values of these fields. Raises FieldInvalid, LimitExceeded."""
    values: dict[str, Any] = {}
    if "title" in paths:
        values["title"] = draft.title
    if "cron" in paths:
        values["cron"] = " ".join(draft.cron.split())
    if "time_zone" in paths:
        values["time_zone"] = draft.time_zone or UTC_ZONE
    if "paused" in paths:
        values["paused"] = draft.paused
    if "missed_fire_policy" in paths:
        values["policy"] = _policy(draft.missed_fire_policy)
    if "max_missed_fires" in paths:
        if draft.max_missed_fires > MOST_MISSED:
            raise FieldInvalid("schedule.max_missed_fires", f"is at most {MOST_MISSED}")
        values["max_missed"] = draft.max_missed_fires or DEFAULT_MISSED
    if "task" in paths:
        if not draft.HasField("task"):
            raise FieldInvalid("schedule.task", "is required")
        values["task"] = _checked_task(draft.task, rooms)
    after = replace(before, **values, update_time=now, revision=before.revision + 1)
    if (after.cron, after.time_zone, after.paused) != (before.cron, before.time_zone, before.paused):
        after = replace(after, next_fire_time=_next_fire(after, now))
    return after


def fire_request(schedule: Schedule, name: str) -> task_service_pb2.SubmitTaskRequest:
    """The submission of the fire of this name."""
    task = schedule_pb2.ScheduledTask.FromString(schedule.task)
    return _request(task, name, f"schedule:{name}")


def _next_fire(schedule: Schedule, now: datetime) -> datetime | None:
    try:
        following = Calendar(schedule.cron, schedule.time_zone).after(now)
    except FieldInvalid as invalid:
        raise FieldInvalid(f"schedule.{invalid.field}", invalid.rule) from invalid
    if following is None:
        raise FieldInvalid("schedule.cron", "never fires")
    return None if schedule.paused else following


def _policy(policy: int) -> str:
    path = "schedule.missed_fire_policy"
    name = parse.enum_name(schedule_pb2.MissedFirePolicy, policy, "MISSED_FIRE_POLICY_", path)
    return "SKIP" if name == "UNSPECIFIED" else name


def _checked_task(task: schedule_pb2.ScheduledTask, rooms: Rooms) -> bytes:
    """The task as it is stored. What a submission would refuse whenever it came is refused now."""
    path = "schedule.task"
    if task.WhichOneof("session") == "new_session" and task.new_session.HasField("session_id"):
        raise FieldInvalid(f"{path}.new_session.session_id", "must be absent: each fire has a session of its own")
    for index, message in enumerate(task.input.messages.messages):
        if message.HasField("message_id"):
            where = f"{path}.input.messages.messages[{index}].message_id"
            raise FieldInvalid(where, "must be absent: each fire's messages get ids of their own")
    try:
        submission_of(_request(task, "name", "request"), rooms)
    except FieldInvalid as invalid:
        field = invalid.field.replace("create_session", "new_session")
        raise FieldInvalid(f"{path}.{field}", invalid.rule) from invalid
    return task.SerializeToString(deterministic=True)


def _request(task: schedule_pb2.ScheduledTask, name: str, request_id: str) -> task_service_pb2.SubmitTaskRequest:
    request = task_service_pb2.SubmitTaskRequest(
        request_id=request_id,
        task_id=name,
        input=task.input,
        priority=task.priority,
        metadata=task.metadata,
        multitask_strategy=task.multitask_strategy,
        if_session_missing=task.if_session_missing,
    )
    for field in ("retry_policy", "timeouts", "webhook"):
        if task.HasField(field):
            getattr(request, field).CopyFrom(getattr(task, field))
    if task.HasField("agent_name"):
        request.agent_name = task.agent_name
    if task.HasField("queue"):
        request.queue = task.queue
    if task.WhichOneof("session") == "session_id":
        request.session_id = task.session_id
    else:
        request.create_session.CopyFrom(task.new_session)
        request.create_session.session_id = name
    return request
