"""What can be asked of a thread. A command is complete: it has the ids that the server assigns, and every default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from threadkeep_runtime.domain import state
from threadkeep_runtime.domain.audit import AuditDraft
from threadkeep_runtime.domain.checkpoints import CheckpointOp
from threadkeep_runtime.domain.messages import Change
from threadkeep_runtime.domain.outbox import OutboxDraft
from threadkeep_runtime.domain.retention import Rule
from threadkeep_runtime.domain.values import (
    NO_TIMEOUTS,
    NO_TRACE,
    NOBODY,
    Actor,
    Answer,
    Event,
    Failure,
    LeaseRef,
    Payload,
    RetryPolicy,
    TaskWebhook,
    Timeouts,
    Trace,
    Webhook,
)


@dataclass(frozen=True, slots=True)
class SessionDraft:
    """What a caller decides about a session."""

    title: str = ""
    agent_name: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    message_source: str = ""
    """CHECKPOINTS, FACTS, or empty: the first commit that carries either decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What every command says: which thread, who asks, and under which request."""

    kind: ClassVar[str]

    scope_key: str
    scope: bytes = b""
    """The scope's canonical JSON; only commands that may create a thread need it."""
    session_id: str
    thread_key: str
    actor: Actor = NOBODY
    request_id: str | None = None
    receipt_key: str | None = None
    """Under which key the request's receipt lies; None: the scope's."""
    trace: Trace = NO_TRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSession(Command):
    """A new session."""

    kind = "create_session"
    draft: SessionDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSession(Command):
    """New values of some of title, agent_name, metadata and settings."""

    kind = "update_session"
    changes: Mapping[str, Any]
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSession(Command):
    """A new session that begins as another one was."""

    kind = "fork_session"
    source_key: str
    """Thread key of the source, in the same scope."""
    draft: SessionDraft
    commit_sequence: int | None = None
    """After which commit; None: the last, or the one that recorded the checkpoint."""
    checkpoint: tuple[str, str] | None = None
    """(checkpoint_ns, checkpoint_id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSession(Command):
    """The end of a session."""

    kind = "delete_session"
    artifact_policy: str | None = None
    """DELETE or KEEP; None: what the session's settings say."""
    expected_revision: int | None = None
    idle_since: datetime | None = None
    """Retention deletes only a session at rest that was last active then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeThread(Command):
    """What retention takes from a thread; None: nothing of that kind."""

    kind = "purge"
    events: Rule | None = None
    tasks: Rule | None = None
    receipts_seconds: float = 0.0
    """Commits younger than this stay: their receipts do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTask(Command):
    """A new task, and its run unless it is enqueued."""

    kind = "submit_task"
    create: SessionDraft | None
    """The session to create in the same commit; None: it exists."""
    task_id: str
    run_id: str
    agent_name: str
    agent_revision: int
    manifest_digest: str
    manifest: bytes
    input: bytes
    input_json: Mapping[str, Any]
    """The input as it goes into the submission event: proto3 JSON."""
    queue: str
    priority: int
    metadata: Mapping[str, str]
    retry: RetryPolicy
    strategy: str = "REJECT"
    """What happens if the session has an open run: REJECT, ENQUEUE, INTERRUPT or ROLLBACK."""
    max_enqueued: int = 1000
    """How many tasks of the session may be enqueued."""
    names_task: bool = False
    """True if the caller chose task_id."""
    if_missing: SessionDraft | None = None
    """The session to create if it does not exist; None: it is refused."""
    not_before: datetime | None = None
    """No run opens earlier; None or past: at once."""
    retry_of: str | None = None
    """The task whose work is submitted once more."""
    schedule_id: str | None = None
    """The schedule that fires."""
    timeouts: Timeouts = NO_TIMEOUTS
    webhook: Webhook | None = None
    """Where its end is posted to."""
    webhooks: tuple[TaskWebhook, ...] = ()
    """Who is told of each new state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTaskWebhook(Command):
    """A webhook is put on a task, or taken off it."""

    kind = "set_task_webhook"
    task_id: str
    webhook_id: str
    webhook: TaskWebhook | None
    """None: it is taken off."""
    max_webhooks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTask(Command):
    """The wish that a task ends."""

    kind = "cancel_task"
    task_id: str
    reason: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which of the tasks that have not ended are meant."""

    states: tuple[str, ...] = ()
    """Empty: all."""
    agent_name: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTasks(Command):
    """The wish that those of a session's tasks end that a filter selects."""

    kind = "cancel_tasks"
    selection: TaskFilter
    reason: str
    grace_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDueTask(Command):
    """A task has become due in a session that has no open run."""

    kind = "open_due_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveTicket(Command):
    """An answer to a ticket."""

    kind = "resolve_ticket"
    ticket_id: str
    answer: Answer
    problem: tuple[str, str] | None
    """(field, rule) if the answer does not match the ticket's schema or decisions, which never change."""


