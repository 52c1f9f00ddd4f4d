"""What kinds of thing an event or a live observation is, for readers who want some of them only (P6).

The server's own types are told apart by their names; a payload is looked into only where the name does not say enough.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from threadkeep_projection.domain.projector import (
    CHECKPOINT_DELETED,
    CHECKPOINT_ROLLED_BACK,
    CHECKPOINT_SAVED,
    MESSAGES_CHANNEL,
    PREFIX,
    TASK_SUBMITTED,
)


class Kind(StrEnum):
    """What readers choose among, in the order in which what is of several kinds is named."""

    MESSAGES = "messages"
    TOKENS = "tokens"
    TOOL_CALLS = "tool_calls"
    STATE = "state"
    CUSTOM = "custom"


EVERY_KIND = frozenset(Kind)
LIVE_KINDS = frozenset((Kind.TOKENS, Kind.TOOL_CALLS, Kind.CUSTOM))
"""Kinds that have live observations."""

Read = Callable[[], Any]
"""Gives a payload as plain JSON values; None if it is none."""

_MESSAGE = PREFIX + "message."
_CHANGES_MESSAGES = frozenset((TASK_SUBMITTED, CHECKPOINT_DELETED, CHECKPOINT_ROLLED_BACK, "threadkeep.session.purged"))
_TOOL_ROLE = "MESSAGE_ROLE_TOOL"


def kinds_of_event(type_: str, read: Read) -> tuple[Kind, ...]:
    """The kinds of a committed event, never none."""
    if not type_.startswith(PREFIX):
        return (Kind.CUSTOM,)
    if type_.startswith(_MESSAGE):
        message = _object(_object(read()).get("message"))
        has_tools = bool(message.get("tool_calls")) or message.get("role") == _TOOL_ROLE
        return (Kind.MESSAGES, Kind.TOOL_CALLS) if has_tools else (Kind.MESSAGES,)
    if type_ in _CHANGES_MESSAGES:
        return (Kind.MESSAGES, Kind.STATE)
    if type_ == CHECKPOINT_SAVED:
        payload = _object(read())
        channels = payload.get("channels")
        if not payload.get("checkpoint_ns") and isinstance(channels, list) and MESSAGES_CHANNEL in channels:
            return (Kind.MESSAGES, Kind.TOOL_CALLS, Kind.STATE)
    return (Kind.STATE,)


def kinds_of_live(kind: str, read: Read) -> tuple[Kind, ...]:
    """The kinds of a live observation, by its kind's name without the prefix; those of a newer runtime are custom."""
    if kind == "TOKEN":
        chunk = _object(read())
        has_tools = any(chunk.get(name) for name in ("tool_call_chunks", "tool_calls")) or chunk.get("type") == "tool"
        return (Kind.TOKENS, Kind.TOOL_CALLS) if has_tools else (Kind.TOKENS,)
    return (Kind.TOOL_CALLS,) if kind == "PROGRESS" else (Kind.CUSTOM,)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
