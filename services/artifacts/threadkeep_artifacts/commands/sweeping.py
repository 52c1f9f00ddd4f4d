"""What a sweep does: gives up silent uploads, condemns content that nothing refers to, and removes chunks (B104).

Any number of sweeps may run at once, beside any number of uploads: each step compares and sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.domain.errors import ContentStoreUnavailable
from threadkeep_artifacts.store import contents
from threadkeep_chassis.database import Connection, Database

_log = structlog.get_logger("threadkeep.artifacts")

CONDEMN_BATCH = 100
REMOVE_BATCH = 100
CHUNKS_PER_TRANSACTION = 32


@dataclass(frozen=True)
class Swept:
    """What one pass did."""

    abandoned_uploads: int
    condemned_blobs: int
    removed_chunks: int


class Sweep:
    """Reclaims what no version needs."""

    def __init__(
        self, database: Database, blobs: BlobStore, *, upload_ttl_seconds: float, garbage_grace_seconds: float
    ) -> None:
        """An upload is given up after `upload_ttl_seconds` of silence. Content that nothing refers to is kept for
        `garbage_grace_seconds`, so that downloads under way come to their end.
        """
        self._database = database
        self._blobs = blobs
        self._ttl = timedelta(seconds=upload_ttl_seconds)
        self._grace = timedelta(seconds=garbage_grace_seconds)

    async def once(self) -> Swept:
        """One pass. Raises DatabaseUnavailable; what was done by then stays done."""
        abandoned = await self._database.retrying(self._abandon)
        condemned = 0
        while count := await self._database.retrying(self._condemn):
            condemned += count
        return Swept(abandoned, condemned, await self._remove())

    async def _abandon(self, connection: Connection) -> int:
        now = await connection.now()
        return await contents.abandon_stages(connection, now - self._ttl, now)

    async def _condemn(self, connection: Connection) -> int:
        now = await connection.now()
        return await contents.condemn_blobs(connection, now - self._grace, now, CONDEMN_BATCH)

    async def _remove(self) -> int:
        async with self._database.read() as connection:
            removable = await contents.list_removable(connection, REMOVE_BATCH)
        removed = 0
        for blob_id in removable:
            try:
                while True:
                    count = await self._blobs.remove_chunks(blob_id, CHUNKS_PER_TRANSACTION)
                    removed += count
                    if count < CHUNKS_PER_TRANSACTION:
                        break
            except ContentStoreUnavailable as error:
                _log.warning("chunks not removed", blob_id=blob_id, problem=error.message)
                await self._database.retrying(partial(_postpone, blob_id=blob_id))
                continue

            async def forget(connection: Connection, blob_id: str = blob_id) -> None:
                await contents.forget_stage(connection, blob_id, await connection.now() - self._ttl)

            await self._database.retrying(forget)
        return removed


async def _postpone(connection: Connection, blob_id: str) -> None:
    await contents.postpone_stage(connection, blob_id, await connection.now())
