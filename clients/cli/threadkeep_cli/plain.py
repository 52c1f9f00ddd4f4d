"""Messages of the contract as plain values for JSON: field names of the contract, numbers as numbers, times as text.

Payloads whose content is JSON or text are shown as such (`json`, `text`), others as base64 (`data`).
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.message import Message

_WELL_KNOWN = ("google.protobuf.Timestamp", "google.protobuf.Duration")


def to_plain(value: Any) -> Any:
    """A message, or whatever lies in one, as JSON's own types."""
    if not isinstance(value, Message):
        return value
    name = value.DESCRIPTOR.full_name
    if name in _WELL_KNOWN:
        return value.ToJsonString()  # type: ignore[attr-defined]
    if name == "threadkeep.common.v1.Payload":
        return _payload(value)
    if name == "threadkeep.common.v1.Scope":
        return dict(value.values)  # type: ignore[attr-defined]
    plain: dict[str, Any] = {}
    for field in value.DESCRIPTOR.fields:
        if field.has_presence and not value.HasField(field.name):
            continue
        plain[field.name] = _field(field, getattr(value, field.name))
    return plain


def _field(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _single(inner, one) for key, one in sorted(value.items())}
    if field.is_repeated:
        return [_single(field, one) for one in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        # A newer server may send what this version does not know.
        return known.name if known is not None else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if field.name.endswith("_json") and isinstance(value, str):
        return _parsed(value)
    return value


def _payload(payload: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"content_type": payload.content_type}
    kind = payload.content_type.partition(";")[0].strip()
    if kind == "application/json":
        plain["json"] = _parsed(payload.data)
    elif kind.startswith("text/"):
        plain["text"] = payload.data.decode("utf-8", "replace")
    else:
        plain["data"] = base64.b64encode(payload.data).decode("ascii")
    if payload.attributes:
        plain["attributes"] = dict(payload.attributes)
    return plain


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text if isinstance(text, str) else text.decode("utf-8", "replace")
