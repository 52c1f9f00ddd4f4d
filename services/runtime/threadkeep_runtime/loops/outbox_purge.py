"""Deletes delivered messages whose time is over, and targets that have been idle as long (R16, X9)."""

from __future__ import annotations

from datetime import timedelta

from threadkeep_chassis.database import Connection, Database
from threadkeep_runtime.store.relay import purge_delivered

BATCH = 500


async def purge_outbox(database: Database, older_than: timedelta) -> int:
    """One batch per transaction; returns how many rows went."""

    async def work(connection: Connection) -> int:
        before = await connection.now() - older_than
        return await connection.run(lambda sync: purge_delivered(sync, before, BATCH))

    purged = 0
    while True:
        count = await database.retrying(work)
        purged += count
        if count < BATCH:
            return purged
