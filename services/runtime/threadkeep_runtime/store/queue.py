"""The queue of runs: finds what a worker may take, passing over threads that others are writing (R8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_skipping_others
from threadkeep_runtime.domain.values import Run, Task, Thread, Ticket
from threadkeep_runtime.store.rows import run_of, task_of, thread_of, ticket_of
from threadkeep_runtime.store.statements import QUEUED, one_of, padded
from threadkeep_runtime.tables import manifests, runs, scopes, tasks, threads, tickets

_RUNS = sa.select(runs).where(one_of(runs.c.thread_key, "thread_keys"), runs.c.state == QUEUED)
_TASKS = sa.select(tasks).where(
    sa.tuple_(tasks.c.thread_key, tasks.c.task_id).in_(sa.bindparam("pairs", expanding=True))
)
_RESOLVED = (
    sa.select(tickets)
    .where(
        one_of(tickets.c.thread_key, "thread_keys"),
        one_of(tickets.c.task_id, "task_ids"),
        tickets.c.state == sa.literal_column("'RESOLVED'"),
    )
    .order_by(tickets.c.first_event_sequence)
)
_MANIFESTS = sa.select(manifests.c.digest, manifests.c.manifest).where(one_of(manifests.c.digest, "digests"))
_SCOPES = sa.select(scopes.c.scope_key, scopes.c.scope).where(one_of(scopes.c.scope_key, "scope_keys"))

Now = sa.ColumnElement[datetime] | datetime
"""The time of the database, where it has a clock of its own, or the server's."""


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Which queued runs a worker may take. Equal filters share one look at the queue."""

    queues: tuple[str, ...]
    agent_names: tuple[str, ...] = ()
    """Empty: all."""
    scope_keys: tuple[str, ...] | None = None
    """None: all scopes."""


def lock_candidates(
    connection: Connection, wanted: QueueFilter, count: int, now: Now, without: Sequence[str] = ()
) -> list[tuple[Thread, Run]]:
    """Locks the threads of the next queued runs, highest priority first, then the oldest; others' threads are skipped.

    The thread's row comes first in every transaction, as in commits: taking the run first deadlocks with them. A run
    is read again once its thread is locked, since it may have changed until then; one that is gone is left out. The
    threads of `without` are passed by.
    """
    found: list[Thread] = []
    if len(wanted.queues) == 1:
        found.extend(_lock(connection, wanted, wanted.queues[0], without, count, now))
    else:
        # An index gives the order within one queue only: look at the head of each, and take from the foremost.
        while len(found) < count:
            taken = [*without, *(thread.thread_key for thread in found)]
            heads = [
                (*head, queue)
                for queue in wanted.queues
                if (head := connection.execute(_heads(wanted, queue, taken, now)).first()) is not None
            ]
            more: list[Thread] = []
            for _, _, _, queue in sorted(heads):
                more = _lock(connection, wanted, queue, taken, 1, now)
                if more:
                    break
            if not more:
                break
            found.extend(more)
    if not found:
        return []
    again = connection.execute(_RUNS, {"thread_keys": padded([thread.thread_key for thread in found])})
    queued = {row["thread_key"]: run_of(row) for row in again.mappings()}
    return [(thread, queued[thread.thread_key]) for thread in found if thread.thread_key in queued]


def _lock(
    connection: Connection, wanted: QueueFilter, queue: str, taken: Sequence[str], count: int, now: Now
) -> list[Thread]:
    statement = sa.select(threads).select_from(runs.join(threads, threads.c.thread_key == runs.c.thread_key))
    statement = _in_order(statement, wanted, queue, taken, now).limit(count)
    return [thread_of(row) for row in connection.execute(locked_skipping_others(statement, threads)).mappings()]


def _heads(wanted: QueueFilter, queue: str, taken: Sequence[str], now: Now) -> sa.Select[Any]:
    statement = sa.select((-runs.c.priority).label("rank"), runs.c.create_time, runs.c.thread_key)
    return _in_order(statement, wanted, queue, taken, now).limit(1)


def _in_order(
    statement: sa.Select[Any], wanted: QueueFilter, queue: str, taken: Sequence[str], now: Now
) -> sa.Select[Any]:
    is_due = sa.or_(runs.c.due_time.is_(None), runs.c.due_time <= now)
    statement = statement.where(runs.c.state == QUEUED, runs.c.queue == queue, is_due)
    if wanted.agent_names:
        statement = statement.where(runs.c.agent_name.in_(wanted.agent_names))
    if wanted.scope_keys is not None:
        # An equality lets the index of the scope's queue give the order; one scope is the usual case.
        if len(wanted.scope_keys) == 1:
            statement = statement.where(runs.c.scope_key == wanted.scope_keys[0])
        else:
            statement = statement.where(runs.c.scope_key.in_(wanted.scope_keys))
    if taken:
        statement = statement.where(runs.c.thread_key.not_in(taken))
    return statement.order_by(runs.c.priority.desc(), runs.c.create_time, runs.c.thread_key)


@dataclass(frozen=True, slots=True)
class RunDetails:
    """What a worker needs beside the run."""

    tasks: dict[tuple[str, str], Task]
    """With their inputs, by (thread_key, task_id)."""
    answered: dict[str, list[Ticket]]
    """Resolved tickets by task id, oldest first: an attempt may still need what the one before it was told."""
    manifests: dict[str, bytes]
    scopes: dict[str, bytes]


def load_details(connection: Connection, leased: Sequence[Run]) -> RunDetails:
    """Reads tasks, answered tickets, manifests and scopes of runs, in the transaction that leases them."""
    pairs = [(run.thread_key, run.task_id) for run in leased]
    found = {
        (row["thread_key"], row["task_id"]): task_of(row)
        for row in connection.execute(_TASKS, {"pairs": padded(pairs)}).mappings()
    }
    answered: dict[str, list[Ticket]] = {}
    keys = {
        "thread_keys": padded([run.thread_key for run in leased]),
        "task_ids": padded([run.task_id for run in leased]),
    }
    for row in connection.execute(_RESOLVED, keys).mappings():
        answered.setdefault(row["task_id"], []).append(ticket_of(row))
    digests = sorted({task.manifest_digest for task in found.values()})
    pinned = {row.digest: bytes(row.manifest) for row in connection.execute(_MANIFESTS, {"digests": padded(digests)})}
    names = sorted({run.scope_key for run in leased})
    shown = {row.scope_key: bytes(row.scope) for row in connection.execute(_SCOPES, {"scope_keys": padded(names)})}
    return RunDetails(found, answered, pinned, shown)
