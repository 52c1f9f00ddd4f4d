"""Decodes the `messages` channel of a LangGraph checkpoint into plain values, by an allow list (P2).

No class is ever built or imported: the serialiser's extension values are read as data, and only LangChain's own message
classes are known. Anything else at a message's place makes the channel Undecodable, which is no fault: encrypted and
pickled values are nobody's business but their owner's.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import (
    EXT_DELTA_SNAPSHOT,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)

from threadkeep_projection.domain.values import (
    ASSISTANT,
    NO_ROLE,
    SYSTEM,
    TOOL,
    USER,
    Channel,
    Content,
    Entry,
    Part,
    Removal,
    ToolCall,
    Usage,
)

REMOVE_ALL = "__remove_all__"
"""The id of LangGraph's sentinel: a RemoveMessage that takes out every message before it."""

EMPTY = "empty"
"""The type tag of a channel that the checkpoint knows, but holds no value of (a delta channel between snapshots)."""

_REMOVE = "REMOVE"
_CLASSES = {
    ("human", "HumanMessage"): USER,
    ("human", "HumanMessageChunk"): USER,
    ("ai", "AIMessage"): ASSISTANT,
    ("ai", "AIMessageChunk"): ASSISTANT,
    ("system", "SystemMessage"): SYSTEM,
    ("system", "SystemMessageChunk"): SYSTEM,
    ("tool", "ToolMessage"): TOOL,
    ("tool", "ToolMessageChunk"): TOOL,
    ("function", "FunctionMessage"): TOOL,
    ("function", "FunctionMessageChunk"): TOOL,
    ("chat", "ChatMessage"): NO_ROLE,
    ("chat", "ChatMessageChunk"): NO_ROLE,
    ("modifier", "RemoveMessage"): _REMOVE,
}
_NAMES = {name: role for (_, name), role in _CLASSES.items()}
_ROLES = {
    "user": USER,
    "human": USER,
    "assistant": ASSISTANT,
    "ai": ASSISTANT,
    "system": SYSTEM,
    "developer": SYSTEM,
    "tool": TOOL,
    "function": TOOL,
    "remove": _REMOVE,
}


class Undecodable(Exception):
    """The value is none that this service may or can read. The text names its kind, never its content (X11)."""


@dataclass(frozen=True)
class _Object:
    """An object as the serialiser wrote it: its class by name, and its fields."""

    module: str
    name: str
    fields: Any

    @cached_property
    def message(self) -> Entry | Removal:
        """The object as a message. Raises Undecodable if it is none."""
        if not isinstance(self.fields, dict):
            raise Undecodable("class")
        return _message(_role_of(self), self.fields)


_REMEMBERED_OBJECTS = 4096
_REMEMBERED_BYTES = 4096
"""Each checkpoint of a thread repeats the messages of the one before it: small ones are remembered by their bytes."""


def decode_messages(type_tag: str, value: bytes) -> Channel | None:
    """The channel's messages in order, tombstones included; None if the checkpoint holds no value of the channel.

    `type_tag` and `value` are what LangGraph's serialiser gave: `msgpack`, or `json` of older versions.
    Raises Undecodable.
    """
    if type_tag in (EMPTY, "null"):
        return None
    if type_tag not in ("msgpack", "json"):
        raise Undecodable("type_tag")
    try:
        loaded = _json(value) if type_tag == "json" else _SERIALIZER.loads_typed((type_tag, value))
        items = loaded if isinstance(loaded, list | tuple) else [loaded]
        return tuple(_item(item) for item in items)
    except Undecodable:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, AttributeError) as error:
        # Malformed bytes, or fields of other types than LangChain writes.
        raise Undecodable(type(error).__name__) from error


def _extension(code: int, packed: bytes) -> Any:
    """Reads an extension value as data. Without a constructor call there is nothing that a stored value could run."""
    if len(packed) <= _REMEMBERED_BYTES:
        return _remembered(code, packed)
    return _unpacked(code, packed)


@lru_cache(maxsize=_REMEMBERED_OBJECTS)
def _remembered(code: int, packed: bytes) -> Any:
    return _unpacked(code, packed)


def _unpacked(code: int, packed: bytes) -> Any:
    value = ormsgpack.unpackb(packed, ext_hook=_extension, option=ormsgpack.OPT_NON_STR_KEYS)
    if code == EXT_DELTA_SNAPSHOT:
        return value
    if code in (EXT_PYDANTIC_V1, EXT_PYDANTIC_V2):
        return _Object(str(value[0]), str(value[1]), value[2])
    return _Object("", "", None)


