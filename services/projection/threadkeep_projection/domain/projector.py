"""What each event does to a thread's summaries and messages.

`Draft` is one thread's rows while events are applied to them; `apply` reads nothing and asks nobody, so that following
live and rebuilding give the same rows (P3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from threadkeep_projection.domain import conversation, facts
from threadkeep_projection.domain.values import (
    NO_ROLE,
    NO_USAGE,
    ROLES,
    USER,
    Channel,
    Content,
    Event,
    Input,
    Introduction,
    Message,
    Part,
    Poison,
    Run,
    Session,
    Task,
    Usage,
)

PREFIX = "threadkeep."
CHECKPOINT_SAVED = "threadkeep.checkpoint.saved"
CHECKPOINT_DELETED = "threadkeep.checkpoint.deleted"
CHECKPOINT_ROLLED_BACK = "threadkeep.checkpoint.rolled_back"
TASK_SUBMITTED = "threadkeep.task.submitted"
PURGES = frozenset(("threadkeep.session.purged", "threadkeep.checkpoint.pruned"))
"""Events after which a session is built anew from what is left (P3)."""
MESSAGES_CHANNEL = "messages"

TASK_STATES = {
    "working": "WORKING",
    "input_required": "INPUT_REQUIRED",
    "auth_required": "AUTH_REQUIRED",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "canceled": "CANCELED",
    "rejected": "REJECTED",
}
TERMINAL_TASK_STATES = frozenset(("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
TERMINAL_TASK_TYPES = frozenset(
    f"threadkeep.task.{name}" for name, state in TASK_STATES.items() if state in TERMINAL_TASK_STATES
)


class Unprojectable(ValueError):
    """An event that no row can stand for. Its text says why, without anything of the payload."""


@dataclass
class Draft:
    """A thread's rows, as loaded and as they become. `messages` and `inputs` are only loaded when `needs_*` says so."""

    session_id: str
    session: Session | None = None
    tasks: dict[str, Task] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    session_usage: Usage = NO_USAGE
    task_usage: dict[str, Usage] = field(default_factory=dict)
    run_usage: dict[str, Usage] = field(default_factory=dict)
    """What the applied events add to the stored usage, which can be negative."""
    forgets_messages: bool = False
    """True once every stored message was given up; those in `messages` are then all there are."""
    poison: dict[int, Poison] = field(default_factory=dict)
    """Applied events that could not be projected, by sequence."""
    is_deleted: bool = False
    """True once the session was deleted: none of its rows is left, and no event follows."""

    def set_messages(self, changed: Iterable[Message]) -> None:
        """Takes over changed messages and accounts for the tokens that they took."""
        for one in changed:
            message = conversation.with_model(one)
            before = self.messages.get(message.message_id)
            known = before.usage if before is not None else None
            self._account(message, (message.usage or NO_USAGE) + -(known or NO_USAGE))
            self.messages[message.message_id] = message

    def forget_messages(self) -> None:
        """Gives up all messages, and what they took."""
        for message in self.messages.values():
            self._account(message, -(message.usage or NO_USAGE))
        self.messages = {}
        self.forgets_messages = True

    @property
    def message_count(self) -> int:
        """How many messages the conversation has."""
        return sum(1 for message in self.messages.values() if message.position is not None)

    def _account(self, message: Message, usage: Usage) -> None:
        if usage == NO_USAGE:
            return
        self.session_usage += usage
        task_id, run_id = message.introduction.task_id, message.introduction.run_id
        if task_id is not None:
            self.task_usage[task_id] = self.task_usage.get(task_id, NO_USAGE) + usage
        if run_id is not None:
            self.run_usage[run_id] = self.run_usage.get(run_id, NO_USAGE) + usage


def needs_messages(event: Event) -> bool:
    """True if `apply` reads the thread's messages for this event."""
    return (
        event.type in (TASK_SUBMITTED, CHECKPOINT_DELETED, CHECKPOINT_ROLLED_BACK)
        or event.type.startswith(facts.PREFIX)
        or wanted_checkpoint(event) is not None
    )


def needs_inputs(event: Event) -> bool:
    """True if `apply` reads the thread's inputs for this event."""
    listed = (TASK_SUBMITTED, CHECKPOINT_DELETED, CHECKPOINT_ROLLED_BACK)
    return event.type in listed or event.type in TERMINAL_TASK_TYPES


def wanted_checkpoint(event: Event) -> str | None:
    """The id of the root namespace's checkpoint whose `messages` channel `apply` wants, if any."""
    if _is_of_facts(event):
        return None
    if event.type == CHECKPOINT_ROLLED_BACK:
        return _text(_object(event.payload).get("root_checkpoint_id")) or None
    if event.type != CHECKPOINT_SAVED:
        return None
    payload = _object(event.payload)
    channels = payload.get("channels")
    if payload.get("checkpoint_ns", "") != "" or not isinstance(channels, list) or MESSAGES_CHANNEL not in channels:
        return None
    checkpoint_id = payload.get("checkpoint_id")
    return checkpoint_id if isinstance(checkpoint_id, str) and checkpoint_id else None


