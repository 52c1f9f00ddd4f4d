"""The projection's values: what a message says, and one row each of a session, a task, a run and a message.

Times are aware datetimes of the runtime's commits, never of this service: rebuilding gives the same rows (P3).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

USER, ASSISTANT, SYSTEM, TOOL, NO_ROLE = "USER", "ASSISTANT", "SYSTEM", "TOOL", "UNSPECIFIED"
ROLES = (USER, ASSISTANT, SYSTEM, TOOL, NO_ROLE)

EXCERPT_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that model calls took."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
        )

    def __neg__(self) -> Usage:
        return Usage(-self.input_tokens, -self.output_tokens, -self.total_tokens)


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message: plain text, or any other content block as the text of a JSON object."""

    text: str | None = None
    block_json: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asked for, under the model's own id."""

    tool_call_id: str
    name: str
    args_json: str


@dataclass(frozen=True)
class Content:
    """What a message says, whoever introduced it and when."""

    role: str
    parts: tuple[Part, ...] = ()
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    model: str | None = None
    usage: Usage | None = None

    def document(self) -> dict[str, Any]:
        """The content as a JSON value, empty fields left out; `from_document` reads it."""
        document: dict[str, Any] = {
            "role": self.role,
            "parts": [
                {"text": part.text} if part.text is not None else {"block_json": part.block_json} for part in self.parts
            ],
        }
        if self.name is not None:
            document["name"] = self.name
        if self.tool_calls:
            document["tool_calls"] = [[one.tool_call_id, one.name, one.args_json] for one in self.tool_calls]
        if self.tool_call_id is not None:
            document["tool_call_id"] = self.tool_call_id
        if self.model is not None:
            document["model"] = self.model
        if self.usage is not None:
            document["usage"] = [self.usage.input_tokens, self.usage.output_tokens, self.usage.total_tokens]
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Content:
        """Reads what `document` gave; unknown fields are left alone, missing ones are empty."""
        usage = document.get("usage")
        return cls(
            role=document["role"],
            parts=tuple(Part(part.get("text"), part.get("block_json")) for part in document.get("parts", ())),
            name=document.get("name"),
            tool_calls=tuple(ToolCall(*call) for call in document.get("tool_calls", ())),
            tool_call_id=document.get("tool_call_id"),
            model=document.get("model"),
            usage=Usage(*usage) if usage is not None else None,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256, hexadecimal, of the content: equal for equal contents."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def excerpt(self) -> str:
        """The beginning of its text, at most 256 characters."""
        taken: list[str] = []
        length = 0
        for part in self.parts:
            if part.text and length < EXCERPT_CHARACTERS:
                taken.append(part.text[: EXCERPT_CHARACTERS - length])
                length += len(taken[-1])
        return "".join(taken)


@dataclass(frozen=True, slots=True)
class Introduction:
    """The commit that brings messages: when it happened, and for which task and run."""

    time: datetime
    task_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a session, in the conversation or taken out of it.

    A message that was taken out (`position` None) keeps what is known of its introduction and its tokens, but not what
    it said: if it comes back it is still the message of then.
    """

    message_id: str
    position: int | None
    digest: str
    introduction: Introduction
    parent_message_id: str | None = None
    usage: Usage | None = None
    is_pending: bool = False
    """True for an input that no checkpoint has held yet."""
    content: Content | None = field(default=None, compare=False)
    """What it says; None if it was taken out, or was not loaded because only its digest is needed."""
    model: str | None = None
    """The model that it names, cut to what an id can hold; kept once it was taken out."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input message of an open task, as its submission brought it: what is left when the checkpoints are deleted."""

    message_id: str
    ordinal: int
    content: Content
    introduction: Introduction


@dataclass(frozen=True, slots=True)
class Session:
    """A session's summary."""

    session_id: str
    create_time: datetime
    update_time: datetime
    event_sequence: int = 0
    title: str = ""
    agent_name: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    status: str = "IDLE"
    message_count: int = 0
    task_count: int = 0
    run_count: int = 0
    input_count: int = 0
    """How many input messages its submissions brought."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task's summary, without its usage."""

    task_id: str
    session_id: str
    create_time: datetime
    update_time: datetime
    agent_name: str = ""
    state: str = "SUBMITTED"
    run_id: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    failure: tuple[str, str] | None = None
    """(code, message)"""
    ticket_count: int = 0
    end_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run's summary, without its usage."""

    run_id: str
    task_id: str
    session_id: str
    create_time: datetime
    agent_name: str = ""
    state: str = "QUEUED"
    cause: str = ""
    lease_count: int = 0
    step_count: int = 0
    start_time: datetime | None = None
    end_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A committed event of one thread, as far as the projection reads it."""

    sequence: int
    type: str
    time: datetime
    task_id: str | None = None
    run_id: str | None = None
    payload: Any = None
    """The parsed JSON payload; None if there is none or it is no JSON."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as a channel holds it. Without an id it gets one from its place and content."""

    content: Content
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """A tombstone in a channel: this message is gone, or every one before it."""

    message_id: str
    removes_all: bool = False


Channel = tuple[Entry | Removal, ...]
"""The decoded value of a checkpoint's `messages` channel."""


@dataclass(frozen=True, slots=True)
class Poison:
    """An event that could not be projected, and why: a kind of fault, nothing of the payload."""

    sequence: int
    type: str
    time: datetime
    reason: str