_SERIALIZER = JsonPlusSerializer(
    pickle_fallback=False,
    allowed_json_modules=None,
    allowed_msgpack_modules=None,
    __unpack_ext_hook__=_extension,
)


def _json(value: bytes) -> Any:
    """The `json` tag of older versions: LangChain's constructor envelopes, read as data."""

    def envelope(document: dict[str, Any]) -> Any:
        path = document.get("id")
        if document.get("type") != "constructor" or document.get("lc") not in (1, 2) or not isinstance(path, list):
            return document
        return _Object(".".join(str(part) for part in path[:-1]), str(path[-1]), document.get("kwargs"))

    return json.loads(value, object_hook=envelope)


def _item(item: Any) -> Entry | Removal:
    if isinstance(item, _Object):
        return item.message
    if isinstance(item, str):
        return Entry(Content(USER, _parts(item)))
    if isinstance(item, dict):
        # What LangChain takes for a message in an input: {"role" or "type", "content", ...}
        return _message(_ROLES.get(str(item.get("role") or item.get("type")), NO_ROLE), item)
    if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str):
        return _message(_ROLES.get(item[0], NO_ROLE), {"content": item[1]})
    raise Undecodable("shape")


def _role_of(item: _Object) -> str:
    prefix, _, module = item.module.rpartition(".")
    if prefix == "langchain_core.messages":
        role = _CLASSES.get((module, item.name))
    elif item.module in ("langchain.schema.messages", "langchain_core.messages"):
        role = _NAMES.get(item.name)
    else:
        role = None
    if role is None:
        raise Undecodable("class")
    if role == NO_ROLE and isinstance(item.fields, dict):
        return _ROLES.get(str(item.fields.get("role")), NO_ROLE)
    return role


def _message(role: str, fields: Mapping[Any, Any]) -> Entry | Removal:
    message_id = fields.get("id")
    message_id = _text(message_id) if isinstance(message_id, str) and message_id else None
    if role == _REMOVE:
        return Removal(message_id or "", removes_all=message_id == REMOVE_ALL)
    if "content" not in fields:
        raise Undecodable("shape")
    response = _mapping(fields.get("response_metadata"))
    model = response.get("model_name") or response.get("model") or response.get("model_id")
    tool_call_id, name = fields.get("tool_call_id"), fields.get("name")
    content = Content(
        role=role,
        parts=_parts(fields["content"]),
        name=_text(name) if isinstance(name, str) and name else None,
        tool_calls=tuple(_tool_call(_mapping(call)) for call in fields.get("tool_calls") or ()),
        tool_call_id=_text(tool_call_id) if role == TOOL and isinstance(tool_call_id, str) and tool_call_id else None,
        model=_text(model) if isinstance(model, str) and model else None,
        usage=_usage(fields.get("usage_metadata")),
    )
    return Entry(content, message_id)


def _parts(content: Any) -> tuple[Part, ...]:
    """A text is one part; of a list, text blocks are text and every other block keeps its form."""
    if isinstance(content, str):
        return (Part(text=_text(content)),) if content else ()
    if not isinstance(content, list | tuple):
        raise Undecodable("content")
    parts = []
    for block in content:
        if isinstance(block, str):
            parts.append(Part(text=_text(block)))
        elif isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            parts.append(Part(text=_text(block["text"])))
        elif isinstance(block, dict):
            parts.append(Part(block_json=_dump(block)))
        else:
            raise Undecodable("content")
    return tuple(parts)


def _tool_call(call: Mapping[Any, Any]) -> ToolCall:
    args = call.get("args")
    return ToolCall(
        tool_call_id=_text(call.get("id") or ""),
        name=_text(call.get("name") or ""),
        args_json=_dump(args if isinstance(args, dict) else {}),
    )


def _usage(value: Any) -> Usage | None:
    usage = _mapping(value)
    if not usage:
        return None
    counted = [_count(usage.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens")]
    return Usage(counted[0], counted[1], counted[2] or counted[0] + counted[1])


def _count(value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return min(max(int(value), 0), 2**53) if is_number else 0


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _dump(value: Any) -> str:
    """JSON text, the same for equal values: keys sorted, bytes as base64, what JSON can't hold as null or text."""
    return json.dumps(_plain(value, 0), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


_TOO_DEEP = 100


def _plain(value: Any, depth: int) -> Any:
    if depth > _TOO_DEEP:
        return None
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {_text(str(key)): _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, _Object):
        return _plain(value.fields, depth + 1)
    return _text(str(value))


def _text(value: Any) -> str:
    """Text that protobuf and the database take: lone surrogates, which JSON escapes can smuggle in, are replaced."""
    text = value if isinstance(value, str) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
