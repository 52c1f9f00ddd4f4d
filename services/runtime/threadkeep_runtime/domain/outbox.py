"""Messages that commits send, to sessions and to webhooks, and their arrival in a session (R16). Pure.

A message's place in its target's line is given when the commit is written. What becomes of it afterwards is
bookkeeping of the delivery, like a lease's heartbeats, and no commit of the thread that sent it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from threadkeep_chassis.errors import LimitExceeded
from threadkeep_runtime.domain.event_json import JSON, json_payload, payload_json, task_json
from threadkeep_runtime.domain.values import BUILDER, Event, Payload, Task, Thread

SESSION, WEBHOOK = "SESSION", "WEBHOOK"
PENDING, DELIVERED, DEAD = "PENDING", "DELIVERED", "DEAD"
STATES = (PENDING, DELIVERED, DEAD)

RECEIVED = "threadkeep.inbox.received"

STANDARD, A2A = "STANDARD", "A2A"
"""What a task's webhook is told: in our own form, or in A2A's."""
A2A_JSON = "application/a2a+json"
CANCELED = "CANCELED"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Target(NamedTuple):
    """Where a message goes."""

    kind: str
    """SESSION or WEBHOOK."""
    address: str
    """A session id or a URL."""
    secret: str | None = None
    """The secret's name, if the sender named one."""

    def key_in(self, scope_key: str) -> str:
        """The key of the target's line: messages of one line arrive in order."""
        text = f"{scope_key}\x00{self.kind}\x00{self.address}"
        return hashlib.sha256(text.encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxDraft:
    """A message to send."""

    message_id: str
    target: Target
    type: str
    payload: Payload | None = None
    arrival: bytes | None = None
    """The task that it opens on arrival: a serialized TaskOnArrival message."""
    dedupe_key: str | None = None
    correlation_id: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 over all that makes this message this one: what a dedupe key stands for."""
        digest = hashlib.sha256()
        texts: tuple[str | None, ...] = (*self.target, self.type, self.correlation_id)
        content = self.payload
        if content is not None:
            attributes = json.dumps(sorted((content.attributes or {}).items()))
            texts = (*texts, content.content_type, attributes)
        data = None if content is None else content.data
        for part in (*(None if text is None else text.encode() for text in texts), data, self.arrival):
            digest.update(b"-" if part is None else f"{len(part)}:".encode() + part)
        return digest.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message that a commit sent. `sequence` is its place in the target's line; 0 until it is written."""

    thread_key: str
    message_id: str
    scope_key: str
    session_id: str
    commit_sequence: int
    run_id: str | None
    task_id: str | None
    kind: str
    target: str
    secret: str | None
    target_key: str
    sequence: int = 0
    type: str
    payload: Payload | None
    arrival: bytes | None
    dedupe_key: str | None
    fingerprint: bytes
    correlation_id: str | None
    webhook_id: str | None = None
    """The webhook of its task that it tells; what is posted and with which headers is that one's."""
    state: str = PENDING
    attempt: int = 0
    last_error: str = ""
    last_status: int = 0
    create_time: datetime
    last_attempt_time: datetime | None = None
    settle_time: datetime | None = None


class Line(NamedTuple):
    """What a sender needs to know of a target's line."""

    pending: int = 0
    known: Mapping[str, tuple[str, bytes]] = {}
    """(message id, fingerprint) by dedupe key, of the keys that the command names."""


NO_LINE = Line()


def message_of(
    draft: OutboxDraft, thread: Thread, now: datetime, run_id: str | None = None, task_id: str | None = None
) -> OutboxMessage:
    """The message that a draft becomes in the thread's present commit."""
    return OutboxMessage(
        thread_key=thread.thread_key,
        message_id=draft.message_id,
        scope_key=thread.scope_key,
        session_id=thread.session_id,
        commit_sequence=thread.commit_sequence,
        run_id=run_id,
        task_id=task_id,
        kind=draft.target.kind,
        target=draft.target.address,
        secret=draft.target.secret,
        target_key=draft.target.key_in(thread.scope_key),
        type=draft.type,
        payload=draft.payload,
        arrival=draft.arrival,
        dedupe_key=draft.dedupe_key,
        fingerprint=draft.fingerprint,
        correlation_id=draft.correlation_id,
        create_time=now,
    )


def notice_of(task: Task, thread: Thread, now: datetime, message_id: str) -> OutboxMessage:
    """The message that tells a task's webhook of its end."""
    assert task.webhook is not None
    draft = OutboxDraft(
        message_id=message_id,
        target=Target(WEBHOOK, task.webhook.url, task.webhook.secret),
        type=f"threadkeep.task.{task.state.lower()}",
        payload=json_payload({"task": task_json(task)}),
    )
    return message_of(draft, thread, now, task.run_id, task.task_id)


def state_notices(task: Task, thread: Thread, now: datetime, new_id: Callable[[], str]) -> Iterator[OutboxMessage]:
    """The messages that tell a task's webhooks of its new state."""
    for webhook in task.webhooks:
        if webhook.format == A2A:
            payload = Payload(A2A_JSON, _a2a_body(task, now))
        else:
            payload = json_payload({"task": task_json(task)})
        draft = OutboxDraft(
            message_id=new_id(),
            target=Target(WEBHOOK, webhook.url, webhook.secret),
            type=f"threadkeep.task.{task.state.lower()}",
            payload=payload,
        )
        yield replace(message_of(draft, thread, now, task.run_id, task.task_id), webhook_id=webhook.webhook_id)


def _a2a_body(task: Task, now: datetime) -> bytes:
    """A2A's StreamResponse of the state, as JSON: its states are ours."""
    context = {"taskId": task.task_id, "contextId": task.session_id}
    status: dict[str, Any] = {
        "state": f"TASK_STATE_{task.state}",
        "timestamp": now.isoformat().replace("+00:00", "Z"),
    }
    text = task.failure.message if task.failure is not None else task.cancel_reason if task.state == CANCELED else None
    if text:
        moment = (now - _EPOCH) // timedelta(microseconds=1)
        said = {
            "messageId": f"status-{task.task_id}-{moment}",
            **context,
            "role": "ROLE_AGENT",
            "parts": [{"text": text}],
        }
        status["message"] = said
    return json.dumps({"statusUpdate": {**context, "status": status}}, ensure_ascii=False).encode()


def check_room(line: Line, sent: int, maximum: int) -> None:
    """Raises LimitExceeded if the line is full."""
    if line.pending + sent >= maximum:
        raise LimitExceeded(
            "max_pending_deliveries", maximum, line.pending + sent + 1, "Per target. Wait, or settle its dead letters."
        )


def inbox_event(message: OutboxMessage) -> Event:
    """The fact that the message arrived: its id is the message's, so that it arrives once (R16)."""
    shown: dict[str, Any] = {
        "message_id": message.message_id,
        "type": message.type,
        "session_id": message.session_id,
        "task_id": message.task_id,
        "run_id": message.run_id,
        "correlation_id": message.correlation_id,
        "payload": payload_json(message.payload),
    }
    return Event(
        message.message_id,
        True,
        RECEIVED,
        BUILDER,
        None,
        None,
        json_payload({name: value for name, value in shown.items() if value is not None}),
        1,
        message.message_id,
        message.correlation_id,
    )


def webhook_body(message: OutboxMessage, scope: Mapping[str, str]) -> bytes:
    """The body that is posted: the same bytes in every attempt. A JSON payload goes in as it is."""
    content = message.payload
    if message.webhook_id is not None and content is not None and content.content_type == A2A_JSON:
        return content.data
    if content is not None and content.content_type == JSON and not content.attributes:
        data = content.data
    else:
        data = json.dumps(payload_json(content), ensure_ascii=False, separators=(",", ":")).encode()
    facts: dict[str, Any] = {
        "type": message.type,
        "timestamp": message.create_time.isoformat().replace("+00:00", "Z"),
        "message_id": message.message_id,
        "session_id": message.session_id,
        "task_id": message.task_id,
        "run_id": message.run_id,
        "correlation_id": message.correlation_id,
        "scope": dict(sorted(scope.items())),
    }
    shown = {name: value for name, value in facts.items() if value is not None}
    opening = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return opening[:-1].encode() + b',"data":' + data + b"}"


def pause_seconds(attempt: int, first: float, most: float, jitter: float) -> float:
    """The pause after this attempt (from 1): twice as long each time, at least half of it, the jitter says the rest."""
    full = first
    for _ in range(attempt - 1):
        full *= 2
        if full >= most:
            break
    return min(full, most) * (0.5 + 0.5 * jitter)
