"""Schedules: what they are, and which of the fires that are due are made (R24). Pure; the calendar is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from threadkeep_runtime.domain.values import Failure

SKIP, ONCE, ALL = "SKIP", "ONCE", "ALL"
POLICIES = (SKIP, ONCE, ALL)


class Fire(NamedTuple):
    """What a fire came to."""

    fire_time: datetime
    submit_time: datetime
    task_id: str | None
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule."""

    scope_key: str
    schedule_id: str
    incarnation: str
    """Tells it from one of the same id that was deleted."""
    title: str
    cron: str
    time_zone: str
    paused: bool
    policy: str
    max_missed: int
    task: bytes
    """A serialized ScheduledTask message."""
    next_fire_time: datetime | None
    """None: it is paused, or fires never again."""
    last_fire: Fire | None = None
    task_count: int = 0
    create_time: datetime
    update_time: datetime
    revision: int = 1

    def name_of(self, fire_time: datetime) -> str:
        """What a fire is called: its request, its task, and its session if it has one of its own."""
        return f"{self.incarnation}-{fire_time:%Y%m%dT%H%M%SZ}"


def chosen_fires(
    policy: str, due: Sequence[datetime], now: datetime, grace: timedelta, max_missed: int
) -> list[datetime]:
    """Which of the due fires (oldest first, the latest ones) are made now, oldest first.

    One that is no later than the grace is on time, whatever the policy.
    """
    on_time = [fire for fire in due if now - fire <= grace]
    missed = [fire for fire in due if now - fire > grace]
    if policy == ALL:
        return [*missed[-max_missed:], *on_time]
    if policy == ONCE and missed and not on_time:
        return missed[-1:]
    return on_time
