"""A task's input as a graph's input, and a graph's output as a task's result. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol

from threadkeep._api.values import JSON, from_payload, strict_json
from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.runtime.v1 import task_pb2

_SERIALISED = "application/vnd.langgraph."


def graph_input(task: task_pb2.Task, serde: SerializerProtocol) -> Any:
    """The input of the graph: `{"messages": [...]}` for messages, else the payload's value."""
    given = task.input
    if given.WhichOneof("input") == "messages":
        return {"messages": [to_message(one) for one in given.messages.messages]}
    payload = given.payload
    if payload.content_type.startswith(_SERIALISED):
        return serde.loads_typed((payload.content_type.removeprefix(_SERIALISED), payload.data))
    return from_payload(payload)


def to_message(message: content_pb2.InputMessage) -> AnyMessage:
    """LangChain's message of an input message. Its id stays, so that the projection knows it again."""
    blocks: list[str | dict[str, Any]] = []
    for part in message.parts:
        if part.WhichOneof("part") == "text":
            blocks.append({"type": "text", "text": part.text})
        elif part.WhichOneof("part") == "block_json":
            blocks.append(json.loads(part.block_json))
    only = message.parts[0] if len(message.parts) == 1 else None
    content: Any = only.text if only is not None and only.WhichOneof("part") == "text" else blocks
    fields: dict[str, Any] = {"content": content, "id": message.message_id or None}
    if message.HasField("name"):
        fields["name"] = message.name
    match message.role:
        case content_pb2.MESSAGE_ROLE_ASSISTANT:
            return AIMessage(**fields)
        case content_pb2.MESSAGE_ROLE_SYSTEM:
            return SystemMessage(**fields)
        case content_pb2.MESSAGE_ROLE_TOOL:
            return ToolMessage(tool_call_id="", **fields)
        case _:
            return HumanMessage(**fields)


def result_payload(output: Any) -> payload_pb2.Payload | None:
    """The task's result: JSON of the output; for a conversation the text and id of its last message, beside whatever
    else the output holds that is JSON. None when nothing of it is."""
    value = _result(output)
    try:
        return payload_pb2.Payload(content_type=JSON, data=strict_json(value).encode())
    except (TypeError, ValueError):
        return None


def _result(output: Any) -> Any:
    if not isinstance(output, Mapping):
        return _plain(output)
    messages = output.get("messages")
    if not (isinstance(messages, Sequence) and messages and isinstance(messages[-1], BaseMessage)):
        return {str(key): value for key, value in output.items() if _is_json(value)}
    rest = {str(key): value for key, value in output.items() if key != "messages" and _is_json(_plain(value))}
    return {**_plain(messages[-1]), **{key: _plain(value) for key, value in rest.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {"text": value.text, "message_id": value.id}
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _is_json(value: Any) -> bool:
    try:
        strict_json(value)
    except (TypeError, ValueError):
        return False
    return True
