"""What the demo prints of a run: its timeline, its messages, and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1.message_pb2 import Message
from threadkeep.runtime.v1.event_pb2 import Event
from walkthrough.stage import Say
from walkthrough.story import Told

_SHOWN = 96
_NAMED = ("epoch", "worker_id", "reason", "cause", "ticket_id", "ticket_ids", "checkpoint_id")


def tell(told: Told, say: Say) -> None:
    """Prints it all."""
    say.title("timeline, read back through the API")
    start = told.events[0].create_time.ToDatetime()
    for event in told.events:
        seconds = (event.create_time.ToDatetime() - start).total_seconds()
        say(f"{event.sequence:>4}  {seconds:>7.3f} s  {event.type.removeprefix('threadkeep.'):<22} {_facts(event)}")
    say.title("messages, as the projection shows them")
    for message in told.messages:
        say(f"{message.position:>4}  {_who(message):<22} {_what(message)}")
    say.title("the report")
    say(told.report.rstrip())


def _facts(event: Event) -> str:
    try:
        content: Mapping[str, Any] = json.loads(event.payload.data)
    except ValueError:
        return ""
    return "  ".join(f"{name} {_brief(content[name])}" for name in _NAMED if content.get(name))


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.removeprefix("RUN_END_CAUSE_")


def _who(message: Message) -> str:
    role = content_pb2.MessageRole.Name(message.role).removeprefix("MESSAGE_ROLE_").lower()
    return f"{role} {message.name}" if message.role == content_pb2.MESSAGE_ROLE_TOOL else role


def _what(message: Message) -> str:
    text = "".join(part.text for part in message.parts)
    calls = "".join(f"  -> {call.name}" for call in message.tool_calls)
    whole = (text + calls).replace("\n", " ")
    return whole if len(whole) <= _SHOWN else whole[: _SHOWN - 1] + "…"
