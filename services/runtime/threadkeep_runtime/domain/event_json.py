"""The payloads of the server's own events: tasks, runs, tickets and sessions in proto3 JSON with proto field names.

Written by hand since the domain knows no protobuf; a test compares it with what protobuf makes of the same records.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from threadkeep_runtime.domain.values import (
    Actor,
    Answer,
    Failure,
    Payload,
    RetryPolicy,
    Run,
    Task,
    Thread,
    Ticket,
    Timeouts,
    session_status,
)

JSON = "application/json"


def json_payload(value: Mapping[str, Any]) -> Payload:
    """An event's payload."""
    return Payload(JSON, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def task_json(task: Task, input_json: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A Task. The input is given apart, since the domain does not look into it."""
    return _set(
        task_id=task.task_id,
        session_id=task.session_id,
        agent_name=task.agent_name,
        agent_revision=_int64(task.agent_revision),
        manifest_digest=task.manifest_digest,
        state=f"TASK_STATE_{task.state}",
        input=input_json,
        queue=task.queue,
        priority=task.priority,
        metadata=dict(task.metadata),
        retry_policy=_retry(task.retry),
        not_before=_time(task.not_before),
        retry_of=task.retry_of,
        schedule_id=task.schedule_id,
        timeouts=_timeouts(task.timeouts),
        deadline=_time(task.deadline),
        run_id=task.run_id,
        attempt=task.attempt,
        crash_count=task.crash_count,
        open_ticket_ids=list(task.open_ticket_ids),
        cancel_request_time=_time(task.cancel_request_time),
        cancel_reason=task.cancel_reason,
        result=payload_json(task.result),
        failure=failure_json(task.failure),
        create_time=_time(task.create_time),
        update_time=_time(task.update_time),
        end_time=_time(task.end_time),
        revision=_int64(task.revision),
        webhook=None if task.webhook is None else _set(url=task.webhook.url, secret=task.webhook.secret),
    )


def run_json(run: Run, lease_expire_time: datetime | None = None) -> dict[str, Any]:
    """A Run."""
    return _set(
        run_id=run.run_id,
        task_id=run.task_id,
        session_id=run.session_id,
        agent_name=run.agent_name,
        state=f"RUN_STATE_{run.state}",
        cause=None if run.cause is None else f"RUN_END_CAUSE_{run.cause}",
        attempt=run.attempt,
        parent_run_id=run.parent_run_id,
        due_time=_time(run.due_time),
        epoch=_int64(run.epoch),
        crash_count=run.crash_count,
        worker_id=run.worker_id,
        lease_expire_time=_time(lease_expire_time),
        last_checkpoint_id=run.last_checkpoint_id,
        failure=failure_json(run.failure),
        queue=run.queue,
        priority=run.priority,
        create_time=_time(run.create_time),
        start_time=_time(run.start_time),
        end_time=_time(run.end_time),
    )


def ticket_json(ticket: Ticket) -> dict[str, Any]:
    """A Ticket."""
    return _set(
        ticket_id=ticket.ticket_id,
        session_id=ticket.session_id,
        task_id=ticket.task_id,
        run_id=ticket.run_id,
        kind=f"TICKET_KIND_{ticket.kind}",
        state=f"TICKET_STATE_{ticket.state}",
        prompt=payload_json(ticket.prompt),
        answer_schema_json=ticket.answer_schema_json,
        allowed_decisions=list(ticket.allowed_decisions),
        deadline=_time(ticket.deadline),
        default_answer=_answer(ticket.default_answer),
        assignee=ticket.assignee,
        interrupt_id=ticket.interrupt_id,
        answer=_answer(ticket.answer),
        resolved_by=_actor(ticket.resolved_by),
        create_time=_time(ticket.create_time),
        end_time=_time(ticket.end_time),
    )


def session_json(thread: Thread, open_run: Run | None) -> dict[str, Any]:
    """A Session, without internal_thread_key."""
    return _set(
        session_id=thread.session_id,
        title=thread.title,
        agent_name=thread.agent_name,
        metadata=dict(thread.metadata),
        settings=dict(thread.settings),
        status=f"SESSION_STATUS_{session_status(open_run)}",
        active_run_id=thread.active_run_id,
        latest_run_id=thread.latest_run_id,
        latest_task_id=thread.latest_task_id,
        task_count=_int64(thread.task_count),
        run_count=_int64(thread.run_count),
        thread_version=_int64(thread.commit_sequence),
        latest_event_sequence=_int64(thread.event_sequence),
        create_time=_time(thread.create_time),
        update_time=_time(thread.update_time),
        last_activity_time=_time(thread.last_activity_time),
        revision=_int64(thread.revision),
        message_source=f"MESSAGE_SOURCE_{thread.message_source}" if thread.message_source else None,
        forked_from_session_id=thread.forked_from_session_id,
        forked_from_commit=_int64(thread.forked_from_commit or 0),
    )


def failure_json(failure: Failure | None) -> dict[str, Any] | None:
    """A Failure."""
    return None if failure is None else _set(code=failure.code, message=failure.message, retryable=failure.retryable)


def _retry(policy: RetryPolicy) -> dict[str, Any]:
    return _set(
        max_attempts=policy.max_attempts,
        initial_backoff=_duration(policy.initial_backoff_seconds),
        max_backoff=_duration(policy.max_backoff_seconds),
        multiplier=policy.multiplier,
        retryable_codes=list(policy.retryable_codes),
        causes=[f"RETRY_CAUSE_{cause}" for cause in policy.retry_causes],
    )


def _timeouts(timeouts: Timeouts) -> dict[str, Any] | None:
    bounds = {
        "total": timeouts.total_seconds,
        "attempt": timeouts.attempt_seconds,
        "waiting": timeouts.waiting_seconds,
    }
    found = {name: _duration(seconds) for name, seconds in bounds.items() if seconds is not None}
    return found or None


def payload_json(payload: Payload | None) -> dict[str, Any] | None:
    """A Payload; its bytes are base64."""
    if payload is None:
        return None
    return _set(
        content_type=payload.content_type,
        data=base64.b64encode(payload.data).decode(),
        attributes=dict(payload.attributes or {}),
    )


def _answer(answer: Answer | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    # Both fields have presence: an empty text would still be shown.
    return {name: value for name, value in answer._asdict().items() if value is not None}


def _actor(actor: Actor | None) -> dict[str, Any] | None:
    if actor is None:
        return None
    return _set(kind=None if actor.kind == "UNSPECIFIED" else f"ACTOR_KIND_{actor.kind}", id=actor.id)


def _set(**fields: Any) -> dict[str, Any]:
    """Only what proto3 JSON shows: fields that are not at their default. Messages show even when they are empty."""
    return {
        name: value for name, value in fields.items() if value not in _HIDDEN or (value == {} and name in _MESSAGES)
    }


_HIDDEN: tuple[Any, ...] = (None, "", 0, [], {})
_MESSAGES = frozenset({"settings", "failure", "resolved_by", "input"})


def _int64(value: int) -> str | None:
    return str(value) if value else None


def _duration(seconds: float) -> str:
    """A Duration of proto3 JSON, with 0, 3 or 6 fractional digits, as protobuf writes it."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    if micros == 0:
        return f"{whole}s"
    return f"{whole}.{micros // 1000:03d}s" if micros % 1000 == 0 else f"{whole}.{micros:06d}s"


def _time(value: datetime | None) -> str | None:
    """RFC 3339 with 0, 3 or 6 fractional digits, as protobuf writes it."""
    if value is None:
        return None
    text = value.strftime("%Y-%m-%dT%H:%M:%S")
    micros = value.microsecond
    if micros == 0:
        return f"{text}Z"
    return f"{text}.{micros // 1000:03d}Z" if micros % 1000 == 0 else f"{text}.{micros:06d}Z"
