"""Generated histories of a schedule: whatever becomes of servers, a fire happens once, and none is lost (R24).

The servers are `Firing` on a real database. A fire's submission is the judge's: it takes each name once, as the runtime
does, and may lose the caller before or after, or let another server look in between.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from prometheus_client import CollectorRegistry

from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import IdTaken, Unavailable
from threadkeep_chassis.scope import Scope
from threadkeep_runtime.commands.calendar import Calendar
from threadkeep_runtime.commands.schedules import FireMetrics, Firing
from threadkeep_runtime.domain.schedules import ALL, ONCE, SKIP, Schedule
from threadkeep_runtime.store import schedules
from threadkeep_runtime.store.schedules import DueSchedule
from threadkeep_runtime.tables import metadata

SCOPE = Scope({"tenant": "acme"})
GRACE = 90
MOST = 3
EVERY = timedelta(minutes=1)


class Died(Exception):
    """The server is no more."""


class FireHistories(RuleBasedStateMachine):
    """Time passes, servers look and die, the owner pauses and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC))
        self.made: dict[datetime, int] = {}
        """How often each fire's task was really made."""
        self.fate = ""
        self.snapshots: list[DueSchedule] = []

    def teardown(self) -> None:
        self.loop.run_until_complete(self.database.close())
        self.loop.close()

    @initialize(policy=st.sampled_from([SKIP, ONCE, ALL]))
    def begin(self, policy: str) -> None:
        """A schedule for every minute."""
        self.policy = policy
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.database = await Database.open("memory:", "runtime", clock=self.clock)
        await self.database.retrying(lambda connection: connection.run(_create_tables))
        now = self.clock.now()
        self.firing = Firing(self.database, self._submit, GRACE, FireMetrics(CollectorRegistry()))
        made = Schedule(
            scope_key=SCOPE.key, schedule_id="s", incarnation="i", title="", cron="* * * * *", time_zone="UTC",
            paused=False, policy=self.policy, max_missed=MOST, task=b"t", create_time=now, update_time=now,
            next_fire_time=Calendar("* * * * *", "UTC").after(now),
        )  # fmt: skip
        await self.database.retrying(
            lambda connection: connection.run(lambda sync: schedules.add_schedule(sync, made, SCOPE.canonical))
        )

    async def _submit(self, origin: Any, schedule: Schedule, name: str) -> None:
        fire = datetime.strptime(name.removeprefix("i-"), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        fate, self.fate = self.fate, ""
        assert fire <= self.clock.now(), "no fire comes early"
        assert (fire.second, fire.microsecond) == (0, 0)
        if fate == "before":
            raise Died
        if fate == "away":
            raise Unavailable()
        taken = fire in self.made
        self.made.setdefault(fire, 0)
        if not taken:
            self.made[fire] += 1
        if fate == "after":
            raise Died
        if fate == "another":
            await self._look(await self._read())
        if taken:
            raise IdTaken("task", name)

    async def _read(self) -> DueSchedule:
        async with self.database.read() as connection:
            found = await connection.run(lambda sync: schedules.find_schedule(sync, SCOPE.key, "s"))
        assert found is not None
        return DueSchedule(found, SCOPE.canonical)

    async def _look(self, due: DueSchedule) -> bool:
        """True if the look came to its end."""
        try:
            await self.firing.deal_with(due)
        except (Died, Unavailable):
            return False
        return True

    @rule(seconds=st.sampled_from([10, 60, 60, 61, 150, 600]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def remember(self) -> None:
        """A server reads the schedule, and is slow."""
        self.snapshots.append(self.loop.run_until_complete(self._read()))

    @precondition(lambda self: self.snapshots)
    @rule(index=st.integers(0, 3), fate=st.sampled_from(["", "", "before", "after"]))
    def act_late(self, index: int, fate: str) -> None:
        """It acts on what it read long ago."""
        self.fate = fate
        self.loop.run_until_complete(self._look(self.snapshots[-1 - index % len(self.snapshots)]))
        self.fate = ""

    @rule(fate=st.sampled_from(["", "", "", "before", "after", "away", "another"]))
    def look(self, fate: str) -> None:
        due = self.loop.run_until_complete(self._read())
        first, now, before = due.schedule.next_fire_time, self.clock.now(), set(self.made)
        assert first is not None
        self.fate = fate
        ended = self.loop.run_until_complete(self._look(due))
        self.fate = ""
        after = self.loop.run_until_complete(self._read()).schedule
        assert after.next_fire_time is not None
        assert after.next_fire_time >= first
        assert all(count == 1 for count in self.made.values()), "a fire happens once"
        assert after.task_count <= len(self.made)
        if not ended:
            return
        assert after.next_fire_time > now, "a look leaves nothing that is due"
        assert after.next_fire_time - now <= EVERY
        wanted = self.expected(first, now)
        new = set(self.made) - before
        assert new <= wanted
        assert wanted <= set(self.made)

    def expected(self, first: datetime, now: datetime) -> set[datetime]:
        """Which of the fires since `first` are to be made now, by the policy's own words."""
        due, moment = [], first
        while moment <= now:
            due.append(moment)
            moment += EVERY
        on_time = {fire for fire in due if (now - fire).total_seconds() <= GRACE}
        missed = [fire for fire in due if fire not in on_time]
        if self.policy == SKIP:
            return on_time
        if self.policy == ONCE:
            return on_time or set(missed[-1:])
        return on_time | set(missed[-MOST:])


def _create_tables(connection: Any) -> None:
    metadata.create_all(connection)


FireHistories.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.mark.rule("R24", "X3")
class TestFireHistories(FireHistories.TestCase):
    """See FireHistories."""
