"""Loads what events need of their threads, and writes what they changed: one statement per table for many threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.cursors import thread_subject
from threadkeep_chassis.database import Connection, insert_or_ignore, upsert
from threadkeep_projection.domain.batches import copy_of
from threadkeep_projection.domain.projector import Draft, named_rows, needs_inputs, needs_messages
from threadkeep_projection.domain.values import Event, Message, Session, Usage
from threadkeep_projection.store import rows
from threadkeep_projection.tables import (
    SHOWN_MESSAGE,
    inputs,
    messages,
    poison_events,
    runs,
    session_entries,
    sessions,
    task_entries,
    tasks,
)

ThreadKey = tuple[str, str]
"""(scope_key, session_id)"""

_USAGE = ("input_tokens", "output_tokens", "total_tokens")


def _written(table: sa.Table, *without: str) -> list[str]:
    keys = {column.name for column in table.primary_key}
    return [column.name for column in table.c if column.name not in keys and column.name not in without]


def _of_keys(table: sa.Table, *key: str, columns: Sequence[Any] = ()) -> sa.Select[Any]:
    selected = sa.select(*columns) if columns else sa.select(table)
    return selected.where(sa.tuple_(*(table.c[name] for name in key)).in_(sa.bindparam("keys", expanding=True)))


_SESSIONS = _of_keys(sessions, "scope_key", "session_id")
_TASKS = _of_keys(tasks, "scope_key", "task_id")
_RUNS = _of_keys(runs, "scope_key", "run_id")
_MESSAGES = _of_keys(
    messages,
    "scope_key",
    "session_id",
    columns=[column for column in SHOWN_MESSAGE if column.name not in ("content", "excerpt")],
)
_INPUTS = _of_keys(inputs, "scope_key", "session_id")

_PUT_SESSIONS = upsert(sessions, ["scope_key", "session_id"], _written(sessions, *_USAGE))
_PUT_TASKS = upsert(tasks, ["scope_key", "task_id"], _written(tasks, *_USAGE))
_PUT_RUNS = upsert(runs, ["scope_key", "run_id"], _written(runs, *_USAGE))
_PUT_MESSAGES = upsert(messages, ["scope_key", "session_id", "message_id"], _written(messages))
_PUT_INPUTS = upsert(inputs, ["scope_key", "session_id", "message_id"], _written(inputs))
_PUT_POISON = insert_or_ignore(poison_events, ["scope_key", "session_id", "sequence"])
_PUT_SESSION_ENTRIES = sa.insert(session_entries)
_PUT_TASK_ENTRIES = upsert(task_entries, ["scope_key", "task_id", "entry"], ["session_id", "create_time"])


def _where(table: sa.Table, *key: str) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == sa.bindparam(f"of_{name}") for name in key))


_MOVE_MESSAGES = (
    sa.update(messages)
    .where(_where(messages, "scope_key", "session_id", "message_id"))
    .values(
        position=sa.bindparam("to_position", type_=sa.BigInteger()),
        is_pending=sa.bindparam("to_pending", type_=sa.Boolean()),
    )
)
_DROP_INPUTS = sa.delete(inputs).where(_where(inputs, "scope_key", "session_id", "message_id"))
_DROP_SESSION_ENTRIES = sa.delete(session_entries).where(_where(session_entries, "scope_key", "session_id"))
_FORGET_MESSAGES = sa.delete(messages).where(_where(messages, "scope_key", "session_id"))
_OF_SESSION = {
    table.name: sa.delete(table).where(_where(table, "scope_key", "session_id"))
    for table in (messages, inputs, session_entries, task_entries, tasks, runs, sessions, poison_events)
}


def _add_usage(table: sa.Table, key: str) -> sa.Update:
    return (
        sa.update(table)
        .where(_where(table, "scope_key", key))
        .values({name: table.c[name] + sa.bindparam(f"more_{name}", type_=sa.BigInteger()) for name in _USAGE})
    )


_ADD_SESSION_USAGE = _add_usage(sessions, "session_id")
_ADD_TASK_USAGE = _add_usage(tasks, "task_id")
_ADD_RUN_USAGE = _add_usage(runs, "run_id")


@dataclass
class Loaded:
    """Threads as they are stored, and the drafts that events are applied to."""

    before: dict[ThreadKey, Draft] = field(default_factory=dict)
    drafts: dict[ThreadKey, Draft] = field(default_factory=dict)


async def load_threads(connection: Connection, events: Mapping[ThreadKey, Iterable[Event]]) -> Loaded:
    """Loads each thread with what `apply` reads for its events."""
    drafts = {key: Draft(key[1]) for key in events}
    task_keys: dict[tuple[str, str], ThreadKey] = {}
    run_keys: dict[tuple[str, str], ThreadKey] = {}
    with_messages: list[ThreadKey] = []
    with_inputs: list[ThreadKey] = []
    for key, batch in events.items():
        listed = list(batch)
        for event in listed:
            task_ids, run_ids = named_rows(event)
            task_keys.update({(key[0], task_id): key for task_id in task_ids})
            run_keys.update({(key[0], run_id): key for run_id in run_ids})
        if any(needs_messages(event) for event in listed):
            with_messages.append(key)
        if any(needs_inputs(event) for event in listed):
            with_inputs.append(key)
    for row in await _select(connection, _SESSIONS, drafts):
        drafts[row.scope_key, row.session_id].session = rows.session_of(row)
    for row in await _select(connection, _TASKS, task_keys):
        _own(drafts, task_keys, row, row.task_id).tasks[row.task_id] = rows.task_of(row)
    for row in await _select(connection, _RUNS, run_keys):
        _own(drafts, run_keys, row, row.run_id).runs[row.run_id] = rows.run_of(row)
    for row in await _select(connection, _MESSAGES, with_messages):
        message = rows.message_of(row, with_content=False)
        drafts[row.scope_key, row.session_id].messages[message.message_id] = message
    for row in await _select(connection, _INPUTS, with_inputs):
        drafts[row.scope_key, row.session_id].inputs[row.message_id] = rows.input_of(row)
    before = {key: copy_of(draft) for key, draft in drafts.items()}
    return Loaded(before, drafts)


async def write_threads(connection: Connection, loaded: Loaded) -> None:
    """Writes what became of the drafts."""
    batch = _Batch()
    for key in sorted(loaded.drafts):
        batch.add(key, loaded.before[key], loaded.drafts[key])
    await batch.write(connection)


async def drop_session(connection: Connection, key: ThreadKey) -> None:
    """Removes everything of a session."""
    for statement in _OF_SESSION.values():
        await connection.execute(statement, {"of_scope_key": key[0], "of_session_id": key[1]})


async def drop_everything(connection: Connection) -> None:
    """Removes every session's rows."""
    for table in (messages, inputs, session_entries, task_entries, tasks, runs, sessions, poison_events):
        await connection.execute(sa.delete(table))


