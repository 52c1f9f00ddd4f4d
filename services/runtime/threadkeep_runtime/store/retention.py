"""A policy, and where in its scope something is due (R19). What goes is decided by commits, thread by thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore
from threadkeep_chassis.errors import RevisionConflict
from threadkeep_chassis.paging import after_key
from threadkeep_runtime.domain.retention import Policy, Rule
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES
from threadkeep_runtime.tables import (
    checkpoints,
    events,
    loop_owners,
    receipts,
    retention_policies,
    tasks,
    threads,
)

_P, _O, _R, _T = retention_policies.c, loop_owners.c, receipts.c, threads.c


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A scope's policy as it is stored."""

    policy: Policy = field(default_factory=Policy)
    revision: int = 0
    update_time: datetime | None = None


class DueThread(NamedTuple):
    """A thread in which something may be due."""

    thread_key: str
    session_id: str
    create_time: datetime
    has_history: bool
    has_tasks: bool
    has_checkpoints: bool


class IdleSession(NamedTuple):
    """A session that may go, and when it was last active."""

    thread_key: str
    session_id: str
    last_activity_time: datetime


# -- policies


def find_policy(connection: Connection, scope_key: str) -> StoredPolicy:
    """The scope's policy; an empty one if it has none."""
    row = connection.execute(sa.select(retention_policies).where(_P.scope_key == scope_key)).first()
    return StoredPolicy() if row is None else StoredPolicy(Policy.of_json(row.policy), row.revision, row.update_time)


def set_policy(
    connection: Connection, scope_key: str, policy: Policy, expected_revision: int | None, now: datetime
) -> StoredPolicy:
    """Replaces the policy. The revision is compared in the writing statement (X4). Raises RevisionConflict."""
    first = {"scope_key": scope_key, "policy": {}, "revision": 0, "update_time": now}
    connection.execute(insert_or_ignore(retention_policies, ["scope_key"]), first)
    statement = (
        sa.update(retention_policies)
        .where(_P.scope_key == scope_key)
        .values(policy=policy.to_json(), revision=_P.revision + 1, update_time=now)
        .returning(_P.revision)
    )
    if expected_revision is not None:
        statement = statement.where(_P.revision == expected_revision)
    revision = connection.scalar(statement)
    if revision is None:
        raise RevisionConflict(find_policy(connection, scope_key).revision)
    return StoredPolicy(policy, revision, now)


def policies_after(connection: Connection, scope_key: str, count: int) -> list[tuple[str, Policy]]:
    """The next scopes that have a policy, in the order of their keys."""
    statement = sa.select(_P.scope_key, _P.policy).where(_P.scope_key > scope_key).order_by(_P.scope_key).limit(count)
    return [(key, Policy.of_json(stored)) for key, stored in connection.execute(statement)]


# -- whose turn it is


def take_turn(connection: Connection, name: str, owner: str, now: datetime, seconds: float) -> bool:
    """Makes `owner` the one who does the work of that name for so long; False while another one is."""
    until = now + timedelta(seconds=seconds)
    free = {"name": name, "owner": "", "expire_time": now}
    connection.execute(insert_or_ignore(loop_owners, ["name"]), free)
    statement = (
        sa.update(loop_owners)
        .where(_O.name == name, sa.or_(_O.owner == owner, _O.expire_time <= now))
        .values(owner=owner, expire_time=until)
    )
    return connection.execute(statement).rowcount == 1


# -- what is due


def due_threads(
    connection: Connection,
    scope_key: str,
    policy: Policy,
    receipts_seconds: float,
    now: datetime,
    after: tuple[Any, ...] | None,
    count: int,
    session_id: str | None = None,
) -> list[DueThread]:
    """Threads of the scope, newest first, in which something may be due; or that session's alone."""
    named = sa.true() if session_id is None else _T.session_id == session_id
    flags = (
        _history_due(policy.events, now, now - timedelta(seconds=receipts_seconds)),
        _tasks_due(policy.tasks, now),
        _checkpoints_due(policy.checkpoints, now),
    )
    order = (_T.create_time, _T.session_id)
    statement = (
        sa.select(
            _T.thread_key, _T.session_id, _T.create_time, *(flag.label(f"due_{i}") for i, flag in enumerate(flags))
        )
        .where(_T.scope_key == scope_key, _T.delete_time.is_(None), after_key(order, after, descending=True))
        .where(sa.or_(*flags), named)
        .order_by(*(column.desc() for column in order))
        .limit(count)
    )
    return [DueThread(*row[:3], *(bool(flag) for flag in row[3:])) for row in connection.execute(statement)]


