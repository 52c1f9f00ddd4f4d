"""The outbox: messages that were sent, dead letters, and how messages are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep._api.values import Input, given, to_input, to_payload
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.runtime.v1 import outbox_pb2, outbox_service_pb2, task_pb2, webhook_pb2
from threadkeep.runtime.v1.outbox_pb2 import Delivery

_DELIVERIES = method(outbox_service_pb2, "OutboxService", "ListDeliveries")
_DEAD_LETTERS = method(outbox_service_pb2, "OutboxService", "ListDeadLetters")
_REQUEUE = method(outbox_service_pb2, "OutboxService", "RequeueDeadLetters")
_PURGE = method(outbox_service_pb2, "OutboxService", "PurgeDeadLetters")


def webhook(url: str, *, secret: str | None = None) -> webhook_pb2.Webhook:
    """An address that messages are posted to; `secret` is the name of a signing secret that the server knows."""
    return webhook_pb2.Webhook(url=url, **given(secret=secret))


def task_on_arrival(
    input: Input,
    *,
    task_id: str | None = None,
    agent_name: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    metadata: Mapping[str, str] | None = None,
    retry_policy: task_pb2.RetryPolicy | None = None,
    multitask_strategy: task_pb2.MultitaskStrategy.ValueType | None = None,
) -> outbox_pb2.TaskOnArrival:
    """A task that a message opens when it reaches its session; by default behind the tasks that the session has."""
    return outbox_pb2.TaskOnArrival(
        input=to_input(input),
        priority=priority,
        metadata=dict(metadata or {}),
        **given(
            task_id=task_id,
            agent_name=agent_name,
            queue=queue,
            retry_policy=retry_policy,
            multitask_strategy=multitask_strategy,
        ),
    )


def message(
    type: str,
    value: Any = None,
    *,
    to_session: str | None = None,
    to_webhook: webhook_pb2.Webhook | str | None = None,
    task: outbox_pb2.TaskOnArrival | None = None,
    dedupe_key: str | None = None,
    correlation_id: str | None = None,
) -> outbox_pb2.OutboxDraft:
    """A message for a commit's `outbox`, to a session (where it may open a task) or to a webhook.

    `value` is a Payload, or anything that JSON holds.
    """
    if (to_session is None) == (to_webhook is None):
        raise ValueError("a message goes to a session or to a webhook: give one of them")
    if task is not None and to_session is None:
        raise ValueError("a message opens a task in a session only")
    draft = outbox_pb2.OutboxDraft(type=type, **given(dedupe_key=dedupe_key, correlation_id=correlation_id))
    if value is not None:
        draft.payload.CopyFrom(to_payload(value))
    if to_session is not None:
        draft.session.CopyFrom(outbox_pb2.SessionTarget(session_id=to_session, **given(task=task)))
    elif to_webhook is not None:
        draft.webhook.CopyFrom(webhook(to_webhook) if isinstance(to_webhook, str) else to_webhook)
    return draft


def list_deliveries(
    *,
    session_id: str | None = None,
    states: Sequence[outbox_pb2.DeliveryState.ValueType] = (),
    include_payload: bool = False,
    page_size: int = 0,
) -> PagedCall[Delivery]:
    """Messages of the scope in any state, newest first; `session_id` is the sender."""
    request = outbox_service_pb2.ListDeliveriesRequest(
        page_size=page_size, states=states, include_payload=include_payload, **given(session_id=session_id)
    )
    return PagedCall(Call(_DELIVERIES, request, whole), lambda page: page.deliveries)


def list_dead_letters(
    *, session_id: str | None = None, include_payload: bool = False, page_size: int = 0
) -> PagedCall[Delivery]:
    """Dead letters of the scope, newest first."""
    request = outbox_service_pb2.ListDeadLettersRequest(
        page_size=page_size, include_payload=include_payload, **given(session_id=session_id)
    )
    return PagedCall(Call(_DEAD_LETTERS, request, whole), lambda page: page.dead_letters)


def requeue(
    message_ids: Sequence[str] = (), *, request_id: str | None = None
) -> Call[outbox_service_pb2.RequeueDeadLettersResponse]:
    """Sends dead letters again, all of them if none is named, up to 1000; gives `requeued_count` and `has_more`."""
    request = outbox_service_pb2.RequeueDeadLettersRequest(
        request_id=request_id or new_request_id(), message_ids=message_ids
    )
    return Call(_REQUEUE, request, whole)


def purge(
    message_ids: Sequence[str] = (), *, request_id: str | None = None
) -> Call[outbox_service_pb2.PurgeDeadLettersResponse]:
    """Deletes dead letters, all of them if none is named, up to 1000; gives `purged_count` and `has_more`."""
    request = outbox_service_pb2.PurgeDeadLettersRequest(
        request_id=request_id or new_request_id(), message_ids=message_ids
    )
    return Call(_PURGE, request, whole)
