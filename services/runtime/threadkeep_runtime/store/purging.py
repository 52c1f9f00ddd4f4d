"""What retention takes from one thread: found under its lock, marked by the commit, and swept away later (R19).

The commit moves the thread's floors and deletes tasks; the rows below the floors go some at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert, write_rows
from threadkeep_runtime.domain.commands import PurgeThread
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.retention import SESSION_PURGED, PurgePlan, Rule
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import Thread
from threadkeep_runtime.store.deleting import Swept, delete_some
from threadkeep_runtime.store.statements import padded, update_by
from threadkeep_runtime.tables import (
    commits,
    events,
    log_floors,
    message_places,
    messages,
    runs,
    state_values,
    tasks,
    threads,
    tickets,
)

TASKS_AT_ONCE = 200

_THREAD = sa.bindparam("thread_key", type_=sa.Text())
_TERMINAL = tasks.c.state.in_(sorted(TERMINAL_TASK_STATES))
_OF_THREAD = tasks.c.thread_key == _THREAD
_FIRST_YOUNGER = (
    sa.select(events.c.sequence)
    .where(
        events.c.thread_key == _THREAD,
        events.c.sequence > sa.bindparam("floor"),
        events.c.create_time >= sa.bindparam("cutoff", type_=events.c.create_time.type),
    )
    .order_by(events.c.sequence)
    .limit(1)
)
_FIRST_OF_OPEN_TASKS = sa.select(sa.func.min(tasks.c.first_event_sequence)).where(_OF_THREAD, sa.not_(_TERMINAL))
_COMMIT_OF = (
    sa.select(commits.c.sequence, commits.c.first_event_sequence)
    .join(events, sa.and_(events.c.thread_key == commits.c.thread_key, events.c.commit_sequence == commits.c.sequence))
    .where(events.c.thread_key == _THREAD, events.c.sequence == sa.bindparam("sequence"))
)
_POSITION = sa.select(events.c.position).where(
    events.c.thread_key == _THREAD, events.c.sequence == sa.bindparam("sequence")
)
# What retention itself has said is no reason to say it again.
_WORTH_IT = (
    sa.select(events.c.sequence)
    .where(
        events.c.thread_key == _THREAD,
        events.c.sequence > sa.bindparam("floor"),
        events.c.sequence <= sa.bindparam("upto"),
        events.c.type != SESSION_PURGED,
    )
    .limit(1)
)
_DIGEST = sa.select(commits.c.digest).where(
    commits.c.thread_key == _THREAD, commits.c.sequence == sa.bindparam("sequence")
)
_RUNS_OF = sa.select(runs.c.run_id).where(
    runs.c.thread_key == _THREAD, runs.c.task_id.in_(sa.bindparam("task_ids", expanding=True))
)
_DELETE_WORK = tuple(
    sa.delete(table).where(table.c.thread_key == _THREAD, table.c.task_id.in_(sa.bindparam("task_ids", expanding=True)))
    for table in (tickets, runs, tasks)
)
_MOVE_FLOORS = update_by(threads, "thread_key")
_insert_floor = insert(log_floors)
_RAISE_LOG_FLOOR = _insert_floor.on_conflict_do_update(
    index_elements=["scope_key", "partition"],
    set_={"position": _insert_floor.excluded.position},
    where=log_floors.c.position < _insert_floor.excluded.position,
)
_UNSWEPT = (
    sa.select(threads.c.thread_key)
    .where(threads.c.swept_floor < threads.c.commit_floor)
    .order_by(threads.c.thread_key)
    .limit(sa.bindparam("count"))
)
_LIST_BELOW = sa.select(sa.func.max(message_places.c.commit_sequence)).where(
    message_places.c.thread_key == _THREAD, message_places.c.commit_sequence <= sa.bindparam("commit")
)
_FLOORS = sa.select(threads.c.commit_floor, threads.c.event_floor).where(threads.c.thread_key == _THREAD)
_SWEPT = (
    sa.update(threads)
    .where(threads.c.thread_key == sa.bindparam("key"), threads.c.swept_floor < sa.bindparam("upto"))
    .values(swept_floor=sa.bindparam("upto"))
)


def load_purge(connection: Connection, thread: Thread, command: PurgeThread, now: datetime) -> PurgePlan | None:
    """What is due in the thread; None if nothing is."""
    floors = None if command.events is None else _history(connection, thread, command.events, command, now)
    task_ids = () if command.tasks is None else _tasks(connection, thread.thread_key, command.tasks, now)
    if floors is None and not task_ids:
        return None
    event_floor, commit_floor, position = floors or (thread.event_floor, thread.commit_floor, 0)
    run_ids: tuple[str, ...] = ()
    if task_ids:
        named = {"thread_key": thread.thread_key, "task_ids": padded(task_ids)}
        run_ids = tuple(connection.scalars(_RUNS_OF, named))
    gone = event_floor - thread.event_floor
    anchor = None
    if thread.chain_start < commit_floor <= thread.digest_sequence:
        anchor = connection.scalar(_DIGEST, {"thread_key": thread.thread_key, "sequence": commit_floor})
    return PurgePlan(event_floor, commit_floor, gone, position, task_ids, run_ids, anchor)


def write_purges(connection: Connection, writing: Sequence[Decision]) -> None:
    """Moves floors and deletes tasks with their runs and tickets."""
    purges = [
        (thread, plan) for one in writing if (thread := one.thread) is not None and (plan := one.purge) is not None
    ]
    moved = [(thread, plan) for thread, plan in purges if plan.position]
    write_rows(
        connection,
        _MOVE_FLOORS,
        [
            {
                "key_thread_key": thread.thread_key,
                "event_floor": plan.event_floor,
                "commit_floor": plan.commit_floor,
            }
            for thread, plan in moved
        ],
    )
    for thread, plan in purges:
        for statement in _DELETE_WORK if plan.task_ids else ():
            connection.execute(statement, {"thread_key": thread.thread_key, "task_ids": padded(plan.task_ids)})
    floors: dict[tuple[str, int], int] = {}
    for thread, plan in moved:
        key = (thread.scope_key, thread.partition)
        floors[key] = max(plan.position, floors.get(key, 0))
    for (scope_key, partition), position in sorted(floors.items()):
        connection.execute(_RAISE_LOG_FLOOR, {"scope_key": scope_key, "partition": partition, "position": position})


def unswept_histories(connection: Connection, count: int) -> list[str]:
    """Keys of threads that have rows below their floors."""
    return list(connection.scalars(_UNSWEPT, {"count": count}))


def sweep_history(connection: Connection, thread_key: str, rows: int) -> Swept:
    """Deletes up to `rows` rows below the thread's floors, in one transaction of its own."""
    floors = connection.execute(_FLOORS, {"thread_key": thread_key}).first()
    if floors is None:
        return Swept(0, True)
    below = {"events": events.c.sequence <= floors.event_floor, "commits": commits.c.sequence <= floors.commit_floor}
    done = 0
    for table in (events, commits):
        conditions = [table.c.thread_key == thread_key, below[table.name]]
        done += delete_some(connection, table, conditions, [table.c.sequence], rows - done)
        if done >= rows:
            return Swept(done, False)
    for sweep in (_sweep_state, _sweep_messages, _sweep_places):
        done += sweep(connection, thread_key, floors.commit_floor, rows - done)
        if done >= rows:
            return Swept(done, False)
    connection.execute(_SWEPT, {"key": thread_key, "upto": floors.commit_floor})
    return Swept(done, True)


