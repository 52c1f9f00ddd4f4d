"""Compaction of history (C6): as far as retention says; and removing what it leaves behind.

The floor is raised in one step, and every reader honours it from then on. What lies below is removed in small batches.
"""

from __future__ import annotations

from datetime import timedelta

from threadkeep_chassis.database import Connection, Database
from threadkeep_config.store import revisions

BATCH_REVISIONS = 128
"""Revisions looked at in one transaction."""


class Compaction:
    """The background work. Several replicas may do it at once: whoever comes second finds it done."""

    def __init__(self, database: Database, *, retention_seconds: float) -> None:
        self._database = database
        self._retention = timedelta(seconds=retention_seconds)

    async def run_once(self) -> None:
        """Raises the floor to what retention leaves, and removes what lies below."""
        if self._retention:
            await self._database.retrying(self._raise_floor)
        while await self._database.retrying(self._purge):
            pass

    async def _raise_floor(self, connection: Connection) -> None:
        floor = await revisions.newest_before(connection, await connection.now() - self._retention)
        await revisions.raise_floor(connection, floor)

    async def _purge(self, connection: Connection) -> bool:
        return await revisions.purge(connection, BATCH_REVISIONS)
