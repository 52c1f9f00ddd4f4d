"""Sweeps deleted sessions: row by row they go, however many there are, and whoever was at it before (R19)."""

from __future__ import annotations

from threadkeep_chassis.database import Connection, Database
from threadkeep_runtime.pipeline.failpoints import DURING_SWEEP, Failpoints
from threadkeep_runtime.store import deleting, purging
from threadkeep_runtime.store.deleting import Swept

THREADS_AT_ONCE = 100


class Sweeper:
    """Deletes what deleted threads have left. A transaction takes a bounded number of rows."""

    def __init__(self, database: Database, failpoints: Failpoints, rows: int) -> None:
        """`rows`: how many go in one transaction, or so."""
        self._database = database
        self._failpoints = failpoints
        self._rows = rows

    async def sweep(self, thread_key: str, *, waits: bool = True) -> int:
        """Sweeps one thread to the end; returns how many rows went. Nothing happens for one that is not deleted.

        Without `waits` a thread that another replica is at is left to it. Raises Unavailable.
        """
        total = 0
        while True:
            swept = await self._once(thread_key, waits)
            total += swept.rows
            if swept.is_done:
                return total
            self._failpoints.reach(DURING_SWEEP)

    async def sweep_all(self) -> int:
        """Goes on with every thread that is deleted and not swept yet; returns how many rows went."""
        async with self._database.read() as connection:
            found = await connection.run(lambda sync: deleting.unswept(sync, THREADS_AT_ONCE))
        return sum([await self.sweep(thread_key, waits=False) for thread_key in found])

    async def sweep_history(self, thread_key: str) -> int:
        """Deletes what lies below a thread's floors; returns how many rows went. Raises Unavailable."""
        total = 0
        while True:
            swept = await self._database.retrying(
                lambda connection: connection.run(lambda sync: purging.sweep_history(sync, thread_key, self._rows))
            )
            total += swept.rows
            if swept.is_done:
                return total
            self._failpoints.reach(DURING_SWEEP)

    async def _once(self, thread_key: str, waits: bool) -> Swept:
        async def work(connection: Connection) -> Swept:
            now = await connection.now()
            return await connection.run(lambda sync: deleting.sweep(sync, thread_key, now, self._rows, waits=waits))

        return await self._database.retrying(work)
