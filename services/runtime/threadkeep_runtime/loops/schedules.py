"""Looks for schedules with a fire that is due (R24). What fails is tried again later and later, and holds nobody up."""

from __future__ import annotations

from threadkeep_chassis.database import Database
from threadkeep_runtime.commands.schedules import Firing, fire_all
from threadkeep_runtime.loops.backoff import Backoff
from threadkeep_runtime.store import schedules
from threadkeep_runtime.store.schedules import DueSchedule

BATCH = 128


class Schedules:
    """One look at everything that is due."""

    def __init__(self, database: Database, firing: Firing) -> None:
        self._database = database
        self._firing = firing
        self._backoff = Backoff(database.clock)

    async def run_once(self) -> int:
        """Makes the fires that are due now; returns how many."""
        made = passed = 0
        while True:
            async with self._database.read() as connection:
                now = await connection.now()
                found = await connection.run(
                    lambda sync, now=now, passed=passed: schedules.due_schedules(sync, now, BATCH, passed)  # type: ignore[misc]
                )
            failed: list[DueSchedule] = []
            ready = [due for due in found if self._backoff.is_ready(_key(due))]
            made += await fire_all(self._firing, ready, failed.append)
            for due in ready:
                (self._backoff.failed if due in failed else self._backoff.succeeded)(_key(due))
            # What could not be dealt with stays due, and is passed by.
            passed += len(found) - len(ready) + len(failed)
            if len(found) < BATCH:
                return made


def _key(due: DueSchedule) -> tuple[str, str]:
    return due.schedule.scope_key, due.schedule.schedule_id
