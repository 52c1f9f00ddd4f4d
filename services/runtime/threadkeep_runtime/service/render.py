"""Domain values to messages."""

from __future__ import annotations

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import commit_pb2, run_pb2, session_pb2, task_pb2, ticket_pb2, webhook_pb2
from threadkeep_chassis.cursors import LOG_KIND, CursorCodec
from threadkeep_runtime.domain.values import (
    NO_TIMEOUTS,
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
from threadkeep_runtime.store.apply import Applied


def session_to_proto(thread: Thread, open_run: Run | None, *, for_operator: bool = False) -> session_pb2.Session:
    """A session. Its internal key is the operator's to know."""
    return session_pb2.Session(
        session_id=thread.session_id,
        title=thread.title,
        agent_name=thread.agent_name,
        metadata=thread.metadata,
        settings=session_pb2.SessionSettings(**thread.settings),
        status=f"SESSION_STATUS_{session_status(open_run)}",  # type: ignore[arg-type]
        active_run_id=thread.active_run_id,
        latest_run_id=thread.latest_run_id,
        latest_task_id=thread.latest_task_id,
        task_count=thread.task_count,
        run_count=thread.run_count,
        thread_version=thread.commit_sequence,
        latest_event_sequence=thread.event_sequence,
        create_time=thread.create_time,  # type: ignore[arg-type]
        update_time=thread.update_time,  # type: ignore[arg-type]
        last_activity_time=thread.last_activity_time,  # type: ignore[arg-type]
        revision=thread.revision,
        forked_from_session_id=thread.forked_from_session_id,
        forked_from_commit=thread.forked_from_commit,
        internal_thread_key=thread.thread_key if for_operator else None,
        message_source=f"MESSAGE_SOURCE_{thread.message_source or 'UNSPECIFIED'}",  # type: ignore[arg-type]
    )


def task_to_proto(task: Task) -> task_pb2.Task:
    """A task with its input."""
    return task_pb2.Task(
        task_id=task.task_id,
        session_id=task.session_id,
        agent_name=task.agent_name,
        agent_revision=task.agent_revision,
        manifest_digest=task.manifest_digest,
        state=f"TASK_STATE_{task.state}",  # type: ignore[arg-type]
        input=task_pb2.TaskInput.FromString(task.input),
        queue=task.queue,
        priority=task.priority,
        metadata=task.metadata,
        retry_policy=_retry_to_proto(task.retry),
        not_before=task.not_before,  # type: ignore[arg-type]
        retry_of=task.retry_of,
        schedule_id=task.schedule_id,
        timeouts=_timeouts_to_proto(task.timeouts),
        deadline=task.deadline,  # type: ignore[arg-type]
        attempt=task.attempt,
        run_id=task.run_id,
        crash_count=task.crash_count,
        open_ticket_ids=task.open_ticket_ids,
        cancel_request_time=task.cancel_request_time,  # type: ignore[arg-type]
        cancel_reason=task.cancel_reason or "",
        result=payload_to_proto(task.result),
        failure=failure_to_proto(task.failure),
        create_time=task.create_time,  # type: ignore[arg-type]
        update_time=task.update_time,  # type: ignore[arg-type]
        end_time=task.end_time,  # type: ignore[arg-type]
        revision=task.revision,
        webhook=None if task.webhook is None else webhook_pb2.Webhook(url=task.webhook.url, secret=task.webhook.secret),
    )


def run_to_proto(run: Run, lease_expire_time: datetime | None) -> run_pb2.Run:
    """A run."""
    return run_pb2.Run(
        run_id=run.run_id,
        task_id=run.task_id,
        session_id=run.session_id,
        agent_name=run.agent_name,
        state=f"RUN_STATE_{run.state}",  # type: ignore[arg-type]
        cause=None if run.cause is None else f"RUN_END_CAUSE_{run.cause}",  # type: ignore[arg-type]
        attempt=run.attempt,
        parent_run_id=run.parent_run_id,
        due_time=run.due_time,  # type: ignore[arg-type]
        epoch=run.epoch,
        crash_count=run.crash_count,
        worker_id=run.worker_id,
        lease_expire_time=lease_expire_time,  # type: ignore[arg-type]
        last_checkpoint_id=run.last_checkpoint_id,
        failure=failure_to_proto(run.failure),
        queue=run.queue,
        priority=run.priority,
        create_time=run.create_time,  # type: ignore[arg-type]
        start_time=run.start_time,  # type: ignore[arg-type]
        end_time=run.end_time,  # type: ignore[arg-type]
    )


def _retry_to_proto(policy: RetryPolicy) -> task_pb2.RetryPolicy:
    return task_pb2.RetryPolicy(
        max_attempts=policy.max_attempts,
        initial_backoff=timedelta(seconds=policy.initial_backoff_seconds),  # type: ignore[arg-type]
        max_backoff=timedelta(seconds=policy.max_backoff_seconds),  # type: ignore[arg-type]
        multiplier=policy.multiplier,
        retryable_codes=policy.retryable_codes,
        causes=[f"RETRY_CAUSE_{cause}" for cause in policy.retry_causes],  # type: ignore[misc]
    )


def _timeouts_to_proto(timeouts: Timeouts) -> task_pb2.TaskTimeouts | None:
    if timeouts == NO_TIMEOUTS:
        return None
    return task_pb2.TaskTimeouts(
        total=duration_to_proto(timeouts.total_seconds),
        attempt=duration_to_proto(timeouts.attempt_seconds),
        waiting=duration_to_proto(timeouts.waiting_seconds),
    )


def duration_to_proto(seconds: float | None) -> Duration | None:
    """A duration to the microsecond; None stays None."""
    if seconds is None:
        return None
    duration = Duration()
    duration.FromMicroseconds(round(seconds * 1e6))
    return duration


def ticket_to_proto(ticket: Ticket) -> ticket_pb2.Ticket:
    """A ticket."""
    return ticket_pb2.Ticket(
        ticket_id=ticket.ticket_id,
        session_id=ticket.session_id,
        task_id=ticket.task_id,
        run_id=ticket.run_id,
        kind=f"TICKET_KIND_{ticket.kind}",  # type: ignore[arg-type]
        state=f"TICKET_STATE_{ticket.state}",  # type: ignore[arg-type]
        prompt=payload_to_proto(ticket.prompt),
        answer_schema_json=ticket.answer_schema_json,
        allowed_decisions=ticket.allowed_decisions,
        deadline=ticket.deadline,  # type: ignore[arg-type]
        default_answer=_answer(ticket.default_answer),
        assignee=ticket.assignee,
        interrupt_id=ticket.interrupt_id,
        answer=_answer(ticket.answer),
        resolved_by=actor_to_proto(ticket.resolved_by),
        create_time=ticket.create_time,  # type: ignore[arg-type]
        end_time=ticket.end_time,  # type: ignore[arg-type]
    )


def payload_to_proto(payload: Payload | None) -> payload_pb2.Payload | None:
    """An opaque value."""
    if payload is None:
        return None
    return payload_pb2.Payload(
        content_type=payload.content_type, data=payload.data, attributes=dict(payload.attributes or {})
    )


def failure_to_proto(failure: Failure | None) -> run_pb2.Failure | None:
    """What went wrong."""
    return (
        None
        if failure is None
        else run_pb2.Failure(code=failure.code, message=failure.message, retryable=failure.retryable)
    )


def _answer(answer: Answer | None) -> ticket_pb2.TicketAnswer | None:
    if answer is None:
        return None
    return ticket_pb2.TicketAnswer(decision=answer.decision, value_json=answer.value_json)


def actor_to_proto(actor: Actor | None) -> payload_pb2.Actor | None:
    """Who acted."""
    if actor is None:
        return None
    return payload_pb2.Actor(kind=f"ACTOR_KIND_{actor.kind}", id=actor.id)  # type: ignore[arg-type]


class Receipts:
    """Renders commit receipts; their cursors are of the log's kind, with a position in the commit's partition only."""

    def __init__(self, secret: bytes) -> None:
        """`secret` comes from `meta.load_token_secret`."""
        self._cursors = CursorCodec(secret, LOG_KIND)

    def render(self, applied: Applied) -> commit_pb2.CommitReceipt:
        """What a commit did."""
        decision = applied.decision
        thread = decision.thread
        assert thread is not None
        positions = [0] * applied.partitions
        positions[applied.partition] = applied.position
        return commit_pb2.CommitReceipt(
            commit_sequence=thread.commit_sequence,
            first_event_sequence=decision.first_event_sequence,
            last_event_sequence=decision.last_event_sequence,
            cursor=self._cursors.encode(positions, applied.incarnation, f"scope:{thread.scope_key[:24]}"),
            commit_time=decision.now,  # type: ignore[arg-type]
            digest=thread.digest or b"",
        )


def lease_expire_time_of(applied: Applied) -> datetime | None:
    """When the run's lease expires after the commit."""
    lease = applied.decision.lease
    return None if lease is None else lease.expire_time
