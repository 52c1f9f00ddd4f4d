"""`threadkeep tasks`."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import task_pb2
from threadkeep_cli.exits import Exit, UsageProblem
from threadkeep_cli.groups import task_webhooks
from threadkeep_cli.groups.common import (
    AgentOption,
    All,
    Limit,
    Metadata,
    RequestId,
    SessionOption,
    page_size,
    up_to,
)
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_enums, parse_json, parse_pairs, parse_time, read_text
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Tasks: requested work.", no_args_is_help=True)
app.add_typer(task_webhooks.app, name="webhooks")

COLUMNS: tuple[Column, ...] = (
    ("TASK", field("task_id")),
    ("STATE", short("state")),
    ("AGENT", field("agent_name")),
    ("SESSION", field("session_id")),
    ("RUN", field("run_id")),
    ("CREATED", field("create_time")),
)

_ENDED_BADLY = (task_pb2.TASK_STATE_FAILED, task_pb2.TASK_STATE_CANCELED, task_pb2.TASK_STATE_REJECTED)
_WAITING = (task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_AUTH_REQUIRED)


class IfBusy(enum.Enum):
    """What becomes of a task whose session has an open run."""

    REJECT = "reject"
    ENQUEUE = "enqueue"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


IfBusyOption = Annotated[IfBusy, typer.Option("--if-busy", help="What happens if the session has an open run.")]
NotBefore = Annotated[
    str | None,
    typer.Option(
        "--not-before", help="When it may start: a time (2026-01-31T08:00:00+01:00), or from now: 90s, 10m, 2h, 3d."
    ),
]

Seconds = float | None
MaxAttempts = Annotated[
    int | None, typer.Option("--max-attempts", min=1, help="Crashes, retryable failures and timeouts before it fails.")
]
Backoff = Annotated[Seconds, typer.Option("--backoff", min=0, help="Seconds before the second attempt; then longer.")]
MaxBackoff = Annotated[Seconds, typer.Option("--max-backoff", min=0, help="The longest such pause, in seconds.")]
TotalTimeout = Annotated[Seconds, typer.Option("--timeout", min=0.001, help="Seconds until it must have ended.")]
AttemptTimeout = Annotated[
    Seconds, typer.Option("--attempt-timeout", min=0.001, help="Seconds that one attempt of a worker may take.")
]
WaitingTimeout = Annotated[
    Seconds, typer.Option("--waiting-timeout", min=0.001, help="Seconds until a worker must have begun.")
]

STRATEGIES = {one: task_pb2.MultitaskStrategy.Value(f"MULTITASK_STRATEGY_{one.name}") for one in IfBusy}


@command(app)
def submit(
    session: Session,
    text: Annotated[str | None, typer.Argument(help="The message. `-` reads it from standard input.")] = None,
    agent: AgentOption = None,
    to_session: Annotated[
        str | None, typer.Option("--session", help="An existing session. Default: a new one.")
    ] = None,
    new_session: Annotated[str | None, typer.Option("--new-session", help="A new session with this id.")] = None,
    title: Annotated[str, typer.Option("--title", help="The new session's title.")] = "",
    input_json: Annotated[
        str | None, typer.Option("--input-json", help="Any JSON instead of a message; @file reads it.")
    ] = None,
    task_id: Annotated[str | None, typer.Option("--task-id", help="The id. Default: the server assigns one.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="The queue that workers take it from.")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first.")] = 0,
    metadata: Metadata = None,
    max_attempts: MaxAttempts = None,
    backoff: Backoff = None,
    max_backoff: MaxBackoff = None,
    total_timeout: TotalTimeout = None,
    attempt_timeout: AttemptTimeout = None,
    waiting_timeout: WaitingTimeout = None,
    webhook: Annotated[str | None, typer.Option("--webhook", help="A URL that the task's end is posted to.")] = None,
    webhook_secret: Annotated[
        str | None, typer.Option("--webhook-secret", help="Name of the secret that signs, as the server knows it.")
    ] = None,
    if_busy: IfBusyOption = IfBusy.REJECT,
    create_missing: Annotated[
        bool, typer.Option("--create-missing", help="Make the session of --session if it does not exist.")
    ] = False,
    not_before: NotBefore = None,
    wait_seconds: Annotated[
        float | None, typer.Option("--wait", min=0, help="Wait so many seconds for its end, or for a question.")
    ] = None,
    request_id: RequestId = None,
) -> None:
    """Submits a task: a message, or any JSON, to an agent."""
    if (text is None) == (input_json is None):
        raise UsageProblem('say what the task is about: `threadkeep tasks submit "..." --agent NAME`, or --input-json')
    if to_session is not None and new_session is not None:
        raise UsageProblem("--session names an existing session, --new-session a new one; not both")
    if webhook is None and webhook_secret is not None:
        raise UsageProblem("--webhook-secret goes with --webhook")
    given: Any = read_text("-", "TEXT") if text == "-" else text
    if input_json is not None:
        value = parse_json(input_json, "--input-json")
        given = task_pb2.TaskInput(payload=json_payload(value))
    draft = None
    if to_session is None:
        draft = session.client.sessions.draft(new_session, title=title, agent_name=agent)
    answer = session.client.tasks.submit(
        given,
        session_id=to_session,
        create_session=draft,
        agent_name=agent,
        task_id=task_id,
        queue=queue,
        priority=priority,
        metadata=parse_pairs(metadata or [], "--metadata"),
        retry_policy=retry_policy(max_attempts, backoff, max_backoff),
        total_timeout=total_timeout,
        attempt_timeout=attempt_timeout,
        waiting_timeout=waiting_timeout,
        multitask_strategy=STRATEGIES[if_busy],
        webhook=None if webhook is None else session.client.outbox.webhook(webhook, secret=webhook_secret),
        create_missing=create_missing,
        not_before=None if not_before is None else parse_time(not_before, "--not-before"),
        request_id=request_id,
    )
    if wait_seconds is None:
        session.show.one(answer.task)
        return
    session.show.note(f"task {answer.task.task_id} of session {answer.task.session_id}")
    _wait(session, answer.task.task_id, wait_seconds)


@command(app)
def get(session: Session, task_id: Annotated[str, typer.Argument(help="The task's id.")]) -> None:
    """Shows a task."""
    session.show.one(session.client.tasks.get(task_id))


@command(app, "list")
def list_(
    session: Session,
    of_session: SessionOption = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="submitted, working, input-required, completed, ... Repeatable.")
    ] = None,
    agent: AgentOption = None,
    schedule: Annotated[str | None, typer.Option("--schedule", help="Only of this schedule.")] = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists tasks, newest first."""
    found = session.client.tasks.list(
        session_id=of_session,
        states=parse_enums(task_pb2.TaskState, "TASK_STATE", state, "--state"),
        agent_name=agent,
        schedule_id=schedule,
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no tasks")


@command(app)
def cancel(
    session: Session,
    task_id: Annotated[str | None, typer.Argument(help="The task's id. Or select several by the options.")] = None,
    of_session: SessionOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="All in this state. Repeatable.")] = None,
    agent: AgentOption = None,
    queue: Annotated[str | None, typer.Option("--queue", help="All of this queue.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")] = "",
    grace: Annotated[float | None, typer.Option("--grace", min=0, help="Seconds that a running one may take.")] = None,
    request_id: RequestId = None,
) -> None:
    """Asks for a task's cancellation, or for that of all that the options select and that have not ended."""
    selects = any(one is not None for one in (of_session, state, agent, queue))
    if (task_id is None) != selects:
        raise UsageProblem("name a task, or select several: `threadkeep tasks cancel --session ID`; not both")
    if task_id is None:
        count = session.client.tasks.cancel_many(
            session_id=of_session,
            states=parse_enums(task_pb2.TaskState, "TASK_STATE", state, "--state"),
            agent_name=agent,
            queue=queue,
            reason=reason,
            grace_period=grace,
            request_id=request_id,
        )
        session.show.one({"task_count": count})
        return
    answer = session.client.tasks.cancel(task_id, reason=reason, grace_period=grace, request_id=request_id)
    session.show.one(answer.task)


