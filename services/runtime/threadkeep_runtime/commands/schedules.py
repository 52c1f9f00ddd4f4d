"""Fires of schedules: each a submission under a name of its own, so that it happens once however often tried (R24).

A server that dies between a fire's task and the note of it in the schedule leaves the rest to whoever looks next: the
same submission again is answered by its receipt, and once that has gone, by the task's id, which is in use.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from threadkeep_chassis.canonical import parse_json
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Aborted, IdTaken, Internal, ThreadkeepError, Unavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.scope import ALL_SCOPES, Scope
from threadkeep_chassis.scope import Trace as CallTrace
from threadkeep_runtime.commands.base import Origin
from threadkeep_runtime.commands.calendar import Calendar
from threadkeep_runtime.domain.schedules import Fire, Schedule, chosen_fires
from threadkeep_runtime.domain.values import SYSTEM, Failure
from threadkeep_runtime.pipeline import Request
from threadkeep_runtime.store import schedules
from threadkeep_runtime.store.schedules import DueSchedule

_log = structlog.get_logger("threadkeep.schedules")

FIRE = "threadkeep.runtime.v1.ScheduleService/Fire"
AT_ONCE = 16

_LATE = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86400)


class FireMetrics:
    """What schedules count (X15)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fires = Counter(
            "threadkeep_schedule_fires", "Fires, by what became of them: submitted, refused, skipped (a look that left "
            "out all that was due), put_off (tried again later)",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.lag = Histogram(
            "threadkeep_schedule_lag_seconds", "How late fires were made", registry=registry, buckets=_LATE
        )


SubmitFire = Callable[[Origin, Schedule, str], Awaitable[None]]
"""Submits the task of the fire of this name. Raises what SubmitTask raises."""


class Firing:
    """Makes the fires that are due."""

    def __init__(self, database: Database, submit: SubmitFire, grace_seconds: float, metrics: FireMetrics) -> None:
        self._database = database
        self._submit = submit
        self._grace = timedelta(seconds=grace_seconds)
        self.metrics = metrics

    async def deal_with(self, due: DueSchedule) -> int:
        """Makes or leaves out what is due of a schedule; returns how many fires were made.

        Raises ThreadkeepErrors that may be gone when it is tried again; what was dealt with until then stays so.
        """
        schedule, scope = due.schedule, Scope(parse_json(due.scope))
        calendar = Calendar(schedule.cron, schedule.time_zone)
        async with self._database.read() as connection:
            now = await connection.now()
        first = schedule.next_fire_time
        if first is None or first > now:
            return 0
        # A calendar has no more than one fire a minute.
        wanted = schedule.max_missed + int(self._grace.total_seconds() // 60) + 2
        # Cron expressions are gone through step by step, beside the loop that serves calls.
        fires = await asyncio.to_thread(calendar.latest, first, now, wanted)
        chosen = chosen_fires(schedule.policy, fires, now, self._grace, schedule.max_missed)
        if not chosen and await self._record(schedule, None, calendar.after(now)):
            self.metrics.fires.labels("skipped").inc()
        for number, fire_time in enumerate(chosen):
            fire = await self._make(schedule, scope, fire_time, now)
            following = chosen[number + 1] if number + 1 < len(chosen) else calendar.after(fire_time)
            recorded = await self._record(schedule, fire, following)
            if recorded:
                self.metrics.fires.labels("refused" if fire.task_id is None else "submitted").inc()
                self.metrics.lag.observe((now - fire_time).total_seconds())
            found = await self._read(schedule)
            is_same = found is not None and (found.incarnation, found.revision) == (
                schedule.incarnation,
                schedule.revision,
            )
            if not recorded or not is_same:
                # Another server is at it, or its owner has changed it: whoever looks next sees what is due then.
                return number + int(recorded)
            schedule = replace(schedule, next_fire_time=following)
        return len(chosen)

    async def _make(self, schedule: Schedule, scope: Scope, fire_time: datetime, now: datetime) -> Fire:
        name = schedule.name_of(fire_time)
        print_ = hashlib.sha256(f"{FIRE}\x00{name}".encode()).digest()
        origin = Origin(
            scope=scope,
            grant=ALL_SCOPES if scope.is_empty else None,
            request=Request(scope.key, f"schedule:{name}", FIRE, print_),
            trace=CallTrace("", ""),
            actor=SYSTEM,
            size=len(schedule.task),
        )
        try:
            await self._submit(origin, schedule, name)
        except IdTaken as taken:
            # Made before, and its receipt has gone since. (Nobody else knows the name.)
            if taken.resource is None or taken.resource[0] not in ("task", "session"):
                raise
        except (Unavailable, Aborted, Internal):
            raise
        except ThreadkeepError as refusal:
            return Fire(fire_time, now, None, Failure(refusal.reason, refusal.message))
        return Fire(fire_time, now, name, None)

    async def _record(self, schedule: Schedule, fire: Fire | None, following: datetime | None) -> bool:
        async def work(connection: Connection) -> bool:
            return await connection.run(lambda sync: schedules.record_fire(sync, schedule, fire, following))

        return await self._database.retrying(work)

    async def _read(self, schedule: Schedule) -> Schedule | None:
        async with self._database.read() as connection:
            return await connection.run(
                lambda sync: schedules.find_schedule(sync, schedule.scope_key, schedule.schedule_id)
            )


async def fire_all(firing: Firing, found: list[DueSchedule], failed: Callable[[DueSchedule], None]) -> int:
    """Deals with many, some at a time; one that fails disturbs no other. Returns how many fires were made."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(due: DueSchedule) -> int:
        async with gate:
            try:
                return await firing.deal_with(due)
            except ThreadkeepError as error:
                _log.warning("a fire has to wait", reason=error.reason)
            except Exception as error:
                _log.error("a fire failed", **fault_facts(error))
            firing.metrics.fires.labels("put_off").inc()
            failed(due)
            return 0

    return sum(await asyncio.gather(*(one(due) for due in found)))
