"""Reads of messages and summaries: by id, and in pages by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection
from threadkeep_chassis.paging import after_key
from threadkeep_projection.domain.values import Message, Run, Session, Task, Usage
from threadkeep_projection.store import rows
from threadkeep_projection.tables import SHOWN_MESSAGE, messages, runs, session_entries, sessions, task_entries, tasks


@dataclass(frozen=True)
class SummaryFilter:
    """Which summaries a list holds. None and empty mean: all."""

    session_id: str | None = None
    task_id: str | None = None
    agent_name: str | None = None
    states: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    created_from: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True)
class SessionView:
    """A session with what is read beside it."""

    session: Session
    usage: Usage
    last_text: str


@dataclass(frozen=True)
class TaskView:
    """A task and its usage."""

    task: Task
    usage: Usage


@dataclass(frozen=True)
class RunView:
    """A run and its usage."""

    run: Run
    usage: Usage


_last = messages.alias("last_message")
# Positions are dense from 1, so the last message is the one whose position is the count.
_SESSIONS = sa.select(sessions, _last.c.excerpt.label("last_text")).select_from(
    sessions.outerjoin(
        _last,
        sa.and_(
            _last.c.scope_key == sessions.c.scope_key,
            _last.c.session_id == sessions.c.session_id,
            _last.c.position == sessions.c.message_count,
        ),
    )
)
_SEQUENCE_OF_SUBJECT = sa.select(sa.func.max(sessions.c.event_sequence)).where(
    sessions.c.scope_key == sa.bindparam("scope_key"), sessions.c.subject == sa.bindparam("subject")
)


async def get_session(connection: Connection, scope_key: str, session_id: str) -> SessionView | None:
    """The session, or None."""
    statement = _SESSIONS.where(sessions.c.scope_key == scope_key, sessions.c.session_id == session_id)
    row = (await connection.execute(statement)).first()
    return _session_view(row) if row is not None else None


async def list_sessions(
    connection: Connection, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
) -> list[SessionView]:
    """Sessions, the newest first, after the key (create_time, session_id)."""
    statement = listing_sessions(scope_key, wanted, after).limit(limit)
    return [_session_view(row) for row in await connection.execute(statement)]


def listing_sessions(scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None) -> sa.Select[Any]:
    """The statement of `list_sessions`, without its limit."""
    return _filtered(_SESSIONS, sessions, "session_id", sessions.c.status, session_entries, scope_key, wanted, after)


async def event_sequence_of(connection: Connection, scope_key: str, subject: str) -> int | None:
    """How far the session that cursors call `subject` is projected; None if there is none."""
    value = await connection.scalar(_SEQUENCE_OF_SUBJECT, {"scope_key": scope_key, "subject": subject})
    return None if value is None else int(value)


async def get_task(connection: Connection, scope_key: str, task_id: str) -> TaskView | None:
    """The task, or None."""
    statement = sa.select(tasks).where(tasks.c.scope_key == scope_key, tasks.c.task_id == task_id)
    row = (await connection.execute(statement)).first()
    return TaskView(rows.task_of(row), rows.usage_of(row)) if row is not None else None


async def list_tasks(
    connection: Connection, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
) -> list[TaskView]:
    """Tasks, the newest first, after the key (create_time, task_id)."""
    found = await connection.execute(listing_tasks(scope_key, wanted, after).limit(limit))
    return [TaskView(rows.task_of(row), rows.usage_of(row)) for row in found]


def listing_tasks(scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None) -> sa.Select[Any]:
    """The statement of `list_tasks`, without its limit."""
    statement = _filtered(sa.select(tasks), tasks, "task_id", tasks.c.state, task_entries, scope_key, wanted, after)
    if wanted.session_id is not None:
        statement = statement.where(tasks.c.session_id == wanted.session_id)
    return statement


async def get_run(connection: Connection, scope_key: str, run_id: str) -> RunView | None:
    """The run, or None."""
    statement = sa.select(runs).where(runs.c.scope_key == scope_key, runs.c.run_id == run_id)
    row = (await connection.execute(statement)).first()
    return RunView(rows.run_of(row), rows.usage_of(row)) if row is not None else None


async def list_runs(
    connection: Connection, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
) -> list[RunView]:
    """Runs, the newest first, after the key (create_time, run_id)."""
    found = await connection.execute(listing_runs(scope_key, wanted, after).limit(limit))
    return [RunView(rows.run_of(row), rows.usage_of(row)) for row in found]


def listing_runs(scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None) -> sa.Select[Any]:
    """The statement of `list_runs`, without its limit."""
    statement = _filtered(sa.select(runs), runs, "run_id", runs.c.state, None, scope_key, wanted, after)
    if wanted.session_id is not None:
        statement = statement.where(runs.c.session_id == wanted.session_id)
    if wanted.task_id is not None:
        statement = statement.where(runs.c.task_id == wanted.task_id)
    return statement


async def get_message(connection: Connection, scope_key: str, session_id: str, message_id: str) -> Message | None:
    """A message of the conversation as it stands, or None."""
    statement = sa.select(*SHOWN_MESSAGE).where(
        messages.c.scope_key == scope_key,
        messages.c.session_id == session_id,
        messages.c.message_id == message_id,
        messages.c.position.is_not(None),
    )
    row = (await connection.execute(statement)).first()
    return rows.message_of(row, with_content=True) if row is not None else None


async def list_messages(
    connection: Connection, scope_key: str, session_id: str, *, after: int | None, newest_first: bool, limit: int
) -> list[Message]:
    """Messages in the order of the conversation, or backwards, behind the position `after`."""
    position = messages.c.position
    statement = sa.select(*SHOWN_MESSAGE).where(
        messages.c.scope_key == scope_key, messages.c.session_id == session_id, position.is_not(None)
    )
    if newest_first:
        statement = statement.order_by(position.desc())
        if after is not None:
            statement = statement.where(position < after)
    else:
        statement = statement.order_by(position)
        if after is not None:
            statement = statement.where(position > after)
    return [rows.message_of(row, with_content=True) for row in await connection.execute(statement.limit(limit))]


async def place_of(connection: Connection, scope_key: str, session_id: str, message_id: str) -> tuple[int, bool]:
    """Where a page that stopped at the message goes on: (position, True if that is the message itself).

    Positions move when messages are taken out. If the message itself was, its nearest predecessor that is still there
    stands for it (False); 0 if there is none.
    """
    current: str | None = message_id
    is_itself = True
    seen: set[str] = set()
    while current is not None and current not in seen:
        seen.add(current)
        row = (
            await connection.execute(
                sa.select(messages.c.position, messages.c.parent_message_id).where(
                    messages.c.scope_key == scope_key,
                    messages.c.session_id == session_id,
                    messages.c.message_id == current,
                )
            )
        ).first()
        if row is None:
            break
        if row.position is not None:
            return int(row.position), is_itself
        current, is_itself = row.parent_message_id, False
    return 0, False


def _session_view(row: Any) -> SessionView:
    return SessionView(rows.session_of(row), rows.usage_of(row), row.last_text or "")


def _filtered(
    statement: sa.Select[Any],
    table: sa.Table,
    key: str,
    state: sa.ColumnElement[str],
    entries: sa.Table | None,
    scope_key: str,
    wanted: SummaryFilter,
    after: Sequence[Any] | None,
) -> sa.Select[Any]:
    """The rows wanted, the newest first. With metadata they come by the first entry, whose index has them in order."""
    order = [table.c.create_time, table.c[key]]
    statement = statement.where(table.c.scope_key == scope_key)
    digests = [rows.entry_digest(*entry) for entry in sorted(wanted.metadata.items())] if entries is not None else []
    for index, digest in enumerate(digests):
        assert entries is not None
        one = entries.alias(f"entry_{index}")
        is_of = sa.and_(one.c.scope_key == scope_key, one.c.entry == digest, one.c[key] == table.c[key])
        if index == 0:
            order = [one.c.create_time, one.c[key]]
            statement = statement.where(is_of)
        else:
            statement = statement.where(sa.exists().where(is_of))
    if wanted.agent_name is not None:
        statement = statement.where(table.c.agent_name == wanted.agent_name)
    if wanted.states:
        statement = statement.where(state.in_(list(wanted.states)))
    if wanted.created_from is not None:
        statement = statement.where(order[0] >= wanted.created_from)
    if wanted.created_before is not None:
        statement = statement.where(order[0] < wanted.created_before)
    if after is not None:
        statement = statement.where(after_key(order, after, descending=True))
    return statement.order_by(*(column.desc() for column in order))