@command(app)
def retry(
    session: Session,
    task_id: Annotated[str, typer.Argument(help="The id of a task that has ended.")],
    new_task_id: Annotated[str | None, typer.Option("--task-id", help="The new task's id. Default: assigned.")] = None,
    keep_manifest: Annotated[
        bool, typer.Option("--keep-manifest", help="With the agent as it was then, not as it is now.")
    ] = False,
    if_busy: IfBusyOption = IfBusy.REJECT,
    not_before: NotBefore = None,
    request_id: RequestId = None,
) -> None:
    """Submits the work of a task that has ended once more."""
    answer = session.client.tasks.retry(
        task_id,
        new_task_id=new_task_id,
        keep_manifest=keep_manifest,
        multitask_strategy=STRATEGIES[if_busy],
        not_before=None if not_before is None else parse_time(not_before, "--not-before"),
        request_id=request_id,
    )
    session.show.one(answer.task)


@command(app)
def wait(
    session: Session,
    task_id: Annotated[str, typer.Argument(help="The task's id.")],
    seconds: Annotated[float, typer.Option("--for", min=0, help="How many seconds to wait at most.")] = 60.0,
) -> None:
    """Waits until a task ends (exit code 0, or 8 if badly), or waits for an answer (9). 4 if neither in time."""
    _wait(session, task_id, seconds)


def _wait(session: Session, task_id: str, seconds: float) -> None:
    task = session.client.tasks.wait(task_id, timeout=seconds)
    session.show.one(task)
    if task.state in _ENDED_BADLY:
        raise SystemExit(int(Exit.TASK_ENDED_BADLY))
    if task.state in _WAITING:
        raise SystemExit(int(Exit.INPUT_REQUIRED))


def retry_policy(max_attempts: int | None, backoff: Seconds, max_backoff: Seconds) -> task_pb2.RetryPolicy | None:
    """The policy of the options, None if none is given."""
    if max_attempts is None and backoff is None and max_backoff is None:
        return None
    policy = task_pb2.RetryPolicy(max_attempts=max_attempts or 0)
    for name, seconds in (("initial_backoff", backoff), ("max_backoff", max_backoff)):
        if seconds is not None:
            getattr(policy, name).FromMicroseconds(round(seconds * 1_000_000))
    return policy


def json_payload(value: Any) -> Any:
    import json

    from threadkeep.common.v1 import payload_pb2

    data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return payload_pb2.Payload(content_type="application/json", data=data)
