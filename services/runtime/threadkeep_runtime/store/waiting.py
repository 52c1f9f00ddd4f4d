"""Statements about tasks that wait: which sessions have one that is due, or any that a filter selects (R9, R24)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_runtime.domain.commands import TaskFilter
from threadkeep_runtime.store.statements import NO_RUN, SUBMITTED
from threadkeep_runtime.tables import manifests, tasks, threads

_DUE = (
    sa.select(tasks.c.scope_key, tasks.c.session_id, tasks.c.thread_key)
    .join(threads, threads.c.thread_key == tasks.c.thread_key)
    .where(
        tasks.c.state == SUBMITTED,
        tasks.c.run_id == NO_RUN,
        tasks.c.not_before.is_not(None),
        tasks.c.not_before <= sa.bindparam("now", type_=tasks.c.not_before.type),
        threads.c.active_run_id.is_(None),
    )
    .group_by(tasks.c.scope_key, tasks.c.session_id, tasks.c.thread_key)
    .order_by(sa.func.min(tasks.c.not_before), tasks.c.thread_key)
    .limit(sa.bindparam("count"))
    .offset(sa.bindparam("offset"))
)
_TIMED_OUT = (
    sa.select(tasks.c.scope_key, tasks.c.session_id, tasks.c.thread_key, tasks.c.task_id)
    .where(
        tasks.c.end_time.is_(None),
        tasks.c.timeout_time.is_not(None),
        tasks.c.timeout_time <= sa.bindparam("now", type_=tasks.c.timeout_time.type),
    )
    .order_by(tasks.c.timeout_time, tasks.c.thread_key, tasks.c.task_id)
    .limit(sa.bindparam("count"))
    .offset(sa.bindparam("offset"))
)
_QUEUED = sa.select(sa.func.count()).select_from(
    sa.select(tasks.c.task_id)
    .where(
        tasks.c.scope_key == sa.bindparam("scope_key"),
        tasks.c.queue == sa.bindparam("queue"),
        tasks.c.state == SUBMITTED,
    )
    .limit(sa.bindparam("most"))
    .subquery()
)
_MANIFEST = sa.select(manifests.c.manifest).where(manifests.c.digest == sa.bindparam("digest"))


class DueThread(NamedTuple):
    """A session in which nothing runs though a task of it is due."""

    scope_key: str
    session_id: str
    thread_key: str


class DueTask(NamedTuple):
    """A task that has taken, or waited, as long as it may."""

    scope_key: str
    session_id: str
    thread_key: str
    task_id: str


def timed_out(connection: Connection, now: datetime, count: int, offset: int) -> list[DueTask]:
    """Tasks whose total or waiting timeout has passed, the longest first."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueTask(*row) for row in connection.execute(_TIMED_OUT, page)]


def queued_count(connection: Connection, scope_key: str, queue: str, most: int) -> int:
    """How many of the scope's tasks in the queue no worker has had yet; counted no further than `most`."""
    found = connection.scalar(_QUEUED, {"scope_key": scope_key, "queue": queue, "most": most})
    return int(found or 0)


def due(connection: Connection, now: datetime, count: int, offset: int) -> list[DueThread]:
    """Idle sessions with a task that has become due, the longest first."""
    page = {"now": now, "count": count, "offset": offset}
    return [DueThread(*row) for row in connection.execute(_DUE, page)]


def sessions_with(
    connection: Connection, scope_key: str, thread_key: str | None, selection: TaskFilter, after: str, count: int
) -> Sequence[tuple[str, str]]:
    """(thread key, session id) of the scope's sessions, in key order behind `after`, that have a task which the filter
    selects and whose cancellation nobody asked for."""
    statement = (
        sa.select(tasks.c.thread_key, tasks.c.session_id)
        .where(
            tasks.c.scope_key == scope_key,
            tasks.c.end_time.is_(None),
            tasks.c.cancel_request_time.is_(None),
            tasks.c.thread_key > after,
        )
        .distinct()
        .order_by(tasks.c.thread_key)
        .limit(count)
    )
    if thread_key is not None:
        statement = statement.where(tasks.c.thread_key == thread_key)
    if selection.states:
        statement = statement.where(tasks.c.state.in_(selection.states))
    if selection.agent_name is not None:
        statement = statement.where(tasks.c.agent_name == selection.agent_name)
    if selection.queue is not None:
        statement = statement.where(tasks.c.queue == selection.queue)
    return [(row.thread_key, row.session_id) for row in connection.execute(statement)]


def find_manifest(connection: Connection, digest: str) -> bytes | None:
    """The manifest that a task has pinned."""
    found = connection.scalar(_MANIFEST, {"digest": digest})
    return None if found is None else bytes(found)
