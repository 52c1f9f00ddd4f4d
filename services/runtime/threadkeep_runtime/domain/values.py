"""What the runtime's records are: threads (sessions), tasks, runs, leases, tickets, and the small values in them.

Enums are the contract's names without their prefix. Times are aware and in UTC. Frozen: a change is a new value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

THREAD_KEY_DIGITS = 40


def thread_key_of(scope_key: str, session_id: str) -> str:
    """The thread's internal key: what its rows, and LangGraph's tables, are keyed by."""
    return hashlib.sha256(f"{scope_key}\x00{session_id}".encode()).hexdigest()[:THREAD_KEY_DIGITS]


def partition_of(thread_key: str, partitions: int) -> int:
    """The log partition of a thread, by the hash of its key (R14)."""
    return int(thread_key[:8], 16) % partitions


class Actor(NamedTuple):
    """Who caused a fact. `kind` is UNSPECIFIED, USER, CLIENT, WORKER or SYSTEM."""

    kind: str = "UNSPECIFIED"
    id: str | None = None


NOBODY = Actor()
SYSTEM = Actor("SYSTEM")


class Trace(NamedTuple):
    """W3C trace context; empty texts without one."""

    traceparent: str = ""
    tracestate: str = ""


NO_TRACE = Trace()


@dataclass(frozen=True, slots=True)
class Payload:
    """An opaque value."""

    content_type: str
    data: bytes
    attributes: Mapping[str, str] | None = None


class Failure(NamedTuple):
    """What went wrong: a stable code, and a text for people."""

    code: str
    message: str
    retryable: bool = False
    """True if another attempt may do better."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, when, and after what a task is tried again."""

    max_attempts: int
    """Crashes and retryable failures that it may have, the last one included."""
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 60.0
    multiplier: float = 2.0
    retryable_codes: tuple[str, ...] = ()
    """Failures that count as retryable whatever the worker says."""

    retry_causes: tuple[str, ...] = ()
    """CRASH, FAILURE, TIMEOUT: after what the task is tried again; empty: after all."""

    def allows(self, cause: str) -> bool:
        """True if what ended an attempt does not end the task."""
        return not self.retry_causes or cause in self.retry_causes

    def retries(self, failure: Failure) -> bool:
        """True if another attempt may do better."""
        return self.allows("FAILURE") and (failure.retryable or failure.code in self.retryable_codes)

    def backoff_seconds(self, attempt: int, jitter: float) -> float:
        """The pause after this attempt (from 1): at least half of what the policy says; the jitter says the rest."""
        # The exponent is bounded before it is used: a float overflows at 2 ** 1024.
        full = self.initial_backoff_seconds
        for _ in range(attempt - 1):
            full *= self.multiplier
            if full >= self.max_backoff_seconds:
                break
        return min(full, self.max_backoff_seconds) * (0.5 + 0.5 * jitter)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a task may take; None: without bound."""

    total_seconds: float | None = None
    """From when it may start until it has ended."""
    attempt_seconds: float | None = None
    """How long a lease may last, renewed or not."""
    waiting_seconds: float | None = None
    """From when it may start until its first lease."""


NO_TIMEOUTS = Timeouts()


class Webhook(NamedTuple):
    """Where messages are posted to."""

    url: str
    secret: str | None = None
    """The secret's name."""


class TaskWebhook(NamedTuple):
    """A webhook that is told of each new state of its task."""

    webhook_id: str
    url: str
    secret: str | None = None
    """The name of the secret that signs."""
    format: str = "STANDARD"
    """STANDARD or A2A: what is posted."""
    token: str = ""
    """The receiver's own word, which comes back in a header."""
    scheme: str = ""
    credentials: str = ""
    """What the header `authorization` says; no scheme: there is none. Never shown again."""


class Answer(NamedTuple):
    """An answer to a ticket: a decision, a JSON value, or both."""

    decision: str | None
    value_json: str | None