@dataclass(frozen=True, slots=True)
class Running:
    """The run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketDraft:
    """A ticket to open."""

    ticket_id: str
    is_named: bool
    kind: str
    prompt: Payload | None = None
    answer_schema_json: str | None = None
    allowed_decisions: tuple[str, ...] = ()
    deadline: datetime | None = None
    default_answer: Answer | None = None
    assignee: str | None = None
    interrupt_id: str | None = None


@dataclass(frozen=True, slots=True)
class Awaiting:
    """The run waits for answers; its lease ends."""

    tickets: tuple[TicketDraft, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The run ends. `cause` is SUCCEEDED, FAILED or CANCELED."""

    cause: str
    result: Payload | None = None
    failure: Failure | None = None


Disposition = Running | Awaiting | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitThread(Command):
    """A ThreadCommit, and what a saver without a run writes. `events` have their ids."""

    kind = "commit"
    lease: LeaseRef | None = None
    expected_version: int | None = None
    disposition: Disposition | None = None
    events: tuple[Event, ...] = ()
    ops: tuple[CheckpointOp, ...] = ()
    messages: tuple[Change, ...] = ()
    state: state.Commands = state.NO_COMMANDS
    audit: tuple[AuditDraft, ...] = ()
    outbox: tuple[OutboxDraft, ...] = ()
    max_pending_deliveries: int = 10_000
    """How many messages may wait for one target."""
    jitter: float = 0.0
    """From 0 to 1: where in its bounds the pause before another attempt lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoints(Command):
    """LangGraph's delete_thread: all checkpoints and writes go, the session stays."""

    kind = "delete_checkpoints"
    lease: LeaseRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCheckpoints(Command):
    """LangGraph's prune with keep_latest, or its delete_for_runs for one thread."""

    kind = "remove_checkpoints"
    lease: LeaseRef | None = None
    run_ids: tuple[str, ...] | None = None
    """Checkpoints of these runs go. None: all but the latest, or what the rule says."""
    rule: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCheckpoints(Command):
    """LangGraph's copy_thread, as a commit of the target."""

    kind = "copy_checkpoints"
    source_key: str
    """Thread key of the source, in the same scope."""
    lease: LeaseRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRun(Command):
    """A worker takes a queued run."""

    kind = "lease_run"
    run_id: str
    worker_id: str
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRun(Command):
    """A worker gives a run back."""

    kind = "release_run"
    lease: LeaseRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverLease(Command):
    """A lease that expired, or that is missing (B58)."""

    kind = "recover_lease"
    run_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCanceled(Command):
    """The grace period of a cancellation is over."""

    kind = "end_canceled"
    run_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside(Command):
    """A queued run that can't be given to any worker: what is stored of it can't be read."""

    kind = "set_aside"
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutAttempt(Command):
    """A lease has lasted as long as its task allows."""

    kind = "time_out_attempt"
    run_id: str
    epoch: int
    jitter: float = 0.0
    """As in CommitThread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutTask(Command):
    """A task has taken, or waited, as long as it may."""

    kind = "time_out_task"
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDeadline(Command):
    """A ticket's deadline has passed."""

    kind = "pass_deadline"
    ticket_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverMessage(Command):
    """A message arrives in its session."""

    kind = "deliver_message"
    inbox: Event
    """Its id is the message's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverTask(SubmitTask):
    """A message arrives in its session and opens a task there."""

    kind = "deliver_message"
    inbox: Event
