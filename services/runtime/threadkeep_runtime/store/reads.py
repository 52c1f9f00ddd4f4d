"""Reads of single records, and pages of lists, newest first (X2, X5). The scope is a condition of every statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.paging import after_key
from threadkeep_runtime.domain.values import Run, Task, Thread, Ticket
from threadkeep_runtime.store.rows import columns_of, run_of, task_of, thread_of, ticket_of
from threadkeep_runtime.store.statements import ENDED, of_living
from threadkeep_runtime.tables import leases, receipts, runs, session_metadata, tasks, threads, tickets

T = TypeVar("T")

_OPEN_RUN = columns_of(Run, runs, "run_")
_SESSIONS = (
    sa.select(threads, *_OPEN_RUN)
    .select_from(threads.outerjoin(runs, sa.and_(runs.c.thread_key == threads.c.thread_key, runs.c.state != ENDED)))
    .where(threads.c.delete_time.is_(None))
)
_LEASE_OF_RUN = sa.and_(leases.c.thread_key == runs.c.thread_key, leases.c.run_id == runs.c.run_id)
_RUNS = (
    sa.select(runs, leases.c.expire_time.label("lease_expire_time"))
    .select_from(runs.outerjoin(leases, _LEASE_OF_RUN))
    .where(of_living(runs.c.thread_key))
)
_TASKS = sa.select(tasks).where(of_living(tasks.c.thread_key))
_TICKETS = sa.select(tickets).where(of_living(tickets.c.thread_key))
_ONE_SESSION = _SESSIONS.where(threads.c.thread_key == sa.bindparam("thread_key"))
_ONE_RUN = _RUNS.where(runs.c.scope_key == sa.bindparam("scope_key"), runs.c.run_id == sa.bindparam("id"))
_ONE_TASK = _TASKS.where(tasks.c.scope_key == sa.bindparam("scope_key"), tasks.c.task_id == sa.bindparam("id"))
_ONE_TICKET = _TICKETS.where(
    tickets.c.scope_key == sa.bindparam("scope_key"), tickets.c.ticket_id == sa.bindparam("id")
)
_STATE = sa.select(tasks.c.state).where(
    tasks.c.thread_key == sa.bindparam("thread_key"),
    tasks.c.task_id == sa.bindparam("id"),
    of_living(tasks.c.thread_key),
)
_RECEIPT = sa.select(receipts.c.fingerprint, receipts.c.response, receipts.c.is_erased).where(
    receipts.c.scope_key == sa.bindparam("scope_key"), receipts.c.request_id == sa.bindparam("request_id")
)


class SessionRow(NamedTuple):
    """A session and its open run."""

    thread: Thread
    open_run: Run | None


class RunRow(NamedTuple):
    """A run, and when its lease expires."""

    run: Run
    lease_expire_time: Any
    """A datetime, or None without a lease."""


def find_session(connection: Connection, thread_key: str) -> SessionRow | None:
    """The session, or None."""
    row = connection.execute(_ONE_SESSION, {"thread_key": thread_key}).mappings().first()
    return None if row is None else _session_of(row)


def find_task(connection: Connection, scope_key: str, task_id: str) -> Task | None:
    """The task with its input and result, or None."""
    row = connection.execute(_ONE_TASK, {"scope_key": scope_key, "id": task_id}).mappings().first()
    return None if row is None else task_of(row)


def task_state(connection: Connection, thread_key: str, task_id: str) -> str | None:
    """Where the task stands: all that a waiter needs to look at. None once it is gone."""
    return connection.scalar(_STATE, {"thread_key": thread_key, "id": task_id})


def find_run(connection: Connection, scope_key: str, run_id: str) -> RunRow | None:
    """The run, or None."""
    row = connection.execute(_ONE_RUN, {"scope_key": scope_key, "id": run_id}).mappings().first()
    return None if row is None else RunRow(run_of(row), row["lease_expire_time"])


def find_ticket(connection: Connection, scope_key: str, ticket_id: str) -> Ticket | None:
    """The ticket, or None."""
    row = connection.execute(_ONE_TICKET, {"scope_key": scope_key, "id": ticket_id}).mappings().first()
    return None if row is None else ticket_of(row)


def find_receipt(connection: Connection, receipt_key: str, request_id: str) -> tuple[bytes, bytes | None] | None:
    """(fingerprint, response) of a request that was answered, or None. No response is left once its session is gone."""
    row = connection.execute(_RECEIPT, {"scope_key": receipt_key, "request_id": request_id}).first()
    return None if row is None else (bytes(row.fingerprint), None if row.is_erased else bytes(row.response))


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a list wants, within one scope."""

    scope_key: str
    count: int
    """How many rows at most."""
    after: tuple[Any, ...] | None = None
    """Key (create_time, id) of the row behind which to start."""
    thread_key: str | None = None
    task_id: str | None = None
    agent_name: str | None = None
    schedule_id: str | None = None
    states: Sequence[str] = ()
    """States; empty: all. For sessions: IDLE or the open run's state."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def list_sessions(connection: Connection, query: ListQuery) -> list[SessionRow]:
    """Sessions, newest first; key (create_time, session_id)."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.agent_name is not None:
        conditions.append(threads.c.agent_name == query.agent_name)
    if query.states:
        state = sa.func.coalesce(runs.c.state, sa.literal_column("'IDLE'"))
        conditions.append(state.in_(query.states))
    for name, value in sorted(query.metadata.items()):
        entry = session_metadata.alias()
        conditions.append(
            sa.exists().where(
                entry.c.thread_key == threads.c.thread_key,
                entry.c.scope_key == query.scope_key,
                entry.c.name == name,
                entry.c.value == value,
            )
        )
    return _page(connection, _SESSIONS, threads, "session_id", query, conditions, _session_of)


