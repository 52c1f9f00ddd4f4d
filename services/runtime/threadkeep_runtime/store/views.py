"""Loads the views of a batch of commands: the thread rows are locked in key order, then everything else is read (R2).

One statement per table, and only for what some command of the batch needs. What is read after the locks were taken is
the newest committed state: each statement sees its own snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order
from threadkeep_runtime.checkpoints import (
    holds_checkpoints,
    load_head,
    load_removal,
    load_root_before,
    load_staged,
)
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import CheckpointIndex, RollBack, staged_values
from threadkeep_runtime.domain.commit import View
from threadkeep_runtime.domain.messages import NOTHING_KNOWN
from threadkeep_runtime.domain.values import Thread, partition_of
from threadkeep_runtime.store.deleting import dead_among
from threadkeep_runtime.store.forking import load_fork
from threadkeep_runtime.store.messages import load_known
from threadkeep_runtime.store.outbox import load_lines
from threadkeep_runtime.store.purging import load_purge
from threadkeep_runtime.store.rows import run_of, task_of, thread_of, ticket_of
from threadkeep_runtime.store.state import load_held
from threadkeep_runtime.store.statements import one_of, padded
from threadkeep_runtime.store.view_parts import (
    RUNS,
    TASKS,
    TICKETS,
    Pair,
    load_checkpoint_indexes,
    load_next_tasks,
    load_open_runs,
    load_open_tickets,
    load_pairs,
    load_selected,
    load_taken,
)
from threadkeep_runtime.tables import leases, threads

_LOCK_THREADS = locked_in_key_order(
    sa.select(threads).where(one_of(threads.c.thread_key, "thread_keys")), threads.c.thread_key
)
_LOCK_LEASES = locked_in_key_order(
    sa.select(leases.c.thread_key).where(one_of(leases.c.thread_key, "thread_keys")), leases.c.thread_key
)
_ENDS_LEASES = (commands.RecoverLease, commands.EndCanceled, commands.TimeOutAttempt)
_SHOWS_TICKETS = (
    commands.DeleteSession,
    commands.CancelTask,
    commands.CancelTasks,
    commands.ResolveTicket,
    commands.PassDeadline,
    commands.TimeOutTask,
)
_COPIES = (commands.CopyCheckpoints, commands.ForkSession)
_MAY_END_A_RUN = (
    commands.CommitThread,
    commands.CancelTask,
    commands.ResolveTicket,
    commands.ReleaseRun,
    commands.PassDeadline,
    commands.OpenDueTask,
    commands.SetAside,
    commands.TimeOutTask,
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
    keys.update(
        command.source_key for command in batch if isinstance(command, (commands.CopyCheckpoints, commands.ForkSession))
    )
    found = lock_threads(connection, keys)
    marked = {key for key, one in found.items() if one.delete_time is not None}
    dead = dead_among(connection, keys - found.keys()) | marked
    return views_of_locked(connection, batch, found, partitions, now, dead)


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
    dead: frozenset[str] = frozenset(),
) -> list[View]:
    """The views of commands whose threads are locked already. Of `dead` ones nothing is seen but that they were."""
    if not batch:
        return []
    asked, found = batch, {key: thread for key, thread in found.items() if key not in dead}
    batch = [command for command in asked if command.thread_key not in dead]
    # A heartbeat renews a lease without its thread's lock: whoever ends an expired lease holds the lease's row as well.
    ending = sorted(command.thread_key for command in batch if isinstance(command, _ENDS_LEASES))
    if ending:
        connection.execute(_LOCK_LEASES, {"thread_keys": padded(ending)}).all()
    moment = now(connection)
    open_runs = load_open_runs(connection, [thread for thread in found.values() if thread.active_run_id is not None])
    open_tickets = load_open_tickets(connection, [command.thread_key for command in batch if _shows_tickets(command)])
    next_tasks = load_next_tasks(
        connection,
        [
            command.thread_key
            for command in batch
            if isinstance(command, _MAY_END_A_RUN)
            and (known := found.get(command.thread_key)) is not None
            and known.enqueued_count
        ],
        moment,
    )
    named_tasks = load_pairs(connection, TASKS, _named(batch, _task_named), "task_id", task_of)
    named_tickets = load_pairs(connection, TICKETS, _named(batch, _ticket_named), "ticket_id", ticket_of)
    missing_runs = [
        pair
        for pair in _named(batch, _run_named)
        if (opened := open_runs.get(pair[0])) is None or opened[0].run_id != pair[1]
    ]
    named_runs = load_pairs(connection, RUNS, missing_runs, "run_id", run_of)
    taken = load_taken(connection, batch)
    indexes = load_checkpoint_indexes(connection, batch, found)
    lines = load_lines(connection, batch)
    named_state = [
        (command.thread_key, command.scope_key, one.key)
        for command in batch
        if isinstance(command, commands.CommitThread)
        for one in command.state.commands
    ]
    known_messages = load_known(connection, batch, found)
    held = load_held(connection, named_state) if named_state else {}
    views = []
    for command in asked:
        key = command.thread_key
        if key in dead:
            views.append(View(now=moment, partition=partition_of(key, partitions), is_deleted=True))
            continue
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
                lines=lines,
                **{"next_task": next_tasks.get(key), **_selection(connection, command, found, moment)},
                checkpoints=indexes.get(key, CheckpointIndex()),
                messages=known_messages.get(key, NOTHING_KNOWN),
                state=held.get(key, {}),
                root_before_task=load_root_before(connection, key, RollBack(task.task_id, task.first_event_sequence))
                if rolls_back and task is not None
                else None,
                **_rare_parts(connection, command, found, moment),
            )
        )
    return views


def _shows_tickets(command: commands.Command) -> bool:
    if isinstance(command, commands.SubmitTask):
        return command.strategy in ("INTERRUPT", "ROLLBACK")
    return isinstance(command, _SHOWS_TICKETS)


def _selection(
    connection: Connection, command: commands.Command, found: dict[str, Thread], now: datetime
) -> dict[str, Any]:
    """What only commands about many tasks need to know."""
    if not isinstance(command, commands.CancelTasks) or command.thread_key not in found:
        return {}
    selected, following = load_selected(connection, command, now)
    return {"selected": selected, "next_task": following}


def _rare_parts(
    connection: Connection, command: commands.Command, found: dict[str, Thread], now: datetime
) -> dict[str, Any]:
    """What only removals, copies and commits with staged values need to know."""
    if isinstance(command, commands.RemoveCheckpoints) and command.thread_key in found:
        return {"removal": load_removal(connection, command.thread_key, command.run_ids, command.rule, now)}
    if isinstance(command, commands.PurgeThread) and command.thread_key in found:
        return {"purge": load_purge(connection, found[command.thread_key], command, now)}
    if isinstance(command, commands.CommitThread) and (named := staged_values(command.ops)):
        return {"staged": load_staged(connection, command.scope_key, [value.staged_id for value in named])}
    if isinstance(command, commands.ForkSession):
        source = found.get(command.source_key)
        return {} if source is None else {"source": source, "fork": load_fork(connection, source, command)}
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
    return (
        getattr(command, "run_id", None)
        if isinstance(command, (commands.LeaseRun, commands.SetAside, *_ENDS_LEASES))
        else None
    )


def _task_named(command: commands.Command) -> str | None:
    named = (commands.CancelTask, commands.TimeOutTask, commands.SetTaskWebhook)
    return command.task_id if isinstance(command, named) else None


def _ticket_named(command: commands.Command) -> str | None:
    return command.ticket_id if isinstance(command, (commands.ResolveTicket, commands.PassDeadline)) else None


def _named(batch: Sequence[commands.Command], name: Callable[[commands.Command], str | None]) -> list[Pair]:
    return [(command.thread_key, named) for command in batch if (named := name(command)) is not None]
