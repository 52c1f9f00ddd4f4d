"""Loads the views of a batch of commands: the thread rows are locked in key order, then everything else is read (R2).

One statement per table, and only for what some command of the batch needs. What is read after the locks were taken is
the newest committed state: each statement sees its own snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order
from threadkeep_runtime.checkpoints import (
    holds_checkpoints,
    load_head,
    load_indexes,
    load_removal,
    load_root_before,
    load_staged,
)
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import (
    ROOT_NAMESPACE,
    CheckpointIndex,
    RollBack,
    named_at_or_below,
    staged_values,
)
from threadkeep_runtime.domain.commit import View
from threadkeep_runtime.domain.values import Lease, Run, Task, Thread, Ticket, partition_of
from threadkeep_runtime.store.rows import columns_of, lease_of, run_of, task_of, thread_of, ticket_of
from threadkeep_runtime.store.statements import ENDED, NO_RUN, OPEN, SUBMITTED, one_of, padded
from threadkeep_runtime.tables import events, leases, runs, tasks, threads, tickets

Pair = tuple[str, str]

_LOCK_THREADS = locked_in_key_order(
    sa.select(threads).where(one_of(threads.c.thread_key, "thread_keys")), threads.c.thread_key
)
_LOCK_LEASES = locked_in_key_order(
    sa.select(leases.c.thread_key).where(one_of(leases.c.thread_key, "thread_keys")), leases.c.thread_key
)
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
# Of each thread, the enqueued task whose turn comes next.
_NEXT_TASKS = sa.select(*_SHORT_TASK).where(
    one_of(tasks.c.thread_key, "thread_keys"),
    tasks.c.task_id
    == sa.select(_waiting.c.task_id)
    .where(_waiting.c.thread_key == tasks.c.thread_key, _waiting.c.state == SUBMITTED, _waiting.c.run_id == NO_RUN)
    .order_by(_waiting.c.priority.desc(), _waiting.c.first_event_sequence)
    .limit(1)
    .scalar_subquery(),
)


def _by_pairs(table: sa.Table, first: str, second: str, *selected: Any) -> sa.Select[Any]:
    return sa.select(*selected).where(
        sa.tuple_(table.c[first], table.c[second]).in_(sa.bindparam("pairs", expanding=True))
    )


_RUNS = _by_pairs(runs, "thread_key", "run_id", runs)
_TASKS = _by_pairs(tasks, "thread_key", "task_id", tasks)
_TICKETS = _by_pairs(tickets, "thread_key", "ticket_id", tickets)
_TAKEN_TASKS = _by_pairs(tasks, "scope_key", "task_id", tasks.c.scope_key, tasks.c.task_id)
_TAKEN_TICKETS = _by_pairs(tickets, "scope_key", "ticket_id", tickets.c.scope_key, tickets.c.ticket_id)
_TAKEN_EVENTS = _by_pairs(events, "thread_key", "event_id", events.c.thread_key, events.c.event_id).where(
    events.c.is_named
)

_ENDS_LEASES = (commands.RecoverLease, commands.EndCanceled)
_SHOWS_TICKETS = (commands.CancelTask, commands.ResolveTicket, commands.PassDeadline)
_MAY_END_A_RUN = (
    commands.CommitThread,
    commands.CancelTask,
    commands.ResolveTicket,
    commands.ReleaseRun,
    commands.PassDeadline,
    *_ENDS_LEASES,
)


def load_views(
    connection: Connection,
    batch: Sequence[commands.Command],
    partitions: int,
    now: Callable[[Connection], datetime],
) -> list[View]:
    """The view of each command, in their order. No thread is in the batch twice. `now` is asked once locks are held."""
    keys = {command.thread_key for command in batch}
    keys.update(command.source_key for command in batch if isinstance(command, commands.CopyCheckpoints))
    found = lock_threads(connection, keys)
    return views_of_locked(connection, batch, found, partitions, now)


def lock_threads(connection: Connection, thread_keys: Iterable[str]) -> dict[str, Thread]:
    """Locks the threads that exist, in key order, and reads them."""
    rows = connection.execute(_LOCK_THREADS, {"thread_keys": padded(sorted(thread_keys))})
    return {row["thread_key"]: thread_of(row) for row in rows.mappings()}


def views_of_locked(
    connection: Connection,
    batch: Sequence[commands.Command],
    found: dict[str, Thread],
    partitions: int,
    now: Callable[[Connection], datetime],
) -> list[View]:
    """The views of commands whose threads are locked already."""
    if not batch:
        return []
    # A heartbeat renews a lease without its thread's lock: whoever ends an expired lease holds the lease's row as well.
    ending = sorted(command.thread_key for command in batch if isinstance(command, _ENDS_LEASES))
    if ending:
        connection.execute(_LOCK_LEASES, {"thread_keys": padded(ending)}).all()
    moment = now(connection)
    open_runs = _load_open_runs(connection, [thread for thread in found.values() if thread.active_run_id is not None])
    open_tickets = _load_open_tickets(connection, [command.thread_key for command in batch if _shows_tickets(command)])
    next_tasks = _load_next_tasks(
        connection,
        [
            command.thread_key
            for command in batch
            if isinstance(command, _MAY_END_A_RUN)
            and (known := found.get(command.thread_key)) is not None
            and known.enqueued_count
        ],
    )
    named_tasks = _load_pairs(connection, _TASKS, _named(batch, _task_named), "task_id", task_of)
    named_tickets = _load_pairs(connection, _TICKETS, _named(batch, _ticket_named), "ticket_id", ticket_of)
    missing_runs = [
        pair
        for pair in _named(batch, _run_named)
        if (opened := open_runs.get(pair[0])) is None or opened[0].run_id != pair[1]
    ]
    named_runs = _load_pairs(connection, _RUNS, missing_runs, "run_id", run_of)
    taken = _load_taken(connection, batch)
    indexes = _load_indexes(connection, batch, found)
    views = []
    for command in batch:
        key = command.thread_key
        run, task, lease = open_runs.get(key) or (None, None, None)
        named_task = named_tasks.get((key, _task_named(command) or ""))
        if named_task is not None and task is not None and named_task.task_id == task.task_id:
            task = named_task
        run_id = _run_named(command)
        thread = found.get(key)
        rolls_back = task is not None and isinstance(command, commands.SubmitTask) and command.strategy == "ROLLBACK"
        views.append(
            View(
                now=moment,
                partition=thread.partition if thread is not None else partition_of(key, partitions),
                thread=thread,
                run=run,
                task=task,
                lease=lease,
                open_tickets=open_tickets.get(key, ()),
                named_run=run if run is not None and run.run_id == run_id else named_runs.get((key, run_id or "")),
                named_task=named_task,
                named_ticket=named_tickets.get((key, _ticket_named(command) or "")),
                taken=taken.get(key, frozenset()),
                next_task=next_tasks.get(key),
                checkpoints=indexes.get(key, CheckpointIndex()),
                root_before_task=load_root_before(connection, key, RollBack(task.task_id, task.first_event_sequence))
                if rolls_back and task is not None
                else None,
                **_rare_parts(connection, command, found),
            )
        )
    return views


def _shows_tickets(command: commands.Command) -> bool:
    if isinstance(command, commands.SubmitTask):
        return command.strategy in ("INTERRUPT", "ROLLBACK")
    return isinstance(command, _SHOWS_TICKETS)


def _rare_parts(connection: Connection, command: commands.Command, found: dict[str, Thread]) -> dict[str, Any]:
    """What only removals, copies and commits with staged values need to know."""
    if isinstance(command, commands.RemoveCheckpoints) and command.thread_key in found:
        return {"removal": load_removal(connection, command.thread_key, command.run_ids)}
    if isinstance(command, commands.CommitThread) and (named := staged_values(command.ops)):
        return {"staged": load_staged(connection, command.scope_key, [value.staged_id for value in named])}
    if isinstance(command, commands.CopyCheckpoints):
        source = found.get(command.source_key)
        if source is None or not holds_checkpoints(connection, command.source_key):
            return {}
        head = source.root_checkpoint_id
        return {
            "source": source,
            "source_head": None if head is None else load_head(connection, command.source_key, head),
            "holds_checkpoints": holds_checkpoints(connection, command.thread_key),
        }
    return {}


def _run_named(command: commands.Command) -> str | None:
    lease = getattr(command, "lease", None)
    if lease is not None:
        return str(lease.run_id)
    return getattr(command, "run_id", None) if isinstance(command, (commands.LeaseRun, *_ENDS_LEASES)) else None


def _task_named(command: commands.Command) -> str | None:
    return command.task_id if isinstance(command, commands.CancelTask) else None


def _ticket_named(command: commands.Command) -> str | None:
    return command.ticket_id if isinstance(command, (commands.ResolveTicket, commands.PassDeadline)) else None


def _named(batch: Sequence[commands.Command], name: Callable[[commands.Command], str | None]) -> list[Pair]:
    return [(command.thread_key, named) for command in batch if (named := name(command)) is not None]


def _load_open_runs(connection: Connection, busy: Sequence[Thread]) -> dict[str, tuple[Run, Task, Lease | None]]:
    if not busy:
        return {}
    rows = connection.execute(_OPEN_RUNS, {"thread_keys": padded([thread.thread_key for thread in busy])})
    return {
        row["run_thread_key"]: (run_of(row, "run_"), task_of(row, "task_"), lease_of(row, "lease_"))
        for row in rows.mappings()
    }


def _load_open_tickets(connection: Connection, thread_keys: Sequence[str]) -> dict[str, tuple[Ticket, ...]]:
    if not thread_keys:
        return {}
    found: dict[str, tuple[Ticket, ...]] = {}
    for row in connection.execute(_OPEN_TICKETS, {"thread_keys": padded(thread_keys)}).mappings():
        found[row["thread_key"]] = (*found.get(row["thread_key"], ()), ticket_of(row))
    return found


def _load_next_tasks(connection: Connection, thread_keys: Sequence[str]) -> dict[str, Task]:
    if not thread_keys:
        return {}
    rows = connection.execute(_NEXT_TASKS, {"thread_keys": padded(thread_keys)})
    return {row["task_thread_key"]: task_of(row, "task_") for row in rows.mappings()}


def _load_pairs(
    connection: Connection, statement: sa.Select[Any], pairs: Sequence[Pair], name: str, read: Callable[..., Any]
) -> dict[Pair, Any]:
    if not pairs:
        return {}
    rows = connection.execute(statement, {"pairs": padded(pairs)})
    return {(row["thread_key"], row[name]): read(row) for row in rows.mappings()}


def _load_taken(connection: Connection, batch: Sequence[commands.Command]) -> dict[str, frozenset[Pair]]:
    """Which of the ids that writers chose are in use: tasks and tickets in their scope, events in their thread."""
    wanted: dict[str, dict[Pair, list[str]]] = {"task": {}, "ticket": {}, "event": {}}

    def want(kind: str, owner: str, name: str, thread_key: str) -> None:
        wanted[kind].setdefault((owner, name), []).append(thread_key)

    for command in batch:
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


def _load_indexes(
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
