"""Schedules: tasks that are submitted again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf import field_mask_pb2

from threadkeep._api.values import Input, given, to_duration, to_input
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.runtime.v1 import (
    schedule_pb2,
    schedule_service_pb2,
    session_service_pb2,
    task_pb2,
    webhook_pb2,
)
from threadkeep.runtime.v1.schedule_pb2 import Schedule

_CREATE = method(schedule_service_pb2, "ScheduleService", "CreateSchedule")
_GET = method(schedule_service_pb2, "ScheduleService", "GetSchedule")
_LIST = method(schedule_service_pb2, "ScheduleService", "ListSchedules")
_UPDATE = method(schedule_service_pb2, "ScheduleService", "UpdateSchedule")
_DELETE = method(schedule_service_pb2, "ScheduleService", "DeleteSchedule")


def task(
    input: Input,
    *,
    session_id: str | None = None,
    new_session: session_service_pb2.SessionDraft | None = None,
    create_missing: bool = False,
    agent_name: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    metadata: Mapping[str, str] | None = None,
    retry_policy: task_pb2.RetryPolicy | None = None,
    multitask_strategy: task_pb2.MultitaskStrategy.ValueType | None = None,
    total_timeout: float | None = None,
    attempt_timeout: float | None = None,
    waiting_timeout: float | None = None,
    webhook: webhook_pb2.Webhook | None = None,
) -> schedule_pb2.ScheduledTask:
    """What each fire submits; the arguments are those of `tasks.submit`. Without a session each fire makes one."""
    if session_id is not None and new_session is not None:
        raise ValueError("fires go into an existing session or into new ones, not both")
    made = schedule_pb2.ScheduledTask(
        input=to_input(input),
        priority=priority,
        metadata=dict(metadata or {}),
        **given(
            session_id=session_id,
            new_session=new_session,
            agent_name=agent_name,
            queue=queue,
            retry_policy=retry_policy,
            multitask_strategy=multitask_strategy,
            webhook=webhook,
        ),
    )
    for name, seconds in (("total", total_timeout), ("attempt", attempt_timeout), ("waiting", waiting_timeout)):
        if seconds is not None:
            getattr(made.timeouts, name).CopyFrom(to_duration(seconds))
    if create_missing:
        made.if_session_missing = task_pb2.IF_SESSION_MISSING_CREATE
    return made


def create(
    cron: str,
    task: schedule_pb2.ScheduledTask,
    *,
    schedule_id: str | None = None,
    title: str = "",
    time_zone: str = "",
    paused: bool = False,
    missed_fire_policy: schedule_pb2.MissedFirePolicy.ValueType | None = None,
    max_missed_fires: int = 0,
    request_id: str | None = None,
) -> Call[Schedule]:
    """Creates a schedule that submits `task` (see `schedules.task`) whenever `cron` says so in the time zone.

    Raises FieldInvalid, IdTaken, LimitExceeded.
    """
    draft = schedule_service_pb2.ScheduleDraft(
        title=title,
        cron=cron,
        time_zone=time_zone,
        paused=paused,
        max_missed_fires=max_missed_fires,
        task=task,
        **given(schedule_id=schedule_id, missed_fire_policy=missed_fire_policy),
    )
    request = schedule_service_pb2.CreateScheduleRequest(request_id=request_id or new_request_id(), schedule=draft)
    return Call(_CREATE, request, lambda response: response.schedule)


def get(schedule_id: str) -> Call[Schedule]:
    """Reads a schedule, with its latest fire and the next one's time. Raises ScheduleNotFound."""
    request = schedule_service_pb2.GetScheduleRequest(schedule_id=schedule_id)
    return Call(_GET, request, lambda response: response.schedule)


def list(*, paused: bool | None = None, page_size: int = 0) -> PagedCall[Schedule]:
    """The scope's schedules, newest first."""
    request = schedule_service_pb2.ListSchedulesRequest(page_size=page_size, **given(paused=paused))
    return PagedCall(Call(_LIST, request, whole), lambda page: page.schedules)


def update(
    schedule_id: str,
    *,
    title: str | None = None,
    cron: str | None = None,
    time_zone: str | None = None,
    paused: bool | None = None,
    missed_fire_policy: schedule_pb2.MissedFirePolicy.ValueType | None = None,
    max_missed_fires: int | None = None,
    task: schedule_pb2.ScheduledTask | None = None,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> Call[Schedule]:
    """Changes what is given; `paused=True` lets it rest. Raises ScheduleNotFound, RevisionConflict, FieldInvalid."""
    changes = given(
        title=title,
        cron=cron,
        time_zone=time_zone,
        paused=paused,
        missed_fire_policy=missed_fire_policy,
        max_missed_fires=max_missed_fires,
        task=task,
    )
    paths: Sequence[str] = [*changes]
    request = schedule_service_pb2.UpdateScheduleRequest(
        request_id=request_id or new_request_id(),
        schedule=schedule_service_pb2.ScheduleDraft(schedule_id=schedule_id, **changes),
        update_mask=field_mask_pb2.FieldMask(paths=paths),
        **given(expected_revision=expected_revision),
    )
    return Call(_UPDATE, request, lambda response: response.schedule)


def delete(schedule_id: str, *, expected_revision: int | None = None, request_id: str | None = None) -> Call[None]:
    """Deletes a schedule; the tasks that it has submitted stay. Raises ScheduleNotFound, RevisionConflict."""
    request = schedule_service_pb2.DeleteScheduleRequest(
        request_id=request_id or new_request_id(),
        schedule_id=schedule_id,
        **given(expected_revision=expected_revision),
    )
    return Call(_DELETE, request, lambda response: None)
