"""Conversations whose messages are committed facts: one event for each change (P2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from threadkeep_projection.domain.conversation import known_id
from threadkeep_projection.domain.values import NO_ROLE, ROLES, Content, Introduction, Message, Part, ToolCall, Usage

Messages = Mapping[str, Message]

PREFIX = "threadkeep.message."
APPENDED, REPLACED, REMOVED = "appended", "replaced", "removed"


def change(
    messages: Messages, session_id: str, what: str, payload: Mapping[str, Any], introduction: Introduction
) -> list[Message]:
    """The messages that change by an event: `what` is appended, replaced or removed."""
    if what == REMOVED:
        return _without(messages, known_id(session_id, _text(payload.get("message_id"))))
    document = payload.get("message")
    if what not in (APPENDED, REPLACED) or not isinstance(document, dict) or not _text(document.get("message_id")):
        return []
    message_id = known_id(session_id, document["message_id"])
    content = _content(document)
    before = messages.get(message_id)
    if before is not None and before.position is not None:
        # An input's place is its message's; who introduced it, and when, stays.
        return [replace(before, digest=content.digest, usage=content.usage, is_pending=False, content=content)]
    live = [message for message in messages.values() if message.position is not None]
    last = max(live, key=lambda message: message.position or 0, default=None)
    position = 1 if last is None else (last.position or 0) + 1
    parent = None if last is None else last.message_id
    if before is not None:
        return [replace(before, position=position, digest=content.digest, usage=content.usage, content=content)]
    return [Message(message_id, position, content.digest, introduction, parent, content.usage, False, content)]


def _without(messages: Messages, message_id: str) -> list[Message]:
    """The message taken out, and those behind it one place further ahead."""
    gone = messages.get(message_id)
    if gone is None or gone.position is None:
        return []
    place = gone.position
    moved = [
        replace(message, position=message.position - 1)
        for message in messages.values()
        if message.position is not None and message.position > place
    ]
    return [replace(gone, position=None, is_pending=False, content=None), *moved]


def _content(document: Mapping[str, Any]) -> Content:
    """What a MessageDraft in proto3 JSON says."""
    role = _text(document.get("role")).removeprefix("MESSAGE_ROLE_")
    return Content(
        role=role if role in ROLES else NO_ROLE,
        parts=tuple(
            Part(block_json=_text(part["block_json"])) if "block_json" in part else Part(text=_text(part.get("text")))
            for part in _objects(document.get("parts"))
        ),
        name=_text(document.get("name")) or None,
        tool_calls=tuple(
            ToolCall(_text(call.get("tool_call_id")), _text(call.get("name")), _text(call.get("args_json")) or "{}")
            for call in _objects(document.get("tool_calls"))
        ),
        tool_call_id=_text(document.get("tool_call_id")) or None,
        model=_text(document.get("model")) or None,
        usage=_usage(document.get("usage")),
    )


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    taken = [_count(value.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens")]
    return Usage(taken[0], taken[1], taken[2] or taken[0] + taken[1])


def _count(value: Any) -> int:
    # 64-bit integers are text in proto3 JSON.
    text = str(value) if isinstance(value, str | int) else ""
    return min(int(text), 2**53) if text.isdigit() else 0


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