def idle_sessions(connection: Connection, scope_key: str, rule: Rule, now: datetime, count: int) -> list[IdleSession]:
    """Sessions at rest that are due, those that were active longest ago first."""
    order = (_T.last_activity_time, _T.session_id)
    mine = (_T.scope_key == scope_key, _T.delete_time.is_(None))

    def beyond(newest: int) -> sa.ColumnElement[bool]:
        if newest <= 0:
            return sa.true()
        last = connection.execute(
            sa.select(*order).where(*mine).order_by(*(column.desc() for column in order)).offset(newest - 1).limit(1)
        ).first()
        if last is None:
            return sa.false()
        return sa.tuple_(*order) < sa.tuple_(*last, types=[column.type for column in order])

    due: list[Any] = []
    if (cutoff := rule.cutoff(now)) is not None:
        due.append(_T.last_activity_time < cutoff)
    if rule.max_count is not None:
        due.append(beyond(rule.max_count))
    if not due:
        return []
    statement = (
        sa.select(_T.thread_key, _T.session_id, _T.last_activity_time)
        .where(*mine, _T.active_run_id.is_(None), _T.enqueued_count == 0, sa.or_(*due), beyond(rule.keep_latest))
        .order_by(*order)
        .limit(count)
    )
    return [IdleSession(*row) for row in connection.execute(statement)]


def purge_receipts(
    connection: Connection, now: datetime, seconds: float, rows: int, scope: tuple[str, float] | None = None
) -> int:
    """Deletes receipts past their time: of one scope with an age of its own, or of all scopes that have none."""
    if scope is None:
        own = sa.select(_P.scope_key, _P.policy)
        longer = [key for key, stored in connection.execute(own) if Policy.of_json(stored).receipts_seconds is not None]
        which = [_R.create_time < now - timedelta(seconds=seconds)]
        if longer:
            which.append(_R.scope_key.not_in(longer))
    else:
        which = [_R.scope_key == scope[0], _R.create_time < now - timedelta(seconds=max(seconds, scope[1]))]
    old = connection.execute(sa.select(_R.scope_key, _R.request_id).where(*which).limit(rows)).all()
    if old:
        keys = [tuple(row) for row in old]
        connection.execute(sa.delete(receipts).where(sa.tuple_(_R.scope_key, _R.request_id).in_(keys)))
    return len(old)


def _history_due(rule: Rule | None, now: datetime, younger: datetime) -> sa.ColumnElement[bool]:
    """The thread's first event that is left is old enough."""
    if rule is None:
        return sa.false()

    def first_is_before(moment: datetime) -> sa.ColumnElement[bool]:
        return sa.exists().where(
            events.c.thread_key == _T.thread_key,
            events.c.sequence == _T.event_floor + 1,
            events.c.create_time < moment,
        )

    due: list[sa.ColumnElement[bool]] = []
    if (cutoff := rule.cutoff(now)) is not None:
        due.append(first_is_before(min(cutoff, younger)))
    if rule.max_count is not None:
        due.append(sa.and_(_T.event_sequence - _T.event_floor > rule.max_count, first_is_before(younger)))
    return sa.and_(_T.event_sequence - _T.event_floor > max(rule.keep_latest, 1), sa.or_(sa.false(), *due))


def _tasks_due(rule: Rule | None, now: datetime) -> sa.ColumnElement[bool]:
    if rule is None:
        return sa.false()
    mine = (tasks.c.thread_key == _T.thread_key, tasks.c.state.in_(sorted(TERMINAL_TASK_STATES)))
    due: list[sa.ColumnElement[bool]] = []
    if (cutoff := rule.cutoff(now)) is not None:
        due.append(sa.exists().where(*mine, tasks.c.end_time < cutoff))
    if rule.max_count is not None:
        counted = sa.select(sa.func.count()).select_from(tasks).where(*mine).scalar_subquery()
        due.append(counted > max(rule.max_count, rule.keep_latest))
    return sa.or_(sa.false(), *due)


def _checkpoints_due(rule: Rule | None, now: datetime) -> sa.ColumnElement[bool]:
    """Some namespace holds more than its newest, and one that is old or too many."""
    if rule is None:
        return sa.false()
    due: list[sa.ColumnElement[bool]] = []
    number = sa.func.count()
    if (cutoff := rule.cutoff(now)) is not None:
        # One of unknown age was put by another saver, or before ages were kept: it counts as old as its thread.
        due.append(sa.func.min(sa.func.coalesce(checkpoints.c.create_time, _T.create_time)) < cutoff)
    if rule.max_count is not None:
        due.append(number > rule.max_count)
    group = (
        sa.select(checkpoints.c.checkpoint_ns)
        .where(checkpoints.c.thread_id == _T.thread_key)
        .group_by(checkpoints.c.checkpoint_ns)
        .having(number > max(rule.keep_latest, 1), sa.or_(sa.false(), *due))
    )
    return sa.exists(group.correlate(threads))
