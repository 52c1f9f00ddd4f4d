"""`threadkeep tail`: a session as it happens, for people.

The stream says that the conversation changed, and the messages that came are read from the projection then: those of
the past each under the event that brought it, though it is shown as it is now.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from threadkeep.client import Client
from threadkeep.errors import FreshnessTimeout, MessageNotFound, SessionNotFound
from threadkeep.projection.v1 import message_pb2
from threadkeep.runtime.v1 import event_pb2
from threadkeep_cli.groups.events import brief
from threadkeep_cli.output import short_name
from threadkeep_cli.plain import to_plain

_PREFIX = "threadkeep."
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PAGE = 50

TASK_ENDS = ("task.completed", "task.failed", "task.canceled", "task.rejected")
_MAY_BRING_MESSAGES = {
    "task.submitted",
    "task.input_required",
    "task.auth_required",
    "checkpoint.saved",
    "message.appended",
    "run.ended",
    *TASK_ENDS,
}
_SHOWN_AS_MESSAGES = {"checkpoint.saved", "message.appended", "message.replaced"}


class Screen:
    """Lines, and one line that may grow while nothing else is said."""

    def __init__(self, write: Callable[[str], Any] | None = None) -> None:
        self._write = write or _to_stdout
        self._growing: str | None = None

    def line(self, text: str) -> None:
        """Says a line of its own."""
        self.end_line()
        self._write(safe(text) + "\n")

    def grow(self, name: str, opening: str, text: str) -> None:
        """Adds to the line of that name, which begins with `opening`."""
        if self._growing != name:
            self.end_line()
            self._write(safe(opening))
            self._growing = name
        self._write(safe(text))

    def end_line(self) -> None:
        """Ends the line that grows, if one does."""
        if self._growing is not None:
            self._write("\n")
            self._growing = None


class Tail:
    """Shows what a session's stream gives."""

    def __init__(self, client: Client, session_id: str, screen: Screen, *, shows_messages: bool) -> None:
        self._client = client
        self._session_id = session_id
        self._screen = screen
        self._shows_messages = shows_messages
        self._known: set[str] = set()
        self._coming: deque[message_pb2.Message] = deque()
        """Messages that were read and belong to later events."""
        self._read_to = 0
        """Up to which event messages were read."""
        self._streamed: dict[str, str] = {}
        """What was shown of messages while they were made, by message."""

    def show(self, item: event_pb2.Event | event_pb2.LiveObservation | event_pb2.LiveGap) -> None:
        """Shows an item of the stream."""
        if isinstance(item, event_pb2.LiveGap):
            self._streamed.clear()
            self._screen.line(f"          ~ {item.dropped_count} live observations dropped")
        elif isinstance(item, event_pb2.LiveObservation):
            self._show_live(item)
        else:
            self._show_event(item)

    def _show_event(self, event: event_pb2.Event) -> None:
        name = event.type.removeprefix(_PREFIX)
        is_own = event.type.startswith(_PREFIX)
        if is_own and self._shows_messages and name in _SHOWN_AS_MESSAGES:
            if name == "message.replaced":
                self._show_again(event)
        else:
            self._screen.line(f"{_clock(event.create_time)}  · {name}  {_about(event)}".rstrip())
        if is_own and self._shows_messages and name in _MAY_BRING_MESSAGES:
            self._show_messages(event)
        if is_own and name == "run.ended":
            self._streamed.clear()

    def _show_live(self, live: event_pb2.LiveObservation) -> None:
        plain = to_plain(live)
        chunk = plain.get("payload", {}).get("json")
        if live.kind != event_pb2.LIVE_KIND_TOKEN or not isinstance(chunk, dict):
            self._screen.line(f"          ~ {short_name(plain['kind'])}  {brief(plain)}".rstrip())
            return
        for call in chunk.get("tool_call_chunks") or ():
            if isinstance(call, dict) and call.get("name"):
                self._screen.line(f"          ~ calls {call['name']}")
        text = _text_of(chunk.get("content"))
        if text:
            key = live.message_id or live.run_id
            self._screen.grow(key, f"          {'assistant':<10} ", text)
            self._streamed[key] = self._streamed.get(key, "") + text

    def _show_messages(self, event: event_pb2.Event) -> None:
        """Shows the messages that came up to an event."""
        if event.sequence > self._read_to:
            try:
                self._coming.extend(self._read(event))
            except FreshnessTimeout:
                self._screen.line("          (messages are not there yet)")
            except SessionNotFound:
                # It was deleted since; the stream says so.
                return
        at = event.create_time.ToNanoseconds()
        while self._coming and self._coming[0].create_time.ToNanoseconds() <= at:
            self._show_message(self._coming.popleft())

    def _read(self, event: event_pb2.Event) -> Iterator[message_pb2.Message]:
        """Messages that are new, in their order, as the projection has them after the event or later."""
        summary = self._client.summaries.get_session(self._session_id, at_least=event.cursor)
        found = []
        for message in self._client.messages.list(self._session_id, newest_first=True, page_size=_PAGE):
            if message.message_id in self._known:
                break
            found.append(message)
        self._read_to = max(event.sequence, summary.event_sequence)
        self._known.update(message.message_id for message in found)
        return reversed(found)

    def _show_message(self, message: message_pb2.Message) -> None:
        text = "".join(part.text or part.block_json for part in message.parts)
        lines = [] if self._streamed.pop(message.message_id, None) == text else [text] if text else []
        lines += [f"calls {call.name}({call.args_json})" for call in message.tool_calls]
        role = short_name(to_plain(message)["role"])
        speaker = f"{role} {message.name}" if role == "tool" and message.name else role
        self._screen.end_line()
        for line in lines:
            self._screen.line(f"{_clock(message.create_time)}  {speaker:<10} {line}")

    def _show_again(self, event: event_pb2.Event) -> None:
        fact = (to_plain(event).get("payload", {}).get("json") or {}).get("message") or {}
        try:
            message = self._client.messages.get(self._session_id, fact.get("message_id", ""), at_least=event.cursor)
        except (MessageNotFound, FreshnessTimeout):
            return
        self._screen.line(f"{_clock(event.create_time)}  · message.replaced  {message.message_id}")
        self._show_message(message)


def safe(text: str) -> str:
    """Text without what would move a terminal's cursor or change its colours; new lines and tabs stay."""
    return _CONTROL.sub("\ufffd", text)


def _to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _clock(stamp: Any) -> str:
    return str(stamp.ToDatetime().strftime("%H:%M:%S"))


def _about(event: event_pb2.Event) -> str:
    plain = to_plain(event)
    payload = plain.get("payload", {}).get("json")
    versions = payload.get("versions") if isinstance(payload, dict) else None
    if event.type == "threadkeep.state.changed" and isinstance(versions, dict):
        return ", ".join(f"{key} (version {version})" for key, version in sorted(versions.items()))
    if event.HasField("task_id") and event.type.startswith("threadkeep.task."):
        return f"{event.task_id}  {brief(plain)}".rstrip()
    return brief(plain)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(one if isinstance(one, str) else str(one.get("text") or "") for one in blocks if _is_block(one))


def _is_block(value: Any) -> bool:
    return isinstance(value, str | dict)
