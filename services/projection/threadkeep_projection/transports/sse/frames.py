"""Frames of a session's stream as blocks of `text/event-stream`.

A block's `event` is the kind that the reader wanted, its `data` one line of JSON: field names of the contract, numbers
as numbers, enums and times as in proto3 JSON. `id` is the cursor; a block of an id alone moves the reader's place
silently.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.canonical import JsonInvalid, parse_json
from threadkeep_chassis.errors import CursorInvalid
from threadkeep_chassis.tokens import from_text, to_text
from threadkeep_projection.commands.streaming import Relayed, Wanted, kinds_of

HEARTBEAT = b": heartbeat\n\n"
END = b"event: end\ndata: {}\n\n"
"""Nothing comes after it, and a reader who comes back is told so (204)."""


def opening(retry_seconds: float) -> bytes:
    """The first block: how long a reader is to wait before it comes back."""
    return _retry(retry_seconds) + b"\n"


def failure(body: bytes, retry_seconds: float) -> bytes:
    """Says why the stream ends before its end, and how long to wait; `body` is what an HTTP answer would hold."""
    return _retry(retry_seconds) + b"event: failure\ndata: " + body + b"\n\n"


def _retry(seconds: float) -> bytes:
    return b"retry: %d\n" % round(seconds * 1000)


def frame(relayed: Relayed, wanted: Wanted) -> bytes:
    """A frame of the stream."""
    content = relayed.content
    place = b"id: " + to_text(relayed.cursor).encode() + b"\n" if relayed.cursor else b""
    if isinstance(content, event_pb2.Bookmark):
        return place + b"\n"
    if isinstance(content, event_pb2.LiveGap):
        return b'event: gap\ndata: {"dropped_count":%d}\n\n' % content.dropped_count
    kinds = kinds_of(content)
    name = next((kind for kind in kinds if kind in wanted.kinds), kinds[0])
    head = _event(content) if isinstance(content, event_pb2.Event) else _live(content)
    head["kinds"] = list(kinds)
    data = _text(head)
    if content.HasField("payload"):
        data = data[:-1] + b',"payload":' + _payload(content.payload) + b"}"
    return place + b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def read_cursor_text(text: str, field: str) -> bytes:
    """The cursor of an `id`, or in plain base64 as errors and the command line give it. Raises CursorInvalid."""
    cursor = from_text(text.replace("+", "-").replace("/", "_").rstrip("="))
    if cursor is None:
        raise CursorInvalid(field)
    return cursor


def _event(event: event_pb2.Event) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "type": event.type,
        "event_id": event.event_id,
        "session_id": event.session_id,
        "sequence": event.sequence,
        "commit_sequence": event.commit_sequence,
        "visibility": _name(event_pb2.Visibility, event.visibility),
        "schema_version": event.schema_version,
        "create_time": _time(event.create_time),
    }
    for name in ("run_id", "task_id", "causation_id", "correlation_id"):
        if event.HasField(name):
            plain[name] = getattr(event, name)
    return plain


def _live(live: event_pb2.LiveObservation) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": _name(event_pb2.LiveKind, live.kind),
        "session_id": live.session_id,
        "task_id": live.task_id,
        "run_id": live.run_id,
        "index": live.index,
    }
    if live.HasField("message_id"):
        plain["message_id"] = live.message_id
    return plain


def _payload(payload: payload_pb2.Payload) -> bytes:
    """JSON as it was written (numbers keep their digits), text as text, anything else in base64."""
    plain: dict[str, Any] = {"content_type": payload.content_type}
    if payload.attributes:
        plain["attributes"] = dict(payload.attributes)
    kind = payload.content_type.partition(";")[0].strip().lower()
    if kind == "application/json" and _is_json(payload.data):
        # Line ends lie between tokens only: inside of texts JSON has escapes for them.
        line = payload.data.replace(b"\r", b" ").replace(b"\n", b" ")
        return _text(plain)[:-1] + b',"json":' + line + b"}"
    if kind.startswith("text/"):
        plain["text"] = payload.data.decode("utf-8", "replace")
    else:
        plain["data"] = base64.b64encode(payload.data).decode()
    return _text(plain)


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data)
    except JsonInvalid:
        return False
    return True


def _text(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def _name(enum: Any, value: int) -> str | int:
    # A newer runtime may send what this version does not know.
    return enum.Name(value) if value in enum.values() else value


def _time(stamp: Timestamp) -> str:
    return stamp.ToJsonString()
