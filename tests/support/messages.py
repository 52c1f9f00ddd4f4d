"""Message facts, and what commits do to them, as short as it can be said."""

from typing import Any

from threadkeep.common.v1 import content_pb2
from threadkeep.runtime.v1 import message_pb2


def message(text: str = "hello", message_id: str | None = None, **more: Any) -> message_pb2.MessageDraft:
    """A message; the user's unless said otherwise."""
    parts = [content_pb2.ContentPart(text=text)] if text else []
    return message_pb2.MessageDraft(
        message_id=message_id, parts=parts, **{"role": content_pb2.MESSAGE_ROLE_USER, **more}
    )


def append(*texts: str) -> list[message_pb2.MessageChange]:
    """Messages with their text as id."""
    return [message_pb2.MessageChange(append=message(text, text)) for text in texts]


def replace(message_id: str, text: str) -> message_pb2.MessageChange:
    """Another content of a message."""
    return message_pb2.MessageChange(replace=message(text, message_id))


def remove(*ids: str) -> list[message_pb2.MessageChange]:
    """Messages taken out."""
    return [message_pb2.MessageChange(remove=one) for one in ids]


def calls(*ids: str) -> list[content_pb2.ToolCall]:
    """Tool calls of these ids."""
    return [content_pb2.ToolCall(tool_call_id=one, name="count", args_json='{"n":1}') for one in ids]
