"""What a submission says, in the words of the domain: SubmitTask's request, and what a schedule submits."""

from __future__ import annotations

from typing import Any, NamedTuple

from threadkeep.runtime.v1 import task_pb2, task_service_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_runtime.domain.commands import SessionDraft
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.outbox_convert import webhook_of
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.task_webhook_convert import task_webhooks_of

DEFAULT_QUEUE = "default"


class Submission(NamedTuple):
    """A submission without its manifest."""

    session_id: str
    agent_name: str | None
    """None: the session's agent."""
    rest: dict[str, Any]
    """The other fields of the command."""


def submission_of(request: task_service_pb2.SubmitTaskRequest, rooms: Rooms) -> Submission:
    """What the request says, with the ids that the server assigns, and every default. Raises FieldInvalid,
    LimitExceeded."""
    which = request.WhichOneof("session")
    if which is None:
        raise FieldInvalid("session", "needs session_id or create_session")
    create = if_missing = None
    if _creates_missing(request.if_session_missing):
        if which != "session_id":
            raise FieldInvalid("if_session_missing", "is CREATE only with session_id")
        if_missing = SessionDraft()
    if which == "create_session":
        create = parse.session_draft_of(request.create_session, "create_session")
        draft = request.create_session
        session_id = draft.session_id if draft.HasField("session_id") else new_id()
    else:
        session_id = request.session_id
    given, shown = parse.task_input_of(request.input, new_id, rooms.limits)
    rest: dict[str, Any] = {
        "create": create,
        "task_id": request.task_id if request.HasField("task_id") else new_id(),
        "names_task": request.HasField("task_id"),
        "run_id": new_id(),
        "input": given,
        "input_json": shown,
        "queue": request.queue if request.HasField("queue") else DEFAULT_QUEUE,
        "priority": request.priority,
        "metadata": parse.metadata_of(request.metadata, "metadata"),
        "retry": parse.retry_policy_of(request.retry_policy, rooms.settings.max_attempts),
        "strategy": strategy_of(request.multitask_strategy),
        "max_enqueued": rooms.limits["max_enqueued_tasks"],
        "webhook": webhook_of(request.webhook, rooms.webhooks, "webhook") if request.HasField("webhook") else None,
        "webhooks": task_webhooks_of(request.webhooks, rooms.webhooks, "webhooks"),
        "if_missing": if_missing,
        "not_before": parse.optional_time(request, "not_before"),
        "timeouts": parse.timeouts_of(request.timeouts),
    }
    return Submission(session_id, request.agent_name if request.HasField("agent_name") else None, rest)


def _creates_missing(choice: int) -> bool:
    name = parse.enum_name(task_pb2.IfSessionMissing, choice, "IF_SESSION_MISSING_", "if_session_missing")
    return name == "CREATE"


def strategy_of(strategy: int) -> str:
    """REJECT if nothing is said. Raises FieldInvalid."""
    name = parse.enum_name(task_pb2.MultitaskStrategy, strategy, "MULTITASK_STRATEGY_", "multitask_strategy")
    return "REJECT" if name == "UNSPECIFIED" else name