def list_tasks(connection: Connection, query: ListQuery) -> list[Task]:
    """Tasks, newest first; key (create_time, task_id)."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.agent_name is not None:
        conditions.append(tasks.c.agent_name == query.agent_name)
    if query.schedule_id is not None:
        conditions.append(tasks.c.schedule_id == query.schedule_id)
    if query.states:
        conditions.append(tasks.c.state.in_(query.states))
    return _page(connection, _TASKS, tasks, "task_id", query, conditions, task_of)


def list_runs(connection: Connection, query: ListQuery) -> list[RunRow]:
    """Runs, newest first; key (create_time, run_id)."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.task_id is not None:
        conditions.append(runs.c.task_id == query.task_id)
    if query.states:
        conditions.append(runs.c.state.in_(query.states))

    def read(row: Any) -> RunRow:
        return RunRow(run_of(row), row["lease_expire_time"])

    return _page(connection, _RUNS, runs, "run_id", query, conditions, read)


def list_tickets(connection: Connection, query: ListQuery) -> list[Ticket]:
    """Tickets, newest first; key (create_time, ticket_id)."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.task_id is not None:
        conditions.append(tickets.c.task_id == query.task_id)
    if query.states:
        conditions.append(tickets.c.state.in_(query.states))
    return _page(connection, _TICKETS, tickets, "ticket_id", query, conditions, ticket_of)


def _page(
    connection: Connection,
    select: sa.Select[Any],
    table: sa.Table,
    id_column: str,
    query: ListQuery,
    conditions: list[sa.ColumnElement[bool]],
    read: Callable[[Any], T],
) -> list[T]:
    order = (table.c.create_time, table.c[id_column])
    statement = select.where(table.c.scope_key == query.scope_key, *conditions)
    if query.thread_key is not None:
        statement = statement.where(table.c.thread_key == query.thread_key)
    statement = statement.where(after_key(order, query.after, descending=True))
    statement = statement.order_by(*(column.desc() for column in order)).limit(query.count)
    return [read(row) for row in connection.execute(statement).mappings()]


def _session_of(row: Any) -> SessionRow:
    return SessionRow(thread_of(row), None if row["run_run_id"] is None else run_of(row, "run_"))