class _Batch:
    """The rows to write, by table."""

    def __init__(self) -> None:
        self.deleted: list[rows.Row] = []
        self.sessions: list[rows.Row] = []
        self.entries_of: list[rows.Row] = []
        self.session_entries: list[rows.Row] = []
        self.tasks: list[rows.Row] = []
        self.task_entries: list[rows.Row] = []
        self.runs: list[rows.Row] = []
        self.forget: list[rows.Row] = []
        self.messages: list[rows.Row] = []
        self.moves: list[rows.Row] = []
        self.inputs: list[rows.Row] = []
        self.dropped_inputs: list[rows.Row] = []
        self.session_usage: list[rows.Row] = []
        self.task_usage: list[rows.Row] = []
        self.run_usage: list[rows.Row] = []
        self.poison: list[rows.Row] = []

    def add(self, key: ThreadKey, before: Draft, after: Draft) -> None:
        """Adds a thread's changes."""
        scope_key, session_id = key
        of = {"of_scope_key": scope_key, "of_session_id": session_id}
        if after.is_deleted:
            self.deleted.append(of)
            return
        if after.session is not None and after.session != before.session:
            self.sessions.append(rows.session_row(scope_key, thread_subject(scope_key, session_id), after.session))
            if before.session is None or _entries_of(after.session) != _entries_of(before.session):
                self.entries_of.append(of)
                self.session_entries += [
                    {
                        "scope_key": scope_key,
                        "session_id": session_id,
                        "entry": rows.entry_digest(*entry),
                        "create_time": after.session.create_time,
                    }
                    for entry in after.session.metadata
                ]
        for task in _changed(before.tasks, after.tasks):
            self.tasks.append(rows.task_row(scope_key, task))
            if task.task_id not in before.tasks:
                self.task_entries += [
                    {
                        "scope_key": scope_key,
                        "task_id": task.task_id,
                        "entry": rows.entry_digest(*entry),
                        "session_id": session_id,
                        "create_time": task.create_time,
                    }
                    for entry in task.metadata
                ]
        self.runs += [rows.run_row(scope_key, run) for run in _changed(before.runs, after.runs)]
        stored: Mapping[str, Message] = before.messages
        if after.forgets_messages:
            self.forget.append(of)
            stored = {}
        for message in _changed(stored, after.messages):
            self._add_message(key, stored.get(message.message_id), message)
        for one in _changed(before.inputs, after.inputs):
            self.inputs.append(rows.input_row(scope_key, session_id, one))
        self.dropped_inputs += [
            {**of, "of_message_id": message_id} for message_id in before.inputs if message_id not in after.inputs
        ]
        self.poison += [rows.poison_row(scope_key, session_id, one) for one in after.poison.values()]
        self.session_usage += _more(scope_key, "session_id", {session_id: after.session_usage})
        self.task_usage += _more(scope_key, "task_id", after.task_usage)
        self.run_usage += _more(scope_key, "run_id", after.run_usage)

    def _add_message(self, key: ThreadKey, before: Message | None, after: Message) -> None:
        is_taken_out = after.position is None
        if before is None or is_taken_out or before.position is None or after.digest != before.digest:
            self.messages.append(rows.message_row(*key, after))
            return
        # Only its place changed: what it says was not even loaded.
        self.moves.append(
            {
                "of_scope_key": key[0],
                "of_session_id": key[1],
                "of_message_id": after.message_id,
                "to_position": after.position,
                "to_pending": after.is_pending,
            }
        )

    async def write(self, connection: Connection) -> None:
        """Runs the statements."""
        for statement, parameters in (
            *((statement, self.deleted) for statement in _OF_SESSION.values()),
            (_PUT_SESSIONS, self.sessions),
            (_DROP_SESSION_ENTRIES, self.entries_of),
            (_PUT_SESSION_ENTRIES, self.session_entries),
            (_PUT_TASKS, self.tasks),
            (_PUT_TASK_ENTRIES, self.task_entries),
            (_PUT_RUNS, self.runs),
            (_FORGET_MESSAGES, self.forget),
            (_PUT_MESSAGES, self.messages),
            (_MOVE_MESSAGES, self.moves),
            (_PUT_INPUTS, self.inputs),
            (_DROP_INPUTS, self.dropped_inputs),
            (_ADD_SESSION_USAGE, self.session_usage),
            (_ADD_TASK_USAGE, self.task_usage),
            (_ADD_RUN_USAGE, self.run_usage),
            (_PUT_POISON, self.poison),
        ):
            if parameters:
                await connection.execute(statement, parameters)


def _entries_of(session: Session) -> tuple[Any, ...]:
    return session.metadata, session.create_time


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Any]:
    return [value for key, value in after.items() if before.get(key) != value]


def _more(scope_key: str, name: str, usages: Mapping[str, Usage]) -> list[rows.Row]:
    return [
        {
            "of_scope_key": scope_key,
            f"of_{name}": key,
            "more_input_tokens": usage.input_tokens,
            "more_output_tokens": usage.output_tokens,
            "more_total_tokens": usage.total_tokens,
        }
        for key, usage in usages.items()
        if usage != Usage()
    ]


def _own(
    drafts: Mapping[ThreadKey, Draft], owners: Mapping[tuple[str, str], ThreadKey], row: Any, row_id: str
) -> Draft:
    return drafts[owners[row.scope_key, row_id]]


async def _select(connection: Connection, statement: sa.Select[Any], keys: Iterable[tuple[str, str]]) -> list[Any]:
    listed = list(keys)
    return list(await connection.execute(statement, {"keys": listed})) if listed else []