def _sweep_state(connection: Connection, thread_key: str, commit_floor: int, rows: int) -> int:
    """Values of state keys that no view reads any more: a newer one was there at the oldest commit that is left."""
    values, newer = state_values.c, state_values.alias("newer").c
    conditions = [
        values.thread_key == thread_key,
        values.commit_sequence <= commit_floor,
        sa.exists().where(
            newer.thread_key == values.thread_key,
            newer.key == values.key,
            newer.commit_sequence > values.commit_sequence,
            newer.commit_sequence <= commit_floor + 1,
        ),
    ]
    return delete_some(connection, state_values, conditions, [values.key, values.commit_sequence], rows)


def _sweep_messages(connection: Connection, thread_key: str, commit_floor: int, rows: int) -> int:
    """Messages that were replaced or removed before the oldest commit that is left.

    What was removed since the list of places that its view starts from is still needed, to know that it was.
    """
    listed = connection.scalar(_LIST_BELOW, {"thread_key": thread_key, "commit": commit_floor + 1}) or 0
    conditions = [
        messages.c.thread_key == thread_key,
        messages.c.to_commit <= commit_floor + 1,
        sa.or_(sa.not_(messages.c.is_removed), messages.c.to_commit <= listed),
    ]
    return delete_some(connection, messages, conditions, [messages.c.position, messages.c.from_commit], rows)


