"""Writes what commits change of a thread's work: tasks, runs, leases, tickets (R5 to R10)."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import write_rows
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.store.rows import RUN_COLUMNS, TASK_COLUMNS, lease_row, run_row, task_row, ticket_row
from threadkeep_runtime.store.statements import keyed, update_by
from threadkeep_runtime.tables import leases, runs, tasks, tickets

_TASK_CHANGES = (
    "state",
    "run_id",
    "attempt",
    "crash_count",
    "open_ticket_ids",
    "timeout_time",
    "cancel_request_time",
    "cancel_reason",
    "result",
    "failure",
    "webhooks",
    "update_time",
    "end_time",
    "revision",
    "last_event_sequence",
)
_RUN_CHANGES = (
    "state",
    "cause",
    "epoch",
    "crash_count",
    "worker_id",
    "last_checkpoint_id",
    "failure",
    "start_time",
    "end_time",
    "last_event_sequence",
)
_TICKET_CHANGES = ("state", "decision", "value_json", "resolved_by_kind", "resolved_by_id", "end_time")
_LEASE_CHANGES = ("cancel_deadline", "cancel_reason")

_UPDATE_TASK = update_by(tasks, "thread_key", "task_id")
_UPDATE_RUN = update_by(runs, "thread_key", "run_id")
_UPDATE_TICKET = update_by(tickets, "thread_key", "ticket_id")
_UPDATE_LEASE = update_by(leases, "thread_key")
_DELETE_LEASE = sa.delete(leases).where(leases.c.thread_key == sa.bindparam("key_thread_key"))
_INSERT_TASK = sa.insert(tasks)
_INSERT_RUN = sa.insert(runs)
_INSERT_LEASE = sa.insert(leases)
_INSERT_TICKET = sa.insert(tickets)


def write_work(connection: Connection, writing: Sequence[Decision]) -> None:
    """Writes all of it, in the order of the tables' locks."""
    _write_tasks_and_runs(connection, writing)
    _write_leases(connection, writing)
    _write_tickets(connection, writing)


def _write_tasks_and_runs(connection: Connection, writing: Sequence[Decision]) -> None:
    tasks_written = [change for decision in writing for change in decision.tasks]
    new_tasks = [task_row(change.value) for change in tasks_written if change.is_new]
    write_rows(connection, _INSERT_TASK, [{name: row[name] for name in TASK_COLUMNS} for row in new_tasks])
    write_rows(
        connection,
        _UPDATE_TASK,
        [
            keyed(task_row(change.value), ["thread_key", "task_id"], _TASK_CHANGES)
            for change in tasks_written
            if not change.is_new
        ],
    )
    # A run ends before the next one of its thread opens (R5).
    runs_written = [change for decision in writing for change in decision.runs]
    write_rows(
        connection,
        _UPDATE_RUN,
        [
            keyed(run_row(change.value), ["thread_key", "run_id"], _RUN_CHANGES)
            for change in runs_written
            if not change.is_new
        ],
    )
    new_runs = [run_row(change.value) for change in runs_written if change.is_new]
    write_rows(connection, _INSERT_RUN, [{name: row[name] for name in RUN_COLUMNS} for row in new_runs])


def _write_leases(connection: Connection, writing: Sequence[Decision]) -> None:
    ended, changed, given = [], [], []
    for decision in writing:
        before, after = decision.lease_before, decision.lease
        if before is after:
            continue
        if before is None and after is not None:
            given.append(lease_row(after))
        elif after is None and before is not None:
            ended.append({"key_thread_key": before.thread_key})
        elif after is not None:
            changed.append(keyed(lease_row(after), ["thread_key"], _LEASE_CHANGES))
    write_rows(connection, _DELETE_LEASE, ended)
    write_rows(connection, _UPDATE_LEASE, changed)
    write_rows(connection, _INSERT_LEASE, given)


def _write_tickets(connection: Connection, writing: Sequence[Decision]) -> None:
    opened = [ticket_row(ticket) for decision in writing for ticket in decision.opened_tickets]
    write_rows(connection, _INSERT_TICKET, opened)
    closed = [ticket_row(ticket) for decision in writing for ticket in decision.closed_tickets]
    write_rows(connection, _UPDATE_TICKET, [keyed(row, ["thread_key", "ticket_id"], _TICKET_CHANGES) for row in closed])
