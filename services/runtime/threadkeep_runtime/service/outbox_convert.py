"""Messages of the outbox between the contract and the domain, with the checks that the descriptors can't say (R16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from threadkeep.runtime.v1 import outbox_pb2, task_pb2, webhook_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.outbox import SESSION, WEBHOOK, OutboxDraft, Target
from threadkeep_runtime.domain.values import Webhook
from threadkeep_runtime.domain.webhooks import WebhookRules
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.render import payload_to_proto
from threadkeep_runtime.store.rows import payload_of

DEFAULT_QUEUE = "default"

NewId = Callable[[], str]


def webhook_of(message: webhook_pb2.Webhook, rules: WebhookRules, path: str) -> Webhook:
    """An address that messages are posted to. Raises FieldInvalid; the problem never quotes the URL (X11)."""
    problem = rules.url_problem(message.url)
    if problem is not None:
        raise FieldInvalid(f"{path}.url", problem)
    secret = message.secret if message.HasField("secret") else None
    try:
        rules.secret_name(secret)
    except LookupError as error:
        raise FieldInvalid(f"{path}.secret", "names no secret of this server (setting webhook_secrets)") from error
    return Webhook(message.url, secret)


def drafts_of(
    drafts: Sequence[outbox_pb2.OutboxDraft], new_id: NewId, limits: Limits, rules: WebhookRules, path: str
) -> tuple[OutboxDraft, ...]:
    """Messages to send."""
    return tuple(_draft(draft, new_id, limits, rules, f"{path}[{index}]") for index, draft in enumerate(drafts))


def _draft(draft: outbox_pb2.OutboxDraft, new_id: NewId, limits: Limits, rules: WebhookRules, path: str) -> OutboxDraft:
    limits.check("max_outbox_message_bytes", draft.ByteSize())
    if draft.type.startswith(parse.OWN_TYPES):
        raise FieldInvalid(f"{path}.type", "must not begin with `threadkeep.`: those are the server's own")
    arrival = None
    which = draft.WhichOneof("target")
    if which == "session":
        target = Target(SESSION, draft.session.session_id)
        if draft.session.HasField("task"):
            # What is wrong with it must show now: nobody listens when it arrives.
            arrival_fields(draft.session.task, new_id, limits, 1, 1, f"{path}.session.task")
            arrival = draft.session.task.SerializeToString(deterministic=True)
    elif which == "webhook":
        target = Target(WEBHOOK, *webhook_of(draft.webhook, rules, f"{path}.webhook"))
    else:
        raise FieldInvalid(f"{path}.target", "needs a session or a webhook")
    return OutboxDraft(
        message_id=new_id(),
        target=target,
        type=draft.type,
        payload=parse.payload_of(draft.payload) if draft.HasField("payload") else None,
        arrival=arrival,
        dedupe_key=draft.dedupe_key if draft.HasField("dedupe_key") else None,
        correlation_id=draft.correlation_id if draft.HasField("correlation_id") else None,
    )


def arrival_fields(
    task: outbox_pb2.TaskOnArrival, new_id: NewId, limits: Limits, max_attempts: int, max_enqueued: int, path: str
) -> dict[str, Any]:
    """The fields of the command that opens the task. Raises FieldInvalid."""
    strategy = parse.enum_name(
        task_pb2.MultitaskStrategy, task.multitask_strategy, "MULTITASK_STRATEGY_", f"{path}.multitask_strategy"
    )
    given, shown = parse.task_input_of(task.input, new_id, limits)
    return {
        "task_id": task.task_id if task.HasField("task_id") else new_id(),
        "names_task": task.HasField("task_id"),
        "input": given,
        "input_json": shown,
        "queue": task.queue if task.HasField("queue") else DEFAULT_QUEUE,
        "priority": task.priority,
        "metadata": parse.metadata_of(task.metadata, f"{path}.metadata"),
        "retry": parse.retry_policy_of(task.retry_policy, max_attempts),
        "strategy": "ENQUEUE" if strategy == "UNSPECIFIED" else strategy,
        "max_enqueued": max_enqueued,
    }


def arrival_reader(
    new_id: NewId, limits: Limits, max_attempts: int
) -> Callable[[bytes], tuple[str | None, Mapping[str, Any]]]:
    """Reads stored TaskOnArrival messages when they arrive."""

    def read(stored: bytes) -> tuple[str | None, Mapping[str, Any]]:
        task = outbox_pb2.TaskOnArrival.FromString(stored)
        fields = arrival_fields(task, new_id, limits, max_attempts, limits["max_enqueued_tasks"], "task")
        return (task.agent_name if task.HasField("agent_name") else None), fields

    return read


def delivery_to_proto(row: Mapping[str, Any]) -> outbox_pb2.Delivery:
    """A message as lists show it."""
    delivery = outbox_pb2.Delivery(
        message_id=row["message_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        task_id=row["task_id"],
        commit_sequence=row["commit_sequence"],
        type=row["type"],
        payload=payload_to_proto(payload_of(row["payload"])),
        payload_size=row["payload_size"],
        dedupe_key=row["dedupe_key"],
        correlation_id=row["correlation_id"],
        state=f"DELIVERY_STATE_{row['state']}",  # type: ignore[arg-type]
        attempt=row["attempt"],
        last_error=row["last_error"],
        last_status=row["last_status"],
        create_time=row["create_time"],
        last_attempt_time=row["last_attempt_time"],
        settle_time=row["settle_time"],
        webhook_id=row["webhook_id"],
    )
    if row["kind"] == SESSION:
        delivery.target_session_id = row["target"]
    else:
        delivery.webhook.CopyFrom(webhook_pb2.Webhook(url=row["target"], secret=row["secret"]))
    return delivery