def _sweep_places(connection: Connection, thread_key: str, commit_floor: int, rows: int) -> int:
    """Lists of places before the one that the view of the oldest commit that is left starts from."""
    listed = connection.scalar(_LIST_BELOW, {"thread_key": thread_key, "commit": commit_floor + 1}) or 0
    places = message_places.c
    conditions = [places.thread_key == thread_key, places.commit_sequence < listed]
    return delete_some(connection, message_places, conditions, [places.commit_sequence], rows)


def _history(
    connection: Connection, thread: Thread, rule: Rule, command: PurgeThread, now: datetime
) -> tuple[int, int, int] | None:
    """(event floor, commit floor, position of the last event that goes), at the boundary of a commit."""

    def before(cutoff: datetime) -> int:
        key = {"thread_key": thread.thread_key, "floor": thread.event_floor, "cutoff": cutoff}
        first = connection.scalar(_FIRST_YOUNGER, key)
        return thread.event_sequence if first is None else int(first) - 1

    upto = 0
    if (cutoff := rule.cutoff(now)) is not None:
        upto = before(cutoff)
    if rule.max_count is not None:
        upto = max(upto, thread.event_sequence - rule.max_count)
    # The commits of requests that may be sent again are still needed: they know where the answers lie.
    upto = min(upto, thread.event_sequence - max(rule.keep_latest, 1))
    if upto > thread.event_floor:
        upto = min(upto, before(now - timedelta(seconds=command.receipts_seconds)))
    first_needed = connection.scalar(_FIRST_OF_OPEN_TASKS, {"thread_key": thread.thread_key})
    if first_needed is not None:
        upto = min(upto, int(first_needed) - 1)
    if upto <= thread.event_floor:
        return None
    following = connection.execute(_COMMIT_OF, {"thread_key": thread.thread_key, "sequence": upto + 1}).first()
    if following is None:
        return None
    upto = following.first_event_sequence - 1
    span = {"thread_key": thread.thread_key, "floor": thread.event_floor, "upto": upto}
    if upto <= thread.event_floor or connection.scalar(_WORTH_IT, span) is None:
        return None
    position = connection.scalar(_POSITION, {"thread_key": thread.thread_key, "sequence": upto})
    return None if position is None else (upto, following.sequence - 1, int(position))


def _tasks(connection: Connection, thread_key: str, rule: Rule, now: datetime) -> tuple[str, ...]:
    """The oldest terminal tasks that are due, a bounded number."""
    order = (tasks.c.create_time, tasks.c.task_id)
    newest = sa.select(*order).where(tasks.c.thread_key == thread_key, _TERMINAL)
    newest = newest.order_by(*(column.desc() for column in order)).limit(1)

    def beyond(count: int) -> sa.ColumnElement[bool]:
        """Not among the newest so many."""
        if count <= 0:
            return sa.true()
        last = connection.execute(newest.offset(count - 1)).first()
        return sa.false() if last is None else sa.tuple_(*order) < _row(order, last)

    due: list[Any] = []
    if (cutoff := rule.cutoff(now)) is not None:
        due.append(tasks.c.end_time < cutoff)
    if rule.max_count is not None:
        due.append(beyond(rule.max_count))
    statement = (
        sa.select(tasks.c.task_id)
        .where(tasks.c.thread_key == thread_key, _TERMINAL, sa.or_(*due), beyond(rule.keep_latest))
        .order_by(*order)
        .limit(TASKS_AT_ONCE)
    )
    return tuple(connection.scalars(statement)) if due else ()


def _row(columns: Sequence[sa.Column[Any]], values: Sequence[Any]) -> sa.Tuple:
    return sa.tuple_(*values, types=[column.type for column in columns])
