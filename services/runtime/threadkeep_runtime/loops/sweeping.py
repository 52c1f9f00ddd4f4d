"""Deletes what has expired: memory items (R21), which readers miss at once, and staged values that no commit used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from threadkeep_chassis.database import Connection, Database
from threadkeep_runtime.checkpoints import sweep_staged
from threadkeep_runtime.store.items import sweep

BATCH = 500


async def sweep_items(database: Database) -> int:
    """Deletes what has expired, one batch per transaction; returns how many went."""

    async def work(connection: Connection) -> int:
        now = await connection.now()
        return await connection.run(lambda sync: sweep(sync, now, BATCH))

    return await _all(database, work)


async def sweep_chunks(database: Database, ttl: timedelta) -> int:
    """Deletes the chunks of staged values that have waited longer, one batch per transaction; returns how many went."""

    async def work(connection: Connection) -> int:
        limit = await connection.now() - ttl
        return await connection.run(lambda sync: sweep_staged(sync, limit, BATCH))

    return await _all(database, work)


async def _all(database: Database, work: Callable[[Connection], Awaitable[int]]) -> int:
    swept = 0
    while True:
        count = await database.retrying(work)
        swept += count
        if count < BATCH:
            return swept
