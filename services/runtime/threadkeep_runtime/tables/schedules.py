"""Schedules (R24)."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, JsonText, Key, UtcTimestamp, partial_index
from threadkeep_runtime.tables.schema import metadata, one_of

SCHEDULE_POLICIES = ("SKIP", "ONCE", "ALL")

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("scope_key", Key(), primary_key=True),
    sa.Column("schedule_id", Key(), primary_key=True),
    # Tells it from one of the same id that was deleted: part of the names of what its fires make.
    sa.Column("incarnation", Key(), nullable=False),
    sa.Column("title", JsonText(), nullable=False),
    sa.Column("cron", Key(), nullable=False),
    sa.Column("time_zone", Key(), nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("max_missed", sa.Integer, nullable=False),
    # A serialized ScheduledTask message.
    sa.Column("task", Bytes(), nullable=False),
    # NULL: it is paused, or fires never again.
    sa.Column("next_fire_time", UtcTimestamp()),
    # The latest fire that was dealt with.
    sa.Column("last_fire_time", UtcTimestamp()),
    sa.Column("last_submit_time", UtcTimestamp()),
    sa.Column("last_task_id", Key()),
    # {"code": text, "message": text, "retryable": boolean}
    sa.Column("last_failure", JsonText()),
    sa.Column("task_count", sa.BigInteger, nullable=False),
    sa.Column("create_time", UtcTimestamp(), nullable=False),
    sa.Column("update_time", UtcTimestamp(), nullable=False),
    # Counts its owner's changes.
    sa.Column("revision", sa.BigInteger, nullable=False),
    one_of("policy", SCHEDULE_POLICIES),
    sa.Index(None, "scope_key", "create_time", "schedule_id"),
)
partial_index("schedules_due", schedules.c.next_fire_time, where=schedules.c.next_fire_time.is_not(None))
