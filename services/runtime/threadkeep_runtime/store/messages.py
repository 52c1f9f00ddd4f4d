"""Statements of message facts: what commits need to know and write, and the conversation as of a commit (R12)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore, write_rows
from threadkeep_runtime.domain.commands import Command, CommitThread
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.messages import Known, Live, Range, behind, extended, needs_places, without
from threadkeep_runtime.domain.values import Thread
from threadkeep_runtime.store.statements import padded, update_by
from threadkeep_runtime.tables import message_calls, message_places, messages

Pair = tuple[str, str]

_NAMED = sa.select(
    messages.c.thread_key,
    messages.c.message_id,
    messages.c.position,
    messages.c.from_commit,
    messages.c.to_commit,
    messages.c.run_id,
    messages.c.task_id,
    messages.c.create_time,
).where(sa.tuple_(messages.c.thread_key, messages.c.message_id).in_(sa.bindparam("pairs", expanding=True)))
_CALLS = sa.select(message_calls.c.thread_key, message_calls.c.tool_call_id).where(
    sa.tuple_(message_calls.c.thread_key, message_calls.c.tool_call_id).in_(sa.bindparam("pairs", expanding=True))
)
_PLACES = (
    sa.select(message_places.c.commit_sequence, message_places.c.position, message_places.c.places)
    .where(
        message_places.c.thread_key == sa.bindparam("thread_key"),
        message_places.c.commit_sequence <= sa.bindparam("commit_sequence"),
    )
    .order_by(message_places.c.commit_sequence.desc())
    .limit(1)
)
_REMOVED = sa.select(messages.c.position).where(
    messages.c.thread_key == sa.bindparam("thread_key"),
    # As the index says it: SQLite finds a partial index by the words of its condition.
    sa.literal_column("messages.is_removed"),
    messages.c.to_commit > sa.bindparam("after"),
    messages.c.to_commit <= sa.bindparam("commit_sequence"),
)
_AT = (
    sa.select(messages)
    .where(
        messages.c.thread_key == sa.bindparam("thread_key"),
        messages.c.position.in_(sa.bindparam("positions", expanding=True)),
        messages.c.from_commit <= sa.bindparam("commit_sequence"),
        sa.or_(messages.c.to_commit.is_(None), messages.c.to_commit > sa.bindparam("commit_sequence")),
    )
    .order_by(messages.c.position)
)
_CLOSE = update_by(messages, "thread_key", "position", "from_commit")
_INSERT = sa.insert(messages)
_INSERT_CALLS = insert_or_ignore(message_calls, ["thread_key", "tool_call_id"])
_INSERT_PLACES = sa.insert(message_places)


class MessageFact(NamedTuple):
    """A message of a view."""

    position: int
    content: bytes
    commit_sequence: int
    run_id: str | None
    task_id: str | None
    create_time: datetime


def load_known(connection: Connection, batch: Sequence[Command], found: dict[str, Thread]) -> dict[str, Known]:
    """What the batch's commits need to know, by thread key; only of threads that exist and commits with messages."""
    changing = [
        command
        for command in batch
        if isinstance(command, CommitThread) and command.messages and command.thread_key in found
    ]
    if not changing:
        return {}
    named = [(one.thread_key, change.message_id) for one in changing for change in one.messages if change.is_named]
    answers = [(one.thread_key, change.answers) for one in changing for change in one.messages if change.answers]
    live: dict[str, dict[str, Live]] = {}
    used: dict[str, set[str]] = {}
    for row in connection.execute(_NAMED, {"pairs": padded(named)}) if named else ():
        used.setdefault(row.thread_key, set()).add(row.message_id)
        if row.to_commit is None:
            live.setdefault(row.thread_key, {})[row.message_id] = Live(
                row.position, row.from_commit, row.run_id, row.task_id, row.create_time
            )
    calls: dict[str, set[str]] = {}
    for thread_key, call in connection.execute(_CALLS, {"pairs": padded(answers)}) if answers else ():
        calls.setdefault(thread_key, set()).add(call)
    known = {}
    for command in changing:
        key = command.thread_key
        thread = found[key]
        places: tuple[Range, ...] = ()
        if needs_places(thread.message_changes, len(command.messages)):
            places = tuple(places_at(connection, key, thread.commit_sequence, thread.message_position))
        known[key] = Known(live.get(key, {}), frozenset(used.get(key, ())), frozenset(calls.get(key, ())), places)
    return known


def places_at(connection: Connection, thread_key: str, commit_sequence: int, position: int) -> Iterable[Range]:
    """The live places after a commit; `position` is the last that was given by then."""
    bound = {"thread_key": thread_key, "commit_sequence": commit_sequence}
    listed = connection.execute(_PLACES, bound).first()
    after, last, places = (0, 0, []) if listed is None else (listed[0], listed[1], json.loads(listed[2]))
    removed = connection.scalars(_REMOVED, {**bound, "after": after}).all()
    return without(extended([(one[0], one[1]) for one in places], last, position), removed)


def messages_at(
    connection: Connection, thread_key: str, commit_sequence: int, places: Iterable[Range], after: int, count: int
) -> list[MessageFact]:
    """The messages at the first live places behind `after`, as they were after a commit."""
    wanted = behind(places, after, count)
    if not wanted:
        return []
    bound = {"thread_key": thread_key, "commit_sequence": commit_sequence, "positions": padded(wanted)}
    return [
        MessageFact(row.position, bytes(row.content), row.from_commit, row.run_id, row.task_id, row.create_time)
        for row in connection.execute(_AT, bound)
    ]


def write_messages(connection: Connection, writing: Sequence[Decision]) -> None:
    """Writes what commits change of their conversations: ends of contents, new contents, calls, and places."""
    closed: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    places: list[dict[str, Any]] = []
    for decision in writing:
        changes, thread = decision.messages, decision.thread
        if changes is None or thread is None:
            continue
        key, sequence = thread.thread_key, thread.commit_sequence
        closed += [
            {
                "key_thread_key": key,
                "key_position": one.position,
                "key_from_commit": one.from_commit,
                "to_commit": sequence,
                "is_removed": one.is_removed,
            }
            for one in changes.closed
        ]
        rows += [
            {"thread_key": key, "from_commit": sequence, "to_commit": None, "is_removed": False, **row._asdict()}
            for row in changes.rows
        ]
        calls += [{"thread_key": key, "tool_call_id": call} for call in changes.calls]
        if changes.places is not None:
            places.append(
                {
                    "thread_key": key,
                    "commit_sequence": sequence,
                    "position": thread.message_position,
                    "places": json.dumps(changes.places, separators=(",", ":")),
                }
            )
    write_rows(connection, _CLOSE, closed)
    write_rows(connection, _INSERT, rows)
    write_rows(connection, _INSERT_CALLS, calls)
    write_rows(connection, _INSERT_PLACES, places)
