"""`threadkeep schedules`."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import schedule_pb2, task_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import AgentOption, All, Limit, Metadata, RequestId, page_size, up_to
from threadkeep_cli.groups.tasks import (
    STRATEGIES,
    AttemptTimeout,
    Backoff,
    IfBusy,
    IfBusyOption,
    MaxAttempts,
    MaxBackoff,
    TotalTimeout,
    WaitingTimeout,
    json_payload,
    retry_policy,
)
from threadkeep_cli.output import Column, field
from threadkeep_cli.parsing import parse_json, parse_pairs
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Schedules: tasks that are submitted again and again.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("SCHEDULE", field("schedule_id")),
    ("CRON", field("cron")),
    ("ZONE", field("time_zone")),
    ("PAUSED", field("paused")),
    ("NEXT", field("next_fire_time")),
    ("LAST", field("last_fire.fire_time")),
    ("TASKS", field("task_count")),
)


class IfMissed(enum.Enum):
    """What becomes of fires that no server was there for."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


_POLICIES = {one: schedule_pb2.MissedFirePolicy.Value(f"MISSED_FIRE_POLICY_{one.name}") for one in IfMissed}

ScheduleId = Annotated[str, typer.Argument(help="The schedule's id.")]
Zone = Annotated[str | None, typer.Option("--zone", help="The IANA time zone that the times mean. Default: UTC.")]
Missed = Annotated[IfMissed | None, typer.Option("--if-missed", help="What becomes of missed fires. Default: skip.")]
MaxMissed = Annotated[int | None, typer.Option("--max-missed", min=1, help="How many `all` makes up for.")]
Title = Annotated[str | None, typer.Option("--title", help="For people.")]
InputJson = Annotated[str | None, typer.Option("--input-json", help="Any JSON instead; @file reads it.")]
Queue = Annotated[str | None, typer.Option("--queue", help="The queue that workers take its tasks from.")]
Revision = Annotated[int | None, typer.Option("--expected-revision", help="Only if it still has this revision.")]


@command(app)
def create(
    session: Session,
    cron: Annotated[str, typer.Argument(help="When: minute, hour, day, month, day of week: '0 8 * * MON-FRI'.")],
    text: Annotated[str | None, typer.Argument(help="The message of each task.")] = None,
    agent: AgentOption = None,
    to_session: Annotated[str | None, typer.Option("--session", help="One session for all. Default: new ones.")] = None,
    create_missing: Annotated[
        bool, typer.Option("--create-missing", help="Make that session if it is missing.")
    ] = False,
    input_json: InputJson = None,
    schedule_id: Annotated[str | None, typer.Option("--id", help="The id. Default: assigned.")] = None,
    title: Title = None,
    zone: Zone = None,
    paused: Annotated[bool, typer.Option("--paused", help="It does not fire until it is resumed.")] = False,
    if_missed: Missed = None,
    max_missed: MaxMissed = None,
    queue: Queue = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    metadata: Metadata = None,
    max_attempts: MaxAttempts = None,
    backoff: Backoff = None,
    max_backoff: MaxBackoff = None,
    total_timeout: TotalTimeout = None,
    attempt_timeout: AttemptTimeout = None,
    waiting_timeout: WaitingTimeout = None,
    if_busy: IfBusyOption = IfBusy.REJECT,
    request_id: RequestId = None,
) -> None:
    """Creates a schedule: a message, or any JSON, to an agent, whenever the times say."""
    if (text is None) == (input_json is None):
        raise UsageProblem("say what its tasks are about: a message, or --input-json")
    schedules = session.client.schedules
    task = schedules.task(
        _input(text, input_json),
        session_id=to_session,
        create_missing=create_missing,
        agent_name=agent,
        queue=queue,
        priority=priority,
        metadata=parse_pairs(metadata or [], "--metadata"),
        retry_policy=retry_policy(max_attempts, backoff, max_backoff),
        multitask_strategy=STRATEGIES[if_busy],
        total_timeout=total_timeout,
        attempt_timeout=attempt_timeout,
        waiting_timeout=waiting_timeout,
    )
    made = schedules.create(
        cron,
        task,
        schedule_id=schedule_id,
        title=title or "",
        time_zone=zone or "",
        paused=paused,
        missed_fire_policy=None if if_missed is None else _POLICIES[if_missed],
        max_missed_fires=max_missed or 0,
        request_id=request_id,
    )
    session.show.one(made)


@command(app)
def get(session: Session, schedule_id: ScheduleId) -> None:
    """Shows a schedule: its latest fire, and when the next one is due."""
    session.show.one(session.client.schedules.get(schedule_id))


