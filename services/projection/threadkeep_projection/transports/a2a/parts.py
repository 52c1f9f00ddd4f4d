"""A2A parts as content parts and back. Pure.

Files are LangChain's content blocks, which models read. A JSON document comes in as its text, since models read no
other form of it; going out, a block that A2A has no part for is a data part. What an agent thinks and which tools it
calls stays its own, as A2A has it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2

from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_projection.domain.values import Part

JSON = "application/json"
MOST_PARTS = 256
"""Of a message, as in any input of a task."""

_EXACT = 2**53
"""Whole numbers beyond this are no longer told apart in a protobuf Value, which holds doubles."""
_FILE_TYPES = ("image", "audio", "video")
_INNER = ("reasoning", "thinking", "redacted_thinking", "tool_use", "tool_call", "tool_result", "server_tool_call")


def content_parts(parts: Sequence[a2a_pb2.Part], path: str) -> list[content_pb2.ContentPart]:
    """What a message says. Raises FieldInvalid for a part without content."""
    if not 1 <= len(parts) <= MOST_PARTS:
        raise FieldInvalid(path, f"holds 1 to {MOST_PARTS} parts, not {len(parts)}")
    found = []
    for index, part in enumerate(parts):
        value = plain_value(part, f"{path}[{index}]")
        if isinstance(value, dict) and part.WhichOneof("content") != "data":
            found.append(content_pb2.ContentPart(block_json=dump(value)))
        else:
            text = part.text if part.WhichOneof("content") == "text" else dump(value)
            found.append(content_pb2.ContentPart(text=text))
    return found


def plain_value(part: a2a_pb2.Part, path: str) -> Any:
    """A part as a JSON value: a text, what a data part holds, or the content block of a file. Raises FieldInvalid."""
    kind = part.WhichOneof("content")
    if kind == "text":
        return part.text
    if kind == "data":
        return value_of(part.data, f"{path}.data")
    if kind is None:
        raise FieldInvalid(path, "holds text, raw, url or data")
    media_type = part.media_type or ("application/octet-stream" if kind == "raw" else "")
    family = media_type.partition("/")[0]
    block: dict[str, Any] = {"type": family if family in _FILE_TYPES else "file"}
    if kind == "raw":
        block["base64"] = base64.b64encode(part.raw).decode()
    else:
        block["url"] = part.url
    if media_type:
        block["mime_type"] = media_type
    if part.filename:
        block["extras"] = {"filename": part.filename}
    return block


def value_of(value: struct_pb2.Value, path: str) -> Any:
    """A protobuf Value as JSON. Whole numbers are integers. Raises FieldInvalid for NaN and Infinity."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        if not math.isfinite(number):
            raise FieldInvalid(path, "holds a number that JSON has not")
        return int(number) if number.is_integer() and abs(number) <= _EXACT else number
    if kind == "struct_value":
        return {key: value_of(one, path) for key, one in value.struct_value.fields.items()}
    if kind == "list_value":
        return [value_of(one, path) for one in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def a2a_parts(parts: Iterable[Part]) -> list[a2a_pb2.Part]:
    """What a message of a conversation says, for an A2A client."""
    found = []
    for part in parts:
        if part.text is not None:
            found.append(a2a_pb2.Part(text=part.text))
            continue
        try:
            block = json.loads(part.block_json or "{}")
        except ValueError:
            continue
        shown = _block(block) if isinstance(block, dict) else None
        if shown is not None:
            found.append(shown)
    return found


def data_part(document: str | bytes) -> a2a_pb2.Part:
    """A JSON document as a data part; as raw JSON where a protobuf Value could not hold it exactly."""
    try:
        value = json.loads(document)
        if _is_exact(value):
            return a2a_pb2.Part(data=json_format.ParseDict(value, struct_pb2.Value()), media_type=JSON)
    except (ValueError, RecursionError, json_format.ParseError):
        pass
    raw = document.encode() if isinstance(document, str) else document
    return a2a_pb2.Part(raw=raw, media_type=JSON)


def file_part(data: bytes, media_type: str, filename: str = "") -> a2a_pb2.Part:
    """Content of a media type: as text or data where it is that, else raw."""
    kind = media_type.partition(";")[0].strip().lower()
    part = None
    if kind == JSON:
        part = data_part(data)
    elif kind.startswith("text/"):
        try:
            part = a2a_pb2.Part(text=data.decode())
        except UnicodeDecodeError:
            part = None
    if part is None:
        part = a2a_pb2.Part(raw=data)
    part.media_type, part.filename = media_type, filename
    return part


def payload_part(payload: payload_pb2.Payload) -> a2a_pb2.Part:
    """A payload; a JSON text is a text part."""
    if payload.content_type == JSON:
        try:
            value = json.loads(payload.data)
        except ValueError:
            value = None
        if isinstance(value, str):
            return a2a_pb2.Part(text=value)
    return file_part(payload.data, payload.content_type)


def struct_of(value: dict[str, Any]) -> struct_pb2.Struct:
    """An object as a protobuf Struct. Its numbers are small."""
    found = struct_pb2.Struct()
    found.update(value)
    return found


def dump(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _block(block: dict[str, Any]) -> a2a_pb2.Part | None:
    kind = block.get("type")
    if kind in _INNER:
        return None
    if kind in (*_FILE_TYPES, "file"):
        extras = block.get("extras")
        named = extras.get("filename") if isinstance(extras, dict) else block.get("filename")
        media_type = block.get("mime_type")
        part = a2a_pb2.Part(
            media_type=media_type if isinstance(media_type, str) else "",
            filename=named if isinstance(named, str) else "",
        )
        if _set_file(part, block.get("base64", block.get("data")), block.get("url")):
            return part
    if kind == "image_url":
        image = block.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        part = a2a_pb2.Part()
        if isinstance(url, str) and _set_file(part, None, url):
            return part
    if kind == "non_standard" and "value" in block:
        return data_part(dump(block["value"]))
    return data_part(dump(block))


def _set_file(part: a2a_pb2.Part, encoded: Any, url: Any) -> bool:
    """Fills in the content of a file. False if there is none."""
    if isinstance(url, str) and url.startswith("data:"):
        head, _, encoded = url.partition(",")
        part.media_type = part.media_type or head.removeprefix("data:").partition(";")[0]
        url = None
    if isinstance(encoded, str):
        try:
            part.raw = base64.b64decode(encoded, validate=True)
            return True
        except (binascii.Error, ValueError):
            return False
    if isinstance(url, str) and url:
        part.url = url
        return True
    return False


def _is_exact(value: Any) -> bool:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return True
    if isinstance(value, int):
        return abs(value) <= _EXACT
    if isinstance(value, float):
        return math.isfinite(value)
    return all(_is_exact(one) for one in (value.values() if isinstance(value, dict) else value))
