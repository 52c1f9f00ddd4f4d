"""Statements about schedules: their owners' changes, lists, which are due, and what a fire came to (R24)."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore
from threadkeep_chassis.paging import after_key
from threadkeep_runtime.domain.schedules import Fire, Schedule
from threadkeep_runtime.store.rows import failure_of, failure_value
from threadkeep_runtime.tables import schedules, scopes

_PLAIN = tuple(field.name for field in fields(Schedule) if field.name != "last_fire")
_ONE = sa.select(schedules).where(
    schedules.c.scope_key == sa.bindparam("scope_key"), schedules.c.schedule_id == sa.bindparam("schedule_id")
)
_COUNT = sa.select(sa.func.count()).select_from(schedules).where(schedules.c.scope_key == sa.bindparam("scope_key"))
_ADD_SCOPE = insert_or_ignore(scopes, ["scope_key"])
_DUE = (
    sa.select(schedules, scopes.c.scope)
    .join(scopes, scopes.c.scope_key == schedules.c.scope_key)
    .where(
        schedules.c.next_fire_time.is_not(None),
        schedules.c.next_fire_time <= sa.bindparam("now", type_=schedules.c.next_fire_time.type),
    )
    .order_by(schedules.c.next_fire_time, schedules.c.scope_key, schedules.c.schedule_id)
    .limit(sa.bindparam("count"))
    .offset(sa.bindparam("offset"))
)
# Only if nobody else dealt with the fire, and the owner did not change when it fires.
_IF_SAME = sa.update(schedules).where(
    schedules.c.scope_key == sa.bindparam("key_scope_key"),
    schedules.c.schedule_id == sa.bindparam("key_schedule_id"),
    schedules.c.incarnation == sa.bindparam("key_incarnation"),
    schedules.c.next_fire_time == sa.bindparam("key_next_fire_time", type_=schedules.c.next_fire_time.type),
)


class DueSchedule(NamedTuple):
    """A schedule with a fire that is due."""

    schedule: Schedule
    scope: bytes
    """The scope's canonical JSON."""


def add_schedule(connection: Connection, schedule: Schedule, scope: bytes) -> None:
    """Writes a new schedule. A taken id is a unique violation."""
    connection.execute(_ADD_SCOPE, {"scope_key": schedule.scope_key, "scope": scope})
    connection.execute(sa.insert(schedules), _row(schedule))


def count_schedules(connection: Connection, scope_key: str) -> int:
    """How many the scope has."""
    return int(connection.scalar(_COUNT, {"scope_key": scope_key}) or 0)


def find_schedule(connection: Connection, scope_key: str, schedule_id: str) -> Schedule | None:
    """The schedule, or None."""
    row = connection.execute(_ONE, {"scope_key": scope_key, "schedule_id": schedule_id}).mappings().first()
    return None if row is None else schedule_of(row)


def change_schedule(connection: Connection, before: Schedule, after: Schedule) -> bool:
    """Writes the owner's changes; False if the schedule was changed since `before` was read.

    When it fires next is written only if that changes: a fire that is made meanwhile counts.
    """
    row = _row(after)
    names = ["title", "cron", "time_zone", "paused", "policy", "max_missed", "task", "update_time", "revision"]
    if after.next_fire_time != before.next_fire_time:
        names.append("next_fire_time")
    changed = connection.execute(
        sa.update(schedules)
        .where(
            schedules.c.scope_key == before.scope_key,
            schedules.c.schedule_id == before.schedule_id,
            schedules.c.incarnation == before.incarnation,
            schedules.c.revision == before.revision,
        )
        .values({name: row[name] for name in names})
    )
    return changed.rowcount == 1


def delete_schedule(connection: Connection, before: Schedule) -> bool:
    """Deletes the schedule; False if it was changed since it was read."""
    gone = connection.execute(
        sa.delete(schedules).where(
            schedules.c.scope_key == before.scope_key,
            schedules.c.schedule_id == before.schedule_id,
            schedules.c.incarnation == before.incarnation,
            schedules.c.revision == before.revision,
        )
    )
    return gone.rowcount == 1


def list_schedules(
    connection: Connection, scope_key: str, paused: bool | None, count: int, after: tuple[Any, ...] | None
) -> list[Schedule]:
    """Schedules, newest first; key (create_time, schedule_id)."""
    order = (schedules.c.create_time, schedules.c.schedule_id)
    statement = sa.select(schedules).where(schedules.c.scope_key == scope_key, after_key(order, after, descending=True))
    if paused is not None:
        statement = statement.where(schedules.c.paused == paused)
    statement = statement.order_by(*(column.desc() for column in order)).limit(count)
    return [schedule_of(row) for row in connection.execute(statement).mappings()]


def due_schedules(connection: Connection, now: datetime, count: int, offset: int) -> list[DueSchedule]:
    """Schedules with a fire that is due, the longest first."""
    rows = connection.execute(_DUE, {"now": now, "count": count, "offset": offset}).mappings()
    return [DueSchedule(schedule_of(row), bytes(row["scope"])) for row in rows]


def record_fire(connection: Connection, schedule: Schedule, fire: Fire | None, following: datetime | None) -> bool:
    """Writes what a fire came to (None: those that were due are left out) and when the next one is due.

    False if another server did, or the owner changed when the schedule fires.
    """
    values: dict[str, Any] = {"next_fire_time": following}
    if fire is not None:
        values |= {
            "last_fire_time": fire.fire_time,
            "last_submit_time": fire.submit_time,
            "last_task_id": fire.task_id,
            "last_failure": failure_value(fire.failure),
            "task_count": schedules.c.task_count + int(fire.task_id is not None),
        }
    keys = {
        "key_scope_key": schedule.scope_key,
        "key_schedule_id": schedule.schedule_id,
        "key_incarnation": schedule.incarnation,
        "key_next_fire_time": schedule.next_fire_time,
    }
    return connection.execute(_IF_SAME.values(values), keys).rowcount == 1


def schedule_of(row: Any) -> Schedule:
    """A schedule from its row."""
    found = {name: row[name] for name in _PLAIN}
    found["task"] = bytes(row["task"])
    if row["last_fire_time"] is not None:
        found["last_fire"] = Fire(
            row["last_fire_time"], row["last_submit_time"], row["last_task_id"], failure_of(row["last_failure"])
        )
    return Schedule(**found)


def _row(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in _PLAIN}