def _is_of_facts(event: Event) -> bool:
    """True if the event is about a checkpoint of a session whose messages are facts: nobody looks into it (P2)."""
    return _object(event.payload).get("message_source") == "MESSAGE_SOURCE_FACTS"


def named_rows(event: Event) -> tuple[set[str], set[str]]:
    """The (task ids, run ids) whose rows `apply` reads for this event."""
    tasks = {event.task_id} if event.task_id else set()
    runs = {event.run_id} if event.run_id else set()
    if event.type == TASK_SUBMITTED:
        task = _object(_object(event.payload).get("task"))
        tasks.add(_text(task.get("task_id")))
        runs.add(_text(task.get("run_id")))
    return tasks - {""}, runs - {""}


def apply(draft: Draft, event: Event, channel: Channel | None = None) -> bool:
    """Applies one event; `channel` is the decoded value that `wanted_checkpoint` asked for, if it could be had.

    Returns False for an event that was applied before: then nothing changed.
    """
    session = draft.session
    if session is None:
        session = Session(draft.session_id, create_time=event.time, update_time=event.time)
    elif event.sequence <= session.event_sequence:
        return False
    draft.session = replace(session, event_sequence=event.sequence, update_time=event.time)
    if event.type.startswith(PREFIX):
        area, _, what = event.type.removeprefix(PREFIX).partition(".")
        handler = _HANDLERS.get(area)
        if handler is not None:
            handler(draft, event, what, channel)
    if needs_messages(event):
        draft.session = replace(draft.session, message_count=draft.message_count)
    return True


def _on_session(draft: Draft, event: Event, what: str, _: Channel | None) -> None:
    if what == "deleted":
        draft.is_deleted = True
        return
    if what == "purged":
        _purge(draft, event)
    document = _object(_object(event.payload).get("session"))
    if what not in ("created", "updated", "purged") or not document or draft.session is None:
        return
    draft.session = replace(
        draft.session,
        title=_text(document.get("title")),
        agent_name=_text(document.get("agent_name")),
        metadata=_entries(document.get("metadata")),
    )


def _purge(draft: Draft, event: Event) -> None:
    """Takes out the tasks that are gone; the session is as old as it was, though its first events are gone."""
    assert draft.session is not None
    payload = _object(event.payload)
    listed = payload.get("task_ids")
    gone = {_text(one) for one in listed} if isinstance(listed, list) else set()
    draft.tasks = {key: task for key, task in draft.tasks.items() if key not in gone}
    draft.runs = {key: run for key, run in draft.runs.items() if run.task_id not in gone}
    begun = _time(_object(payload.get("session")).get("create_time"))
    if begun is not None:
        draft.session = replace(draft.session, create_time=begun)


def _on_task(draft: Draft, event: Event, what: str, _: Channel | None) -> None:
    assert draft.session is not None
    if what == "submitted":
        _submit(draft, event)
        return
    task = draft.tasks.get(event.task_id or "")
    state = TASK_STATES.get(what)
    if task is None:
        return
    if state is None:
        # A cancellation was asked for, or something that a newer runtime tells.
        draft.tasks[task.task_id] = replace(task, update_time=event.time)
        return
    failure = _failure(_object(event.payload).get("failure")) if state == "FAILED" else None
    draft.tasks[task.task_id] = replace(
        task,
        state=state,
        failure=failure,
        update_time=event.time,
        end_time=event.time if state in TERMINAL_TASK_STATES else None,
    )
    if state in TERMINAL_TASK_STATES:
        draft.inputs = {key: one for key, one in draft.inputs.items() if one.introduction.task_id != task.task_id}


def _submit(draft: Draft, event: Event) -> None:
    assert draft.session is not None
    document = _object(_object(event.payload).get("task"))
    task_id = _text(document.get("task_id")) or event.task_id
    if not task_id:
        return
    if conversation.known_id(draft.session_id, task_id) != task_id:
        raise Unprojectable("task_id is no identifier")
    run_id = _text(document.get("run_id")) or event.run_id or ""
    task = Task(
        task_id=task_id,
        session_id=draft.session_id,
        create_time=event.time,
        update_time=event.time,
        agent_name=_text(document.get("agent_name")),
        run_id=run_id,
        metadata=_entries(document.get("metadata")),
    )
    draft.tasks[task_id] = task
    if run_id in draft.runs:
        draft.runs[run_id] = replace(draft.runs[run_id], agent_name=task.agent_name)
    introduction = Introduction(event.time, task_id, run_id or None)
    inputs = list(_inputs(draft.session_id, document))
    draft.set_messages(conversation.take_inputs(draft.messages, inputs, introduction))
    ordinal = draft.session.input_count
    for message_id, content in inputs:
        known = draft.inputs.get(message_id)
        if known is not None:
            draft.inputs[message_id] = replace(known, content=content)
        else:
            ordinal += 1
            draft.inputs[message_id] = Input(message_id, ordinal, content, introduction)
    draft.session = replace(draft.session, task_count=draft.session.task_count + 1, input_count=ordinal)


