"""Deletes memory items whose time to live is over (R21). Readers don't wait for it: expired means gone."""

from __future__ import annotations

from threadkeep_chassis.database import Connection, Database
from threadkeep_runtime.store.items import sweep

BATCH = 500


async def sweep_items(database: Database) -> int:
    """Deletes what has expired, one batch per transaction; returns how many went."""

    async def work(connection: Connection) -> int:
        now = await connection.now()
        return await connection.run(lambda sync: sweep(sync, now, BATCH))

    swept = 0
    while True:
        count = await database.retrying(work)
        swept += count
        if count < BATCH:
            return swept
