"""Statements of audit records (R17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import write_rows
from threadkeep_chassis.paging import after_key
from threadkeep_runtime.domain.audit import AuditRecord
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.retention import Rule
from threadkeep_runtime.domain.values import Actor
from threadkeep_runtime.store.reads import ListQuery
from threadkeep_runtime.store.rows import payload_bytes, payload_of
from threadkeep_runtime.tables import audit_records

_INSERT = sa.insert(audit_records)


@dataclass(frozen=True, slots=True)
class AuditQuery(ListQuery):
    """What a list of records wants; key (create_time, audit_id)."""

    actions: Sequence[str] = ()
    actor_id: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None


def write_audit(connection: Connection, writing: Sequence[Decision]) -> None:
    """Writes the records of commits."""
    write_rows(connection, _INSERT, [_row(record) for decision in writing for record in decision.audit])


def list_audit(connection: Connection, query: AuditQuery) -> list[AuditRecord]:
    """Records, newest first; key (create_time, audit_id)."""
    table = audit_records
    conditions: list[sa.ColumnElement[bool]] = [table.c.scope_key == query.scope_key]
    if query.thread_key is not None:
        conditions.append(table.c.thread_key == query.thread_key)
    if query.actions:
        conditions.append(table.c.action.in_(query.actions))
    if query.actor_id is not None:
        conditions.append(table.c.actor_id == query.actor_id)
    if query.created_from is not None:
        conditions.append(table.c.create_time >= query.created_from)
    if query.created_before is not None:
        conditions.append(table.c.create_time < query.created_before)
    order = (table.c.create_time, table.c.audit_id)
    statement = (
        sa.select(table)
        .where(*conditions, after_key(order, query.after, descending=True))
        .order_by(*(column.desc() for column in order))
        .limit(query.count)
    )
    return [record_of(row) for row in connection.execute(statement).mappings()]


def purge_audit(connection: Connection, scope_key: str, rule: Rule, now: datetime, rows: int) -> int:
    """Deletes up to `rows` of the scope's records that are due; returns how many went."""
    table = audit_records
    order = (table.c.create_time, table.c.audit_id)
    newest = sa.select(*order).where(table.c.scope_key == scope_key).order_by(*(column.desc() for column in order))

    def beyond(count: int) -> sa.ColumnElement[bool]:
        """Not among the newest so many."""
        if count <= 0:
            return sa.true()
        last = connection.execute(newest.offset(count - 1).limit(1)).first()
        if last is None:
            return sa.false()
        return sa.tuple_(*order) < sa.tuple_(*last, types=[column.type for column in order])

    due: list[sa.ColumnElement[bool]] = []
    if (cutoff := rule.cutoff(now)) is not None:
        due.append(table.c.create_time < cutoff)
    if rule.max_count is not None:
        due.append(beyond(rule.max_count))
    if not due:
        return 0
    statement = (
        sa.select(table.c.thread_key, table.c.audit_id)
        .where(table.c.scope_key == scope_key, sa.or_(*due), beyond(rule.keep_latest))
        .order_by(*order)
        .limit(rows)
    )
    found = [tuple(row) for row in connection.execute(statement)]
    if found:
        connection.execute(sa.delete(table).where(sa.tuple_(table.c.thread_key, table.c.audit_id).in_(found)))
    return len(found)


def record_of(row: Any) -> AuditRecord:
    """A record from its row."""
    return AuditRecord(
        thread_key=row["thread_key"],
        audit_id=row["audit_id"],
        scope_key=row["scope_key"],
        session_id=row["session_id"],
        commit_sequence=row["commit_sequence"],
        ordinal=row["ordinal"],
        action=row["action"],
        target=row["target"],
        actor=Actor(row["actor_kind"], row["actor_id"]),
        details=payload_of(row["details"]),
        run_id=row["run_id"],
        task_id=row["task_id"],
        create_time=row["create_time"],
    )


def _row(record: AuditRecord) -> dict[str, Any]:
    return {
        "thread_key": record.thread_key,
        "audit_id": record.audit_id,
        "scope_key": record.scope_key,
        "session_id": record.session_id,
        "commit_sequence": record.commit_sequence,
        "ordinal": record.ordinal,
        "action": record.action,
        "target": record.target,
        "actor_kind": record.actor.kind,
        "actor_id": record.actor.id,
        "details": payload_bytes(record.details),
        "run_id": record.run_id,
        "task_id": record.task_id,
        "create_time": record.create_time,
    }