def _on_run(draft: Draft, event: Event, what: str, _: Channel | None) -> None:
    assert draft.session is not None
    if event.run_id is None:
        return
    run = draft.runs.get(event.run_id)
    if run is None:
        task = draft.tasks.get(event.task_id or "")
        run = Run(
            run_id=event.run_id,
            task_id=event.task_id or "",
            session_id=draft.session_id,
            create_time=event.time,
            agent_name=task.agent_name if task is not None else "",
        )
        draft.session = replace(draft.session, run_count=draft.session.run_count + 1)
        if task is not None and task.run_id != run.run_id:
            # The run of a task that was enqueued.
            draft.tasks[task.task_id] = replace(task, run_id=run.run_id)
    if what == "leased":
        run = replace(run, state="RUNNING", lease_count=run.lease_count + 1, start_time=run.start_time or event.time)
    elif what in ("queued", "released", "lease_expired"):
        run = replace(run, state="QUEUED")
    elif what == "awaiting":
        run = replace(run, state="AWAITING")
    elif what == "ended":
        cause = _text(_object(event.payload).get("cause")).removeprefix("RUN_END_CAUSE_")
        run = replace(run, state="ENDED", cause=cause, end_time=event.time)
    draft.runs[run.run_id] = run
    draft.session = replace(draft.session, status="IDLE" if run.state == "ENDED" else run.state)


def _on_ticket(draft: Draft, event: Event, what: str, _: Channel | None) -> None:
    task = draft.tasks.get(event.task_id or "")
    if what == "opened" and task is not None:
        draft.tasks[task.task_id] = replace(task, ticket_count=task.ticket_count + 1, update_time=event.time)


def _on_checkpoint(draft: Draft, event: Event, what: str, channel: Channel | None) -> None:
    holds_messages = not _is_of_facts(event)
    if what == "deleted" and holds_messages:
        draft.forget_messages()
        draft.set_messages(conversation.without_checkpoints(draft.inputs.values()))
    elif what == "rolled_back" and holds_messages:
        draft.inputs = {key: one for key, one in draft.inputs.items() if one.introduction.task_id != event.task_id}
        settled = [] if channel is None else conversation.settle(draft.session_id, channel)
        introduction = Introduction(event.time, event.task_id, event.run_id)
        left = conversation.rolled_back(draft.messages, settled, draft.inputs.values(), introduction)
        draft.forget_messages()
        draft.set_messages(left)
    elif what == "saved" and _object(event.payload).get("checkpoint_ns", "") == "":
        run = draft.runs.get(event.run_id or "")
        if run is not None:
            draft.runs[run.run_id] = replace(run, step_count=run.step_count + 1)
        if channel is not None:
            settled = conversation.settle(draft.session_id, channel)
            introduction = Introduction(event.time, event.task_id, event.run_id)
            draft.set_messages(conversation.take_channel(draft.messages, settled, introduction))


def _on_message(draft: Draft, event: Event, what: str, _: Channel | None) -> None:
    introduction = Introduction(event.time, event.task_id, event.run_id)
    draft.set_messages(facts.change(draft.messages, draft.session_id, what, _object(event.payload), introduction))


_HANDLERS = {
    "session": _on_session,
    "task": _on_task,
    "run": _on_run,
    "ticket": _on_ticket,
    "checkpoint": _on_checkpoint,
    "message": _on_message,
}


def _inputs(session_id: str, task: dict[str, Any]) -> Iterable[tuple[str, Content]]:
    """The input messages of a task's JSON: (id, content)."""
    listed = _object(_object(task.get("input")).get("messages")).get("messages")
    for document in listed if isinstance(listed, list) else ():
        message = _object(document)
        message_id = _text(message.get("message_id"))
        if not message_id:
            continue
        role = _text(message.get("role")).removeprefix("MESSAGE_ROLE_")
        parts = message.get("parts")
        yield (
            conversation.known_id(session_id, message_id),
            Content(
                role=USER if role in ("", NO_ROLE) or role not in ROLES else role,
                parts=tuple(_part(_object(part)) for part in (parts if isinstance(parts, list) else ())),
                name=_text(message.get("name")) or None,
            ),
        )


def _part(document: dict[str, Any]) -> Part:
    if "block_json" in document:
        return Part(block_json=_text(document["block_json"]))
    return Part(text=_text(document.get("text")))


def _failure(value: Any) -> tuple[str, str]:
    document = _object(value)
    return _text(document.get("code")), _text(document.get("message"))


def _entries(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), _text(entry)) for key, entry in _object(value).items()))


def _time(value: Any) -> datetime | None:
    """An RFC 3339 time."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) else None
    except ValueError:
        return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
