"""Reads of tasks by when they last changed, and of what was said for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection
from threadkeep_chassis.paging import after_key
from threadkeep_projection.domain.values import Message, Task
from threadkeep_projection.store import rows
from threadkeep_projection.tables import SHOWN_MESSAGE, messages, tasks

MOST_COUNTED = 10_000
"""A count goes no further."""


@dataclass(frozen=True)
class TaskStateFilter:
    """Which tasks a list holds. None: all."""

    session_id: str | None = None
    agent_name: str | None = None
    state: str | None = None
    updated_from: datetime | None = None


async def list_by_update(
    connection: Connection, scope_key: str, wanted: TaskStateFilter, after: Sequence[Any] | None, limit: int
) -> list[Task]:
    """Tasks, the one that changed last first, after the key (update_time, task_id)."""
    statement = _filtered(sa.select(tasks), scope_key, wanted)
    if after is not None:
        statement = statement.where(after_key([tasks.c.update_time, tasks.c.task_id], after, descending=True))
    statement = statement.order_by(tasks.c.update_time.desc(), tasks.c.task_id.desc()).limit(limit)
    return [rows.task_of(row) for row in await connection.execute(statement)]


async def count_tasks(connection: Connection, scope_key: str, wanted: TaskStateFilter) -> int:
    """How many tasks the whole list has, up to MOST_COUNTED."""
    some = _filtered(sa.select(tasks.c.task_id), scope_key, wanted).limit(MOST_COUNTED).subquery()
    return int(await connection.scalar(sa.select(sa.func.count()).select_from(some)) or 0)


async def messages_of_task(
    connection: Connection, scope_key: str, session_id: str, task_id: str, roles: Sequence[str], limit: int
) -> list[Message]:
    """The last messages that a task brought into the conversation, oldest first; only those who speak as `roles`.

    Looks at four messages for each one wanted: tools may have said much in between.
    """
    statement = (
        sa.select(*SHOWN_MESSAGE)
        .where(
            messages.c.scope_key == scope_key,
            messages.c.task_id == task_id,
            messages.c.session_id == session_id,
            messages.c.position.is_not(None),
        )
        .order_by(messages.c.position.desc())
        .limit(4 * limit)
    )
    found = [rows.message_of(row, with_content=True) for row in await connection.execute(statement)]
    spoken = [one for one in found if one.content is not None and one.content.role in roles]
    return spoken[:limit][::-1]


def _filtered(statement: sa.Select[Any], scope_key: str, wanted: TaskStateFilter) -> sa.Select[Any]:
    statement = statement.where(tasks.c.scope_key == scope_key)
    if wanted.session_id is not None:
        statement = statement.where(tasks.c.session_id == wanted.session_id)
    if wanted.agent_name is not None:
        statement = statement.where(tasks.c.agent_name == wanted.agent_name)
    if wanted.state is not None:
        statement = statement.where(tasks.c.state == wanted.state)
    if wanted.updated_from is not None:
        statement = statement.where(tasks.c.update_time >= wanted.updated_from)
    return statement
