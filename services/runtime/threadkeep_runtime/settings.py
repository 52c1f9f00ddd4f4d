"""What the runtime can be told, beside what every server can. Durations in seconds, sizes in bytes."""

from __future__ import annotations

from pydantic import Field

from threadkeep_chassis.limits import Limit
from threadkeep_chassis.settings import ServerSettings
from threadkeep_runtime.feeds.settings import FeedSettings
from threadkeep_runtime.loops.outbox_settings import OutboxSettings

LIMITS = (
    Limit("max_event_bytes", 4 * 1024 * 1024, "Store the content as an artifact and name it in the event."),
    Limit("max_task_input_bytes", 4 * 1024 * 1024, "Store the content as an artifact and name it in the input."),
    Limit("max_task_result_bytes", 4 * 1024 * 1024, "Store the content as an artifact and name it in the result."),
    Limit("max_audit_bytes", 64 * 1024, "Store the content as an artifact and name it in the details."),
    Limit("max_verified_commits", 1000, "Per call. Follow next_page_token."),
    Limit("max_message_fact_bytes", 1024 * 1024, "Store the content as an artifact and name it in the message."),
    Limit("max_ticket_bytes", 1024 * 1024, "Store the content as an artifact and name it in the prompt."),
    Limit("max_store_value_bytes", 4 * 1024 * 1024, "Store the content as an artifact and name it in the item."),
    Limit("max_store_batch_bytes", 8 * 1024 * 1024, "Send the searches alone, or with smaller limits."),
    Limit("max_store_ranked_items", 10_000, "Ask for fewer of the nearest items."),
    Limit(
        "max_checkpoint_value_bytes", 256 * 1024 * 1024, "Store the content as an artifact and name it in the state."
    ),
    Limit("max_staged_bytes", 1024 * 1024 * 1024, "Per scope. Commit what is staged, or wait until it has expired."),
    Limit("max_pending_commits", 4096, "Slow down, or add replicas."),
    Limit("max_enqueued_tasks", 1000, "Per session. Wait for its tasks, or cancel some."),
    Limit("max_queued_tasks", 250_000, "Per scope and queue. Let workers catch up, or cancel tasks."),
    Limit("max_state_keys", 1000, "Per scope. Put what belongs together into one key."),
    Limit("max_state_value_bytes", 1024 * 1024, "Store the content as an artifact and name it in the value."),
    Limit("max_state_schema_bytes", 64 * 1024, "Describe less of the value."),
    Limit("max_outbox_message_bytes", 1024 * 1024, "Store the content as an artifact and name it in the message."),
    Limit("max_pending_deliveries", 10_000, "Per target. Wait for its deliveries, or settle its dead letters."),
    Limit("max_schema_steps", 10_000, "Per answer or commit. Make the value or its schema smaller."),
    Limit("max_task_webhooks", 16, "Per task. Delete some of its webhooks."),
    Limit("max_schedules", 1000, "Per scope. Delete some, or submit tasks yourself."),
    Limit("max_waiting_workers", 10_000, "Let fewer workers wait on one server, or add replicas."),
)


class RuntimeSettings(ServerSettings):
    """Settings of the runtime service."""

    lease_ttl_seconds: float = Field(
        30.0, ge=1, le=3600, description="Lease without a heartbeat, if none is asked for."
    )
    queue_limits: dict[str, int] = Field(
        default_factory=dict,
        description="How many of a scope's tasks may wait for their first worker, by queue. The others: the limit "
        "max_queued_tasks.",
    )
    cancel_grace_seconds: float = Field(
        30.0,
        ge=0,
        description="How long a leased run may take to end after a cancellation, if the caller says nothing.",
    )
    max_attempts: int = Field(3, ge=1, description="Leases of a run that may crash, if the task says nothing.")
    recovery_interval_seconds: float = Field(
        1.0, gt=0, description="How often expired leases, over-long cancellations and passed deadlines are looked for."
    )
    schedule_interval_seconds: float = Field(
        1.0, gt=0, description="How often schedules with a fire that is due are looked for."
    )
    schedule_grace_seconds: float = Field(
        60.0, ge=1, le=3600, description="How late a schedule's fire may be before it counts as missed."
    )
    store_sweep_interval_seconds: float = Field(
        60.0, gt=0, description="How often expired memory items are deleted; they are gone for readers at once."
    )
    state_value_bytes: int = Field(
        64 * 1024, ge=1, description="Most bytes of a state key's value, if its declaration says nothing."
    )
    sweep_interval_seconds: float = Field(
        5.0, gt=0, description="How often rows of deleted sessions are looked for that a call has left behind."
    )
    retention_interval_seconds: float = Field(
        3600.0, gt=0, description="How often the scopes' retention policies are applied."
    )
    sweep_rows: int = Field(1000, ge=1, description="Rows of what was deleted or purged that go in one transaction.")
    inline_value_bytes: int = Field(
        1024 * 1024,
        ge=1,
        description="Size from which checkpoint values are left out of replies; ReadValue streams them.",
    )
    staged_value_ttl_seconds: float = Field(
        3600.0, ge=1, description="How long a staged value waits for its commit, from its latest chunk on."
    )
    staged_sweep_interval_seconds: float = Field(
        300.0, gt=0, description="How often staged values that no commit has used up are looked for."
    )
    pipeline_corridors: int = Field(
        2,
        ge=1,
        le=64,
        description="Write transactions of the pipeline under way at once. Each serves the log partitions whose number "
        "leaves its own remainder: fewer make larger batches, more overlap more waiting for the disk.",
    )
    max_batch_commits: int = Field(64, ge=1, le=1024, description="Commits in one transaction of the pipeline.")
    max_batch_bytes: int = Field(1024 * 1024, ge=1, description="Bytes in one such transaction; more goes alone.")
    feeds: FeedSettings = Field(default_factory=FeedSettings, description="Bounds of event feeds and live views.")
    outbox: OutboxSettings = Field(default_factory=OutboxSettings, description="How the outbox is delivered.")
    failpoint: str = Field(
        "",
        description="For tests: where the process kills itself (before_first_statement, before_commit, after_commit, "
        "after_delivery, during_sweep), with `:n` after the n first times. Empty: nowhere.",
    )
