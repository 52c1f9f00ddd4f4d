"""Plain Python values as the contract's messages: JSON, payloads, task inputs, answers, times."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.runtime.v1 import session_pb2, task_pb2, ticket_pb2

JSON = "application/json"
OCTETS = "application/octet-stream"
TEXT = "text/plain"


class Unset:
    """The type of UNSET: `None` is a value where JSON null may be meant."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()

_ROLES = {
    "user": content_pb2.MESSAGE_ROLE_USER,
    "human": content_pb2.MESSAGE_ROLE_USER,
    "assistant": content_pb2.MESSAGE_ROLE_ASSISTANT,
    "ai": content_pb2.MESSAGE_ROLE_ASSISTANT,
    "system": content_pb2.MESSAGE_ROLE_SYSTEM,
    "tool": content_pb2.MESSAGE_ROLE_TOOL,
}

Input = (
    str
    | Mapping[str, Any]
    | Sequence[Any]
    | content_pb2.InputMessage
    | payload_pb2.Payload
    | task_pb2.InputMessages
    | task_pb2.TaskInput
)


def strict_json(value: Any) -> str:
    """JSON text of a value. ValueError for NaN and Infinity, TypeError for what JSON can't hold, UnicodeEncodeError (a
    ValueError) for a lone surrogate: the server would refuse them."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    text.encode("utf-8")
    return text


def json_payload(value: Any) -> payload_pb2.Payload:
    """A JSON payload."""
    return payload_pb2.Payload(content_type=JSON, data=strict_json(value).encode())


def to_payload(value: Any) -> payload_pb2.Payload:
    """A payload of a value: a Payload as it is, bytes as octets, anything else as JSON."""
    if isinstance(value, payload_pb2.Payload):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return payload_pb2.Payload(content_type=OCTETS, data=bytes(value))
    return json_payload(value)


def from_payload(payload: payload_pb2.Payload) -> Any:
    """The value of a payload: parsed JSON, text, or bytes."""
    if payload.content_type == JSON:
        return json.loads(payload.data)
    if payload.content_type.split(";", 1)[0].strip() == TEXT:
        return payload.data.decode("utf-8")
    return payload.data


def to_input(value: Input) -> task_pb2.TaskInput:
    """A task's input: text is one user message; a list of `{"role": ..., "content": ...}` maps or InputMessages is a
    conversation; anything else is a payload."""
    if isinstance(value, task_pb2.TaskInput):
        return value
    if isinstance(value, task_pb2.InputMessages):
        return task_pb2.TaskInput(messages=value)
    if isinstance(value, payload_pb2.Payload):
        return task_pb2.TaskInput(payload=value)
    if isinstance(value, str | content_pb2.InputMessage):
        value = [value]
    if isinstance(value, Sequence) and not isinstance(value, bytes) and value and all(map(_is_message, value)):
        messages = [to_message(one) for one in value]
        return task_pb2.TaskInput(messages=task_pb2.InputMessages(messages=messages))
    return task_pb2.TaskInput(payload=to_payload(value))


def to_message(value: Any) -> content_pb2.InputMessage:
    """An input message of text, or of a `{"role", "content", "id", "name"}` map whose content is text or blocks."""
    if isinstance(value, content_pb2.InputMessage):
        return value
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    role = _ROLES.get(value.get("role", "user"))
    if role is None:
        raise ValueError(f"unknown role {value['role']!r}; there are {sorted(_ROLES)}")
    content = value["content"]
    message = content_pb2.InputMessage(role=role, parts=[_part(one) for one in _blocks(content)])
    if value.get("id") is not None:
        message.message_id = value["id"]
    if value.get("name") is not None:
        message.name = value["name"]
    return message


def _is_message(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "role" in value and "content" in value
    return isinstance(value, str | content_pb2.InputMessage)


def _blocks(content: Any) -> Sequence[Any]:
    return [content] if isinstance(content, str | Mapping) else content


def _part(block: Any) -> content_pb2.ContentPart:
    if isinstance(block, str):
        return content_pb2.ContentPart(text=block)
    if block.get("type") == "text" and set(block) == {"type", "text"}:
        return content_pb2.ContentPart(text=block["text"])
    return content_pb2.ContentPart(block_json=strict_json(block))


def to_answer(value: Any = UNSET, decision: str | None = None) -> ticket_pb2.TicketAnswer:
    """A ticket's answer. `value` None is the answer null; leave it out when only a decision counts."""
    answer = ticket_pb2.TicketAnswer()
    if decision is not None:
        answer.decision = decision
    if not isinstance(value, Unset):
        answer.value_json = strict_json(value)
    return answer


def to_settings(value: Mapping[str, Any] | session_pb2.SessionSettings | None) -> session_pb2.SessionSettings | None:
    """Session settings of a map (`model`, `max_steps`)."""
    if value is None or isinstance(value, session_pb2.SessionSettings):
        return value
    return session_pb2.SessionSettings(**value)


def to_duration(seconds: float | datetime.timedelta | None) -> duration_pb2.Duration | None:
    """A duration of seconds."""
    if seconds is None:
        return None
    duration = duration_pb2.Duration()
    delta = seconds if isinstance(seconds, datetime.timedelta) else datetime.timedelta(seconds=seconds)
    duration.FromTimedelta(delta)
    return duration


def to_timestamp(value: datetime.datetime | timestamp_pb2.Timestamp | None) -> timestamp_pb2.Timestamp | None:
    """A timestamp of an aware datetime; a naive one is refused, since nobody knows which instant it means."""
    if value is None or isinstance(value, timestamp_pb2.Timestamp):
        return value
    if value.tzinfo is None:
        raise ValueError("a naive datetime names no instant; give it a time zone")
    timestamp = timestamp_pb2.Timestamp()
    timestamp.FromDatetime(value.astimezone(datetime.UTC))
    return timestamp


def given(**fields: Any) -> dict[str, Any]:
    """The keyword arguments that are not None: fields left out stay absent."""
    return {name: value for name, value in fields.items() if value is not None}