class LeaseRef(NamedTuple):
    """What a worker shows to act for a run."""

    run_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A session and its counters: one row, locked by each commit of the thread."""

    thread_key: str
    scope_key: str
    session_id: str
    partition: int
    commit_sequence: int = 0
    event_sequence: int = 0
    title: str = ""
    agent_name: str = ""
    metadata: Mapping[str, str]
    settings: Mapping[str, Any]
    task_count: int = 0
    run_count: int = 0
    enqueued_count: int = 0
    """Tasks that have no run yet."""
    active_run_id: str | None = None
    latest_run_id: str | None = None
    latest_task_id: str | None = None
    root_checkpoint_id: str | None = None
    checkpoint_top: str = ""
    checkpoint_floor: str = ""
    message_source: str = ""
    """CHECKPOINTS or FACTS; empty while nothing says which."""
    message_position: int = 0
    message_count: int = 0
    message_changes: int = 0
    """Changes of the conversation since its live places were written down."""
    digest: bytes | None = None
    """Of the last commit that has one, which is `digest_sequence`."""
    digest_sequence: int = 0
    chain_start: int = 0
    """The commit behind which the chain that is kept starts."""
    chain_anchor: bytes | None = None
    """The digest there. None: the thread's genesis."""
    revision: int = 1
    create_time: datetime
    update_time: datetime
    last_activity_time: datetime
    delete_time: datetime | None = None
    event_floor: int = 0
    """Events up to this sequence were purged."""
    commit_floor: int = 0
    """So were commits."""
    forked_from_session_id: str | None = None
    forked_from_commit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Requested work."""

    thread_key: str
    task_id: str
    scope_key: str
    session_id: str
    agent_name: str
    agent_revision: int
    manifest_digest: str
    state: str
    input: bytes
    """A serialized TaskInput message; the domain does not look into it."""
    queue: str
    priority: int
    metadata: Mapping[str, str]
    retry: RetryPolicy
    not_before: datetime | None = None
    """No run of it opens earlier."""
    retry_of: str | None = None
    """The task that it retries."""
    schedule_id: str | None = None
    """The schedule that submitted it."""
    timeouts: Timeouts = NO_TIMEOUTS
    deadline: datetime | None = None
    """When its total timeout passes."""
    timeout_time: datetime | None = None
    """When it times out next, in total or waiting, unless something happens before."""
    run_id: str | None
    """Its latest run; None while it is enqueued, or not yet due."""
    attempt: int = 0
    """How many runs it had."""
    crash_count: int = 0
    open_ticket_ids: tuple[str, ...] = ()
    cancel_request_time: datetime | None = None
    cancel_reason: str | None = None
    result: Payload | None = None
    failure: Failure | None = None
    webhook: Webhook | None = None
    """Where its end is posted to."""
    webhooks: tuple[TaskWebhook, ...] = ()
    """Who is told of each new state. Beside the task: changing them is no change of it."""
    create_time: datetime
    update_time: datetime
    end_time: datetime | None = None
    revision: int = 1
    first_event_sequence: int
    last_event_sequence: int | None = None

    @property
    def spent(self) -> int:
        """What is spent of the budget: crashes, and attempts that failed."""
        return self.crash_count + max(0, self.attempt - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution attempt."""

    thread_key: str
    run_id: str
    scope_key: str
    session_id: str
    task_id: str
    agent_name: str
    state: str
    cause: str | None = None
    attempt: int = 1
    """Place among the runs of its task, from 1."""
    parent_run_id: str | None = None
    """The attempt before this one."""
    due_time: datetime | None = None
    """No worker gets it earlier."""
    epoch: int = 0
    crash_count: int = 0
    worker_id: str = ""
    last_checkpoint_id: str | None = None
    failure: Failure | None = None
    queue: str
    priority: int
    create_time: datetime
    start_time: datetime | None = None
    end_time: datetime | None = None
    first_event_sequence: int
    last_event_sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act for a run, until `expire_time` unless it is renewed."""

    thread_key: str
    run_id: str
    scope_key: str
    epoch: int
    worker_id: str
    ttl_seconds: float
    expire_time: datetime
    attempt_deadline: datetime | None = None
    """When the run is taken back, however often the lease is renewed."""
    cancel_deadline: datetime | None = None
    cancel_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Something that a run waits for."""

    thread_key: str
    ticket_id: str
    scope_key: str
    session_id: str
    task_id: str
    run_id: str
    kind: str
    state: str
    prompt: Payload | None = None
    answer_schema_json: str | None = None
    allowed_decisions: tuple[str, ...] = ()
    deadline: datetime | None = None
    default_answer: Answer | None = None
    assignee: str | None = None
    interrupt_id: str | None = None
    answer: Answer | None = None
    resolved_by: Actor | None = None
    create_time: datetime
    end_time: datetime | None = None
    first_event_sequence: int


class Event(NamedTuple):
    """An event of a commit; its place follows from the commit's first sequence and its index."""

    event_id: str
    is_named: bool
    type: str
    visibility: int
    run_id: str | None
    task_id: str | None
    payload: Payload | None
    schema_version: int = 1
    causation_id: str | None = None
    correlation_id: str | None = None


END_USER, BUILDER, INTERNAL = 1, 2, 3
"""Visibility: a reader sees its own level and those below."""


def session_status(open_run: Run | None) -> str:
    """What a session is doing: IDLE, QUEUED, RUNNING or AWAITING (R23)."""
    return "IDLE" if open_run is None or open_run.state == "ENDED" else open_run.state
