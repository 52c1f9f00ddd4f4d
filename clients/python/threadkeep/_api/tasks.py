"""Tasks."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from threadkeep._api.values import Input, given, to_duration, to_input, to_timestamp
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import session_service_pb2, task_pb2, task_service_pb2, webhook_pb2
from threadkeep.runtime.v1.task_pb2 import Task

_SUBMIT = method(task_service_pb2, "TaskService", "SubmitTask")
_GET = method(task_service_pb2, "TaskService", "GetTask")
_LIST = method(task_service_pb2, "TaskService", "ListTasks")
_WAIT = method(task_service_pb2, "TaskService", "WaitTask")
_CANCEL = method(task_service_pb2, "TaskService", "CancelTask")
_CANCEL_MANY = method(task_service_pb2, "TaskService", "CancelTasks")
_RETRY = method(task_service_pb2, "TaskService", "RetryTask")
_PUT_WEBHOOK = method(task_service_pb2, "TaskService", "PutTaskWebhook")
_LIST_WEBHOOKS = method(task_service_pb2, "TaskService", "ListTaskWebhooks")
_DELETE_WEBHOOK = method(task_service_pb2, "TaskService", "DeleteTaskWebhook")

DEFAULT_WAIT = 60.0
LONGEST_WAIT = 600.0


def submit(
    input: Input,
    *,
    session_id: str | None = None,
    create_session: session_service_pb2.SessionDraft | None = None,
    create_missing: bool = False,
    agent_name: str | None = None,
    task_id: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    metadata: Mapping[str, str] | None = None,
    max_attempts: int | None = None,
    retry_policy: task_pb2.RetryPolicy | None = None,
    multitask_strategy: task_pb2.MultitaskStrategy.ValueType | None = None,
    webhook: webhook_pb2.Webhook | str | None = None,
    webhooks: Sequence[webhook_pb2.TaskWebhookDraft] = (),
    not_before: datetime.datetime | None = None,
    total_timeout: float | None = None,
    attempt_timeout: float | None = None,
    waiting_timeout: float | None = None,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[task_service_pb2.SubmitTaskResponse]:
    """Submits a task; gives `task` and `receipt`.

    `input` is text, a conversation, or any value (see `to_input`). The task goes into the session `session_id`, or into
    a new one (`create_session`, by default one with an id of the server's choice); `create_missing` makes the session
    `session_id` if it does not exist. If that has an open run, the `multitask_strategy` says what happens: it is
    refused unless one is given. `retry_policy` says how often the task is tried again, and when; `max_attempts` is its
    short form. Before `not_before` (with a time zone) it does not start. The timeouts are in seconds: from when it may
    start until its end, for one lease of a run, and until a worker first has it. Its end is posted to the `webhook`,
    each new state to the `webhooks`.
    Raises SessionNotFound, SessionBusy, AgentUnresolved, IdTaken, LimitExceeded, FieldInvalid.
    """
    if max_attempts is not None:
        if retry_policy is not None:
            raise ValueError("max_attempts is a part of retry_policy; give one of them")
        retry_policy = task_pb2.RetryPolicy(max_attempts=max_attempts)
    request = task_service_pb2.SubmitTaskRequest(
        request_id=request_id or new_request_id(),
        input=to_input(input),
        priority=priority,
        metadata=dict(metadata or {}),
        webhooks=webhooks,
        **given(
            session_id=session_id,
            create_session=create_session,
            agent_name=agent_name,
            task_id=task_id,
            queue=queue,
            actor=actor,
            multitask_strategy=multitask_strategy,
            retry_policy=retry_policy,
            webhook=webhook_pb2.Webhook(url=webhook) if isinstance(webhook, str) else webhook,
            not_before=to_timestamp(not_before),
        ),
    )
    for name, seconds in (("total", total_timeout), ("attempt", attempt_timeout), ("waiting", waiting_timeout)):
        if seconds is not None:
            getattr(request.timeouts, name).CopyFrom(to_duration(seconds))
    if create_missing:
        request.if_session_missing = task_pb2.IF_SESSION_MISSING_CREATE
    if session_id is not None and create_session is not None:
        raise ValueError("a task goes into an existing session or a new one, not both")
    if session_id is None and create_session is None:
        request.create_session.SetInParent()
    return Call(_SUBMIT, request, whole)


def get(task_id: str) -> Call[Task]:
    """Reads a task. Raises TaskNotFound."""
    return Call(_GET, task_service_pb2.GetTaskRequest(task_id=task_id), lambda response: response.task)


def list(
    *,
    session_id: str | None = None,
    states: Sequence[task_pb2.TaskState.ValueType] = (),
    agent_name: str | None = None,
    schedule_id: str | None = None,
    page_size: int = 0,
) -> PagedCall[Task]:
    """Tasks of the scope, newest first."""
    request = task_service_pb2.ListTasksRequest(
        page_size=page_size,
        states=states,
        **given(session_id=session_id, agent_name=agent_name, schedule_id=schedule_id),
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.tasks)


def wait(task_id: str, *, timeout: float = DEFAULT_WAIT) -> Call[Task]:
    """Waits until the task is final, or needs input or credentials. At most 600 s. Raises TaskNotFound, WaitTimeout."""
    timeout = min(timeout, LONGEST_WAIT)
    request = task_service_pb2.WaitTaskRequest(task_id=task_id, timeout=to_duration(timeout))
    return Call(_WAIT, request, lambda response: response.task, wait=timeout)


def cancel(
    task_id: str,
    *,
    reason: str = "",
    grace_period: float | None = None,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[task_service_pb2.CancelTaskResponse]:
    """Asks for a cancellation; gives `task` and `receipt`. `grace_period` is in seconds. Raises TaskNotFound,
    TaskTerminal."""
    request = task_service_pb2.CancelTaskRequest(
        request_id=request_id or new_request_id(),
        task_id=task_id,
        reason=reason,
        **given(grace_period=to_duration(grace_period), actor=actor),
    )
    return Call(_CANCEL, request, whole)


def cancel_many(
    *,
    session_id: str | None = None,
    states: Sequence[task_pb2.TaskState.ValueType] = (),
    agent_name: str | None = None,
    queue: str | None = None,
    reason: str = "",
    grace_period: float | None = None,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[int]:
    """Asks for the cancellation of all tasks that have not ended and that the filter selects, session by session; gives
    how many. At least one of session_id, states, agent_name and queue is required."""
    request = task_service_pb2.CancelTasksRequest(
        request_id=request_id or new_request_id(),
        states=states,
        reason=reason,
        **given(
            session_id=session_id,
            agent_name=agent_name,
            queue=queue,
            grace_period=to_duration(grace_period),
            actor=actor,
        ),
    )
    return Call(_CANCEL_MANY, request, lambda response: response.task_count)


def retry(
    task_id: str,
    *,
    new_task_id: str | None = None,
    keep_manifest: bool = False,
    multitask_strategy: task_pb2.MultitaskStrategy.ValueType | None = None,
    not_before: datetime.datetime | None = None,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[task_service_pb2.RetryTaskResponse]:
    """Submits the work of a task that has ended once more, in its session; gives the new `task` and `receipt`.

    The agent is resolved anew unless the old manifest is kept. Raises TaskNotFound, TaskNotTerminal, and what `submit`
    raises.
    """
    request = task_service_pb2.RetryTaskRequest(
        request_id=request_id or new_request_id(),
        task_id=task_id,
        keep_manifest=keep_manifest,
        **given(
            new_task_id=new_task_id,
            multitask_strategy=multitask_strategy,
            not_before=to_timestamp(not_before),
            actor=actor,
        ),
    )
    return Call(_RETRY, request, whole)


def put_webhook(
    task_id: str,
    webhook: webhook_pb2.TaskWebhookDraft | str,
    *,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[webhook_pb2.TaskWebhook]:
    """Puts a webhook (or the webhook of this URL) on a task, which is told of each new state. Raises TaskNotFound,
    LimitExceeded, FieldInvalid (an address that the server does not allow)."""
    if isinstance(webhook, str):
        webhook = webhook_pb2.TaskWebhookDraft(webhook=webhook_pb2.Webhook(url=webhook))
    request = task_service_pb2.PutTaskWebhookRequest(
        request_id=request_id or new_request_id(), task_id=task_id, webhook=webhook, **given(actor=actor)
    )
    return Call(_PUT_WEBHOOK, request, lambda response: response.webhook)


def list_webhooks(task_id: str, *, page_size: int = 0) -> PagedCall[webhook_pb2.TaskWebhook]:
    """A task's webhooks, by id. Raises TaskNotFound."""
    request = task_service_pb2.ListTaskWebhooksRequest(task_id=task_id, page_size=page_size)
    return PagedCall(Call(_LIST_WEBHOOKS, request, whole), lambda page: page.webhooks)


def delete_webhook(
    task_id: str,
    webhook_id: str,
    *,
    actor: payload_pb2.Actor | None = None,
    request_id: str | None = None,
) -> Call[task_service_pb2.DeleteTaskWebhookResponse]:
    """Takes a webhook off a task; gives `receipt`. Raises TaskNotFound."""
    request = task_service_pb2.DeleteTaskWebhookRequest(
        request_id=request_id or new_request_id(), task_id=task_id, webhook_id=webhook_id, **given(actor=actor)
    )
    return Call(_DELETE_WEBHOOK, request, whole)
