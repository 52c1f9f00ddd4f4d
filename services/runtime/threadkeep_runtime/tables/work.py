"""Work of a thread: tasks, runs, leases, tickets (R6 to R10)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata, one_of

TASK_STATES = (
    "SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED",
)  # fmt: skip
RUN_STATES = ("QUEUED", "RUNNING", "AWAITING", "ENDED")
TICKET_STATES = ("OPEN", "RESOLVED", "EXPIRED", "CLOSED")


tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("thread_key", Key(), sa.ForeignKey("threads.thread_key"), primary_key=True),
    sa.Column("task_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("agent_revision", sa.BigInteger, nullable=False),
    sa.Column("manifest_digest", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    # A serialized TaskInput message.
    sa.Column("input", Bytes(), nullable=False),
    sa.Column("queue", Key(), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("metadata", JsonText(), nullable=False),
    # The retry policy.
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("initial_backoff_seconds", sa.Double, nullable=False, server_default=sa.text("1")),
    sa.Column("max_backoff_seconds", sa.Double, nullable=False, server_default=sa.text("60")),
    sa.Column("multiplier", sa.Double, nullable=False, server_default=sa.text("2")),
    sa.Column("retryable_codes", JsonText(), nullable=False, server_default=sa.text("'[]'")),
    sa.Column("retry_causes", JsonText(), nullable=False, server_default=sa.text("'[]'")),
    # No run of it opens earlier; NULL: at once.
    sa.Column("not_before", UtcTimestamp()),
    # The task that it retries.
    sa.Column("retry_of", Key()),
    # The schedule that submitted it.
    sa.Column("schedule_id", Key()),
    # How long it may take: NULL is without bound.
    sa.Column("total_seconds", sa.Double),
    sa.Column("attempt_seconds", sa.Double),
    sa.Column("waiting_seconds", sa.Double),
    # When its total timeout passes; when it times out next, in total or waiting.
    sa.Column("deadline", UtcTimestamp()),
    sa.Column("timeout_time", UtcTimestamp()),
    # How many runs it had.
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("1")),
    # The latest run; '' while the task is enqueued, or not yet due.
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("crash_count", sa.Integer, nullable=False),
    sa.Column("open_ticket_ids", JsonText(), nullable=False),
    sa.Column("cancel_request_time", UtcTimestamp()),
    sa.Column("cancel_reason", JsonText()),
    # A serialized Payload message.
    sa.Column("result", Bytes()),
    # {"code": text, "message": text, "retryable": boolean}
    sa.Column("failure", JsonText()),
    # Where its end is posted to: {"url": text, "secret": text, if one was named}.
    sa.Column("webhook", JsonText()),
    # Who is told of each new state: a list of TaskWebhook values; NULL: nobody.
    sa.Column("webhooks", JsonText()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    sa.Column("end_time", UtcTimestamp()),
    sa.Column("revision", sa.BigInteger, nullable=False),
    # Sequence of the task's first event, and of its terminal one once it ended: a feed of the task lies between.
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("last_event_sequence", sa.BigInteger),
    one_of("state", TASK_STATES),
    sa.UniqueConstraint("scope_key", "task_id"),
    sa.Index(None, "scope_key", "create_time", "task_id"),
    sa.Index(None, "thread_key", "create_time", "task_id"),
)

_waiting = sa.and_(tasks.c.state == sa.text("'SUBMITTED'"), tasks.c.run_id == sa.text("''"))
# Whose turn it is when a thread's run ends: the highest priority first, then the oldest (R5).
partial_index(
    "tasks_enqueued", tasks.c.thread_key, tasks.c.priority.desc(), tasks.c.first_event_sequence, where=_waiting
)
# Which tasks become due without anybody's help (R24).
partial_index("tasks_due", tasks.c.not_before, where=sa.and_(_waiting, tasks.c.not_before.is_not(None)))
partial_index(
    "tasks_of_schedule",
    tasks.c.scope_key,
    tasks.c.schedule_id,
    tasks.c.create_time,
    tasks.c.task_id,
    where=tasks.c.schedule_id.is_not(None),
)
# Which tasks take too long (R24).
partial_index(
    "tasks_timeout",
    tasks.c.timeout_time,
    where=sa.and_(tasks.c.end_time.is_(None), tasks.c.timeout_time.is_not(None)),
)
# How many tasks no worker has had yet (X9).
partial_index("tasks_queued", tasks.c.scope_key, tasks.c.queue, where=tasks.c.state == sa.text("'SUBMITTED'"))
# What a scope still has to do.
partial_index("tasks_unfinished", tasks.c.scope_key, tasks.c.thread_key, where=tasks.c.end_time.is_(None))

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("run_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("task_id", Key(), nullable=False),
    sa.Column("agent_name", Key(), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("cause", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("1")),
    sa.Column("parent_run_id", Key()),
    # No worker gets it earlier; NULL: at once.
    sa.Column("due_time", UtcTimestamp()),
    # Epoch of the latest lease: only grows.
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("crash_count", sa.Integer, nullable=False),
    sa.Column("worker_id", Key(), nullable=False),
    sa.Column("last_checkpoint_id", Key()),
    # {"code": text, "message": text, "retryable": boolean}
    sa.Column("failure", JsonText()),
    sa.Column("queue", Key(), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("start_time", UtcTimestamp()),
    sa.Column("end_time", UtcTimestamp()),
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.Column("last_event_sequence", sa.BigInteger),
    sa.ForeignKeyConstraint(["thread_key", "task_id"], ["tasks.thread_key", "tasks.task_id"]),
    one_of("state", RUN_STATES),
    sa.CheckConstraint("(state = 'ENDED') = (cause IS NOT NULL)", name="cause_when_ended"),
    sa.UniqueConstraint("scope_key", "run_id"),
    sa.Index(None, "scope_key", "create_time", "run_id"),
    sa.Index(None, "thread_key", "create_time", "run_id"),
)
# R5: one open run per session.
partial_index("runs_one_open", runs.c.thread_key, where=runs.c.state != sa.text("'ENDED'"), unique=True)
_queued = runs.c.state == sa.text("'QUEUED'")
partial_index("runs_queue", runs.c.queue, runs.c.priority.desc(), runs.c.create_time, runs.c.thread_key, where=_queued)
partial_index(
    "runs_queue_of_scope",
    runs.c.scope_key,
    runs.c.queue,
    runs.c.priority.desc(),
    runs.c.create_time,
    runs.c.thread_key,
    where=_queued,
)
partial_index("runs_running", runs.c.thread_key, where=runs.c.state == sa.text("'RUNNING'"))

# One row per leased run. Heartbeats update expire_time here and touch nothing else, so it has no index: the table is
# as small as the number of working workers.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("worker_id", Key(), nullable=False),
    sa.Column("ttl_seconds", sa.Double, nullable=False),
    sa.Column("expire_time", UtcTimestamp(), nullable=False),
    # When the run is taken back, however often the lease is renewed; NULL: never (R24).
    sa.Column("attempt_deadline", UtcTimestamp()),
    # Set once the task's cancellation was asked for: when the run loses its epoch (R9).
    sa.Column("cancel_deadline", UtcTimestamp()),
    sa.Column("cancel_reason", JsonText()),
    sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"]),
    sa.UniqueConstraint("scope_key", "run_id"),
)

tickets = sa.Table(
    "tickets",
    metadata,
    sa.Column("thread_key", Key(), primary_key=True),
    sa.Column("ticket_id", Key(), primary_key=True),
    sa.Column("scope_key", Key(), nullable=False),
    sa.Column("session_id", Key(), nullable=False),
    sa.Column("task_id", Key(), nullable=False),
    sa.Column("run_id", Key(), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    # A serialized Payload message.
    sa.Column("prompt", Bytes()),
    # JSON texts, as they came.
    sa.Column("answer_schema_json", sa.Text),
    sa.Column("allowed_decisions", JsonText(), nullable=False),
    sa.Column("deadline", UtcTimestamp()),
    sa.Column("default_decision", Key()),
    sa.Column("default_value_json", sa.Text),
    sa.Column("assignee", Key()),
    sa.Column("interrupt_id", Key()),
    sa.Column("decision", Key()),
    sa.Column("value_json", sa.Text),
    sa.Column("resolved_by_kind", sa.Text),
    sa.Column("resolved_by_id", Key()),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("end_time", UtcTimestamp()),
    # Sequence of the event that opened it: the tickets' order in the thread.
    sa.Column("first_event_sequence", sa.BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["thread_key", "run_id"], ["runs.thread_key", "runs.run_id"]),
    one_of("state", TICKET_STATES),
    sa.UniqueConstraint("scope_key", "ticket_id"),
    sa.Index(None, "scope_key", "create_time", "ticket_id"),
    sa.Index(None, "thread_key", "create_time", "ticket_id"),
)
_open = tickets.c.state == sa.text("'OPEN'")
partial_index("tickets_open", tickets.c.thread_key, where=_open)
partial_index("tickets_deadline", tickets.c.deadline, where=sa.and_(_open, tickets.c.deadline.is_not(None)))
