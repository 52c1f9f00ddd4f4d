"""The parts of views, one statement each, for all threads of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import UtcTimestamp
from threadkeep_runtime.checkpoints import (
    load_indexes,
)
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import ROOT_NAMESPACE, CheckpointIndex, named_at_or_below
from threadkeep_runtime.domain.values import Lease, Run, Task, Thread, Ticket
from threadkeep_runtime.store.rows import columns_of, lease_of, run_of, task_of, ticket_of
from threadkeep_runtime.store.statements import ENDED, NO_RUN, OPEN, SUBMITTED, one_of, padded
from threadkeep_runtime.tables import events, leases, runs, tasks, tickets

Pair = tuple[str, str]

# Inputs and results can be large, and few commands show a task.
_SHORT_TASK = [column.label("task_" + column.key) for column in tasks.c if column.key not in ("input", "result")]
_OPEN_RUNS = (
    sa.select(*columns_of(Run, runs, "run_"), *_SHORT_TASK, *columns_of(Lease, leases, "lease_"))
    .select_from(
        runs.join(tasks, sa.and_(tasks.c.thread_key == runs.c.thread_key, tasks.c.task_id == runs.c.task_id)).outerjoin(
            leases, sa.and_(leases.c.thread_key == runs.c.thread_key, leases.c.run_id == runs.c.run_id)
        )
    )
    .where(one_of(runs.c.thread_key, "thread_keys"), runs.c.state != ENDED)
)
_OPEN_TICKETS = (
    sa.select(tickets)
    .where(one_of(tickets.c.thread_key, "thread_keys"), tickets.c.state == OPEN)
    .order_by(tickets.c.thread_key, tickets.c.first_event_sequence)
)

_waiting = tasks.alias("waiting")
# Of each thread, the waiting task that is due and whose turn comes next.
_NEXT_TASKS = sa.select(*_SHORT_TASK).where(
    one_of(tasks.c.thread_key, "thread_keys"),
    tasks.c.task_id
    == sa.select(_waiting.c.task_id)
    .where(
        _waiting.c.thread_key == tasks.c.thread_key,
        _waiting.c.state == SUBMITTED,
        _waiting.c.run_id == NO_RUN,
        sa.or_(_waiting.c.not_before.is_(None), _waiting.c.not_before <= sa.bindparam("now", type_=UtcTimestamp())),
    )
    .order_by(_waiting.c.priority.desc(), _waiting.c.first_event_sequence)
    .limit(1)
    .scalar_subquery(),
)
_UNFINISHED = (
    sa.select(*_SHORT_TASK)
    .where(tasks.c.thread_key == sa.bindparam("thread_key"), tasks.c.end_time.is_(None))
    .order_by(tasks.c.first_event_sequence)
)


def _by_pairs(table: sa.Table, first: str, second: str, *selected: Any) -> sa.Select[Any]:
    return sa.select(*selected).where(
        sa.tuple_(table.c[first], table.c[second]).in_(sa.bindparam("pairs", expanding=True))
    )


RUNS = _by_pairs(runs, "thread_key", "run_id", runs)
TASKS = _by_pairs(tasks, "thread_key", "task_id", tasks)
TICKETS = _by_pairs(tickets, "thread_key", "ticket_id", tickets)
_TAKEN_TASKS = _by_pairs(tasks, "scope_key", "task_id", tasks.c.scope_key, tasks.c.task_id)
_TAKEN_TICKETS = _by_pairs(tickets, "scope_key", "ticket_id", tickets.c.scope_key, tickets.c.ticket_id)
_TAKEN_EVENTS = _by_pairs(events, "thread_key", "event_id", events.c.thread_key, events.c.event_id).where(
    events.c.is_named
)


def load_open_runs(connection: Connection, busy: Sequence[Thread]) -> dict[str, tuple[Run, Task, Lease | None]]:
    if not busy:
        return {}
    rows = connection.execute(_OPEN_RUNS, {"thread_keys": padded([thread.thread_key for thread in busy])})
    return {
        row["run_thread_key"]: (run_of(row, "run_"), task_of(row, "task_"), lease_of(row, "lease_"))
        for row in rows.mappings()
    }


def load_open_tickets(connection: Connection, thread_keys: Sequence[str]) -> dict[str, tuple[Ticket, ...]]:
    if not thread_keys:
        return {}
    found: dict[str, tuple[Ticket, ...]] = {}
    for row in connection.execute(_OPEN_TICKETS, {"thread_keys": padded(thread_keys)}).mappings():
        found[row["thread_key"]] = (*found.get(row["thread_key"], ()), ticket_of(row))
    return found


def load_next_tasks(connection: Connection, thread_keys: Sequence[str], now: datetime) -> dict[str, Task]:
    if not thread_keys:
        return {}
    rows = connection.execute(_NEXT_TASKS, {"thread_keys": padded(thread_keys), "now": now})
    return {row["task_thread_key"]: task_of(row, "task_") for row in rows.mappings()}


def load_selected(
    connection: Connection, command: commands.CancelTasks, now: datetime
) -> tuple[tuple[Task, ...], Task | None]:
    """The tasks that the command selects, oldest first; and of the others the waiting one whose turn comes next.

    A task whose cancellation was asked for before is not selected again, so that a call can be repeated.
    """
    rows = connection.execute(_UNFINISHED, {"thread_key": command.thread_key}).mappings()
    unfinished = [task_of(row, "task_") for row in rows]
    selected = tuple(task for task in unfinished if _is_selected(task, command.selection))
    chosen = {task.task_id for task in selected}
    due = [
        task
        for task in unfinished
        if task.run_id is None and task.task_id not in chosen and (task.not_before is None or task.not_before <= now)
    ]
    due.sort(key=lambda task: (-task.priority, task.first_event_sequence))
    return selected, due[0] if due else None


def _is_selected(task: Task, selection: commands.TaskFilter) -> bool:
    return (
        task.cancel_request_time is None
        and (not selection.states or task.state in selection.states)
        and selection.agent_name in (None, task.agent_name)
        and selection.queue in (None, task.queue)
    )


def load_pairs(
    connection: Connection, statement: sa.Select[Any], pairs: Sequence[Pair], name: str, read: Callable[..., Any]
) -> dict[Pair, Any]:
    if not pairs:
        return {}
    rows = connection.execute(statement, {"pairs": padded(pairs)})
    return {(row["thread_key"], row[name]): read(row) for row in rows.mappings()}


def load_taken(connection: Connection, batch: Sequence[commands.Command]) -> dict[str, frozenset[Pair]]:
    """Which of the ids that writers chose are in use: tasks and tickets in their scope, events in their thread."""
    wanted: dict[str, dict[Pair, list[str]]] = {"task": {}, "ticket": {}, "event": {}}

    def want(kind: str, owner: str, name: str, thread_key: str) -> None:
        wanted[kind].setdefault((owner, name), []).append(thread_key)

    for command in batch:
        if isinstance(command, (commands.DeliverMessage, commands.DeliverTask)):
            want("event", command.thread_key, command.inbox.event_id, command.thread_key)
        if isinstance(command, commands.SubmitTask) and command.names_task:
            want("task", command.scope_key, command.task_id, command.thread_key)
        elif isinstance(command, commands.CommitThread):
            for event in command.events:
                if event.is_named:
                    want("event", command.thread_key, event.event_id, command.thread_key)
            if isinstance(command.disposition, commands.Awaiting):
                for draft in command.disposition.tickets:
                    if draft.is_named:
                        want("ticket", command.scope_key, draft.ticket_id, command.thread_key)
    found: dict[str, set[Pair]] = {}
    for kind, statement in (("task", _TAKEN_TASKS), ("ticket", _TAKEN_TICKETS), ("event", _TAKEN_EVENTS)):
        if wanted[kind]:
            for owner, name in connection.execute(statement, {"pairs": padded(list(wanted[kind]))}):
                for thread_key in wanted[kind][owner, name]:
                    found.setdefault(thread_key, set()).add((kind, name))
    return {thread_key: frozenset(pairs) for thread_key, pairs in found.items()}


def load_checkpoint_indexes(
    connection: Connection, batch: Sequence[commands.Command], found: dict[str, Thread]
) -> dict[str, CheckpointIndex]:
    """What is known of the checkpoints that commits name. The root's greatest is known from the thread's own row."""
    indexes: dict[str, CheckpointIndex] = {}
    wanted: dict[str, set[Pair]] = {}
    for command in batch:
        thread = found.get(command.thread_key)
        if thread is None or not isinstance(command, commands.CommitThread) or not command.ops:
            continue
        head = thread.root_checkpoint_id
        indexes[thread.thread_key] = CheckpointIndex(
            floor=thread.checkpoint_top,
            deleted_floor=thread.checkpoint_floor,
            existing=frozenset() if head is None else frozenset({(ROOT_NAMESPACE, head)}),
            greatest={} if head is None else {ROOT_NAMESPACE: head},
        )
        names = named_at_or_below(command.ops, thread.checkpoint_top) - {(ROOT_NAMESPACE, head or "")}
        if names:
            wanted[thread.thread_key] = names
    if wanted:
        for thread_key, (existing, greatest) in load_indexes(connection, wanted).items():
            known = indexes[thread_key]
            indexes[thread_key] = replace(
                known, existing=known.existing | existing, greatest={**known.greatest, **greatest}
            )
    return indexes