@command(app, "list")
def list_(
    session: Session,
    paused: Annotated[bool | None, typer.Option("--paused/--active", help="Only these.")] = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists schedules, newest first."""
    found = session.client.schedules.list(paused=paused, page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), COLUMNS, "no schedules")


@command(app)
def update(
    session: Session,
    schedule_id: ScheduleId,
    text: Annotated[str | None, typer.Argument(help="The message of each task from now on.")] = None,
    cron: Annotated[str | None, typer.Option("--cron", help="When it fires.")] = None,
    title: Title = None,
    zone: Zone = None,
    if_missed: Missed = None,
    max_missed: MaxMissed = None,
    agent: AgentOption = None,
    to_session: Annotated[str | None, typer.Option("--session", help="One session for all.")] = None,
    new_sessions: Annotated[bool, typer.Option("--new-sessions", help="A new session for each task.")] = False,
    create_missing: Annotated[
        bool | None,
        typer.Option("--create-missing/--expect-session", help="Whether a missing session is made."),
    ] = None,
    input_json: InputJson = None,
    queue: Queue = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Higher goes first.")] = None,
    metadata: Metadata = None,
    max_attempts: MaxAttempts = None,
    backoff: Backoff = None,
    max_backoff: MaxBackoff = None,
    total_timeout: TotalTimeout = None,
    attempt_timeout: AttemptTimeout = None,
    waiting_timeout: WaitingTimeout = None,
    if_busy: Annotated[IfBusy | None, typer.Option("--if-busy", help="What happens if the session is busy.")] = None,
    expected_revision: Revision = None,
    request_id: RequestId = None,
) -> None:
    """Changes what is given: when it fires, what becomes of missed fires, what its tasks are. The rest stays."""
    if text is not None and input_json is not None:
        raise UsageProblem("a message, or --input-json; not both")
    if new_sessions and (to_session is not None or create_missing):
        raise UsageProblem("--new-sessions, or --session with --create-missing; not both")
    schedules = session.client.schedules
    given = _input(text, input_json)
    changes = schedules.task(
        "" if given is None else given,
        session_id=to_session,
        create_missing=bool(create_missing),
        agent_name=agent,
        queue=queue,
        priority=priority or 0,
        metadata=parse_pairs(metadata or [], "--metadata"),
        retry_policy=retry_policy(max_attempts, backoff, max_backoff),
        multitask_strategy=None if if_busy is None else STRATEGIES[if_busy],
        total_timeout=total_timeout,
        attempt_timeout=attempt_timeout,
        waiting_timeout=waiting_timeout,
    )
    if given is None:
        changes.ClearField("input")
    cleared = {
        "input": given is not None,
        "metadata": metadata is not None,
        "priority": priority is not None,
        "if_session_missing": new_sessions or create_missing is not None,
        "session_id": new_sessions,
        "new_session": new_sessions,
    }
    task = None
    if any(cleared.values()) or changes.ByteSize():
        # The server takes the task as a whole: what stays is taken over, unless somebody changes it meanwhile.
        before = schedules.get(schedule_id)
        expected_revision = before.revision if expected_revision is None else expected_revision
        task = before.task
        for name, is_cleared in cleared.items():
            if is_cleared:
                task.ClearField(name)  # type: ignore[arg-type]
        task.MergeFrom(changes)
    session.show.one(
        schedules.update(
            schedule_id,
            title=title,
            cron=cron,
            time_zone=zone,
            missed_fire_policy=None if if_missed is None else _POLICIES[if_missed],
            max_missed_fires=max_missed,
            task=task,
            expected_revision=expected_revision,
            request_id=request_id,
        )
    )


@command(app)
def pause(session: Session, schedule_id: ScheduleId, request_id: RequestId = None) -> None:
    """Lets a schedule rest: what falls into the pause is left out."""
    session.show.one(session.client.schedules.update(schedule_id, paused=True, request_id=request_id))


@command(app)
def resume(session: Session, schedule_id: ScheduleId, request_id: RequestId = None) -> None:
    """Ends a pause."""
    session.show.one(session.client.schedules.update(schedule_id, paused=False, request_id=request_id))


@command(app)
def delete(
    session: Session, schedule_id: ScheduleId, expected_revision: Revision = None, request_id: RequestId = None
) -> None:
    """Deletes a schedule. The tasks that it has submitted stay."""
    session.client.schedules.delete(schedule_id, expected_revision=expected_revision, request_id=request_id)
    session.show.note(f"deleted {schedule_id}")


def _input(text: str | None, input_json: str | None) -> Any:
    if input_json is None:
        return text
    return task_pb2.TaskInput(payload=json_payload(parse_json(input_json, "--input-json")))
