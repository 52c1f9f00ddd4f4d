"""Message facts: the shape that a commit's changes of the conversation must have, and what they come to (R1, R12, P2).

A message keeps its place, a number that is never used again. Its content is opaque here: a serialized MessageDraft.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from threadkeep_chassis.errors import FailedPrecondition, FieldInvalid, IdTaken, NotFound

CHECKPOINTS, FACTS = "CHECKPOINTS", "FACTS"
"""Message sources; '' while it is not fixed."""

LISTED_EVERY = 256
"""After how many changes of a conversation its live places are written down."""

Range = tuple[int, int]
"""Places from the first to the last, both included."""


class MessageSourceMixed(FailedPrecondition):
    """The session's messages come from its checkpoints."""

    reason = "MESSAGE_SOURCE_MIXED"
    default_message = "The session's messages come from its checkpoints; its commits carry none."


class MessageNotFound(NotFound):
    """No such message in the thread."""

    reason = "MESSAGE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: there is no such message in this thread.")


class Change(NamedTuple):
    """One change: `append` or `replace` with a message, or `remove`."""

    kind: str
    message_id: str
    is_named: bool
    path: str
    """Where the request holds it, for errors."""
    content: bytes = b""
    shown: Mapping[str, Any] = {}
    """The message as it goes into the event: proto3 JSON."""
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it asks for."""
    answers: str | None = None
    """Id of the tool call that it answers."""


class Live(NamedTuple):
    """A message that is in the conversation."""

    position: int
    from_commit: int
    run_id: str | None
    task_id: str | None
    create_time: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """What a commit needs to know of the thread's messages."""

    live: Mapping[str, Live]
    """Those of the named ids that are in the conversation."""
    used: frozenset[str]
    """Those of the named ids that were ever used."""
    calls: frozenset[str]
    """Those of the answered tool calls that a message asked for."""
    places: tuple[Range, ...] = ()
    """The live places, if the commit has to write them down."""


NOTHING_KNOWN = Known({}, frozenset(), frozenset())


class MessageRow(NamedTuple):
    """A message's content since a commit."""

    position: int
    message_id: str
    content: bytes
    run_id: str | None
    task_id: str | None
    create_time: datetime


class Closed(NamedTuple):
    """A content that ends with a commit: the next one replaces it, or the message is removed."""

    position: int
    from_commit: int
    is_removed: bool


@dataclass(frozen=True, slots=True)
class MessageChanges:
    """What a commit writes."""

    rows: tuple[MessageRow, ...] = ()
    closed: tuple[Closed, ...] = ()
    calls: tuple[str, ...] = ()
    places: tuple[Range, ...] | None = None
    """The live places after the commit, if they are to be written down."""
    appended_ids: tuple[str, ...] = ()


class Counters(NamedTuple):
    """A thread's counters of messages."""

    position: int
    total: int
    changes: int
    """Since the live places were written down."""


def source_after(source: str, has_checkpoints: bool, brings_checkpoints: bool, brings_messages: bool) -> str:
    """The session's source after a commit. Raises MessageSourceMixed."""
    known = source or (CHECKPOINTS if has_checkpoints else "")
    if brings_messages:
        if known == CHECKPOINTS:
            raise MessageSourceMixed()
        return FACTS
    return known or (CHECKPOINTS if brings_checkpoints else "")


def change_messages(
    changes: Sequence[Change],
    known: Known,
    counters: Counters,
    *,
    run_id: str | None,
    task_id: str | None,
    now: datetime,
) -> tuple[MessageChanges, Counters]:
    """What the changes write, and the counters after them. Raises IdTaken, MessageNotFound, FieldInvalid."""
    position, count = counters.position, counters.total
    named: set[str] = set()
    calls: dict[str, None] = {}
    rows: list[MessageRow] = []
    closed: list[Closed] = []
    removed: list[int] = []
    for change in changes:
        if change.message_id in named:
            raise FieldInvalid(f"{change.path}.message_id", "is named by another change of the commit")
        named.add(change.message_id)
        if change.answers is not None and change.answers not in known.calls and change.answers not in calls:
            raise FieldInvalid(f"{change.path}.tool_call_id", "must name a tool call of an earlier message")
        calls.update(dict.fromkeys(change.calls))
        if change.kind == "append":
            if change.message_id in known.used:
                raise IdTaken("message", change.message_id)
            position += 1
            count += 1
            rows.append(MessageRow(position, change.message_id, change.content, run_id, task_id, now))
            continue
        live = known.live.get(change.message_id)
        if live is None:
            raise MessageNotFound(f"{change.path}.message_id" if change.kind == "replace" else change.path)
        is_removed = change.kind == "remove"
        closed.append(Closed(live.position, live.from_commit, is_removed))
        if is_removed:
            count -= 1
            removed.append(live.position)
        else:
            rows.append(
                MessageRow(
                    live.position, change.message_id, change.content, live.run_id, live.task_id, live.create_time
                )
            )
    since = counters.changes + len(changes)
    places = None
    if since >= LISTED_EVERY:
        places = tuple(without(extended(known.places, counters.position, position), removed))
        since = 0
    appended = tuple(change.message_id for change in changes if change.kind == "append")
    written = MessageChanges(tuple(rows), tuple(closed), tuple(calls), places, appended)
    return written, Counters(position, count, since)


def needs_places(changes: int, more: int) -> bool:
    """True if a commit of `more` changes writes the live places down."""
    return more > 0 and changes + more >= LISTED_EVERY


def extended(places: Iterable[Range], last: int, position: int) -> Iterator[Range]:
    """The places with those behind `last`, up to `position`."""
    listed = list(places)
    if position > last:
        if listed and listed[-1][1] == last:
            listed[-1] = (listed[-1][0], position)
        else:
            listed.append((last + 1, position))
    return iter(listed)


def without(places: Iterable[Range], removed: Iterable[int]) -> Iterator[Range]:
    """The places without the removed ones."""
    gone = sorted(set(removed))
    index = 0
    for first, last in places:
        start = first
        while index < len(gone) and gone[index] < first:
            index += 1
        while index < len(gone) and gone[index] <= last:
            if gone[index] > start:
                yield start, gone[index] - 1
            start = gone[index] + 1
            index += 1
        if start <= last:
            yield start, last


def behind(places: Iterable[Range], after: int, count: int) -> list[int]:
    """The first `count` places behind `after`."""
    found: list[int] = []
    for first, last in places:
        for position in range(max(first, after + 1), last + 1):
            if len(found) == count:
                return found
            found.append(position)
    return found
