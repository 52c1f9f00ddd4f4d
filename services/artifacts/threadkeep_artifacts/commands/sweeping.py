"""What a sweep does: gives up silent uploads, condemns content that nothing refers to, and removes chunks (B104).

Any number of sweeps may run at once, beside any number of uploads: each step compares and sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.domain.errors import ContentStoreUnavailable
from threadkeep_artifacts.store import contents, deletions, scopes, versions
from threadkeep_chassis.database import Connection, Database

_log = structlog.get_logger("threadkeep.artifacts")

PURGE_BATCH = 100
CONDEMN_BATCH = 100
REMOVE_BATCH = 100
CHUNKS_PER_TRANSACTION = 32


@dataclass(frozen=True)
class Swept:
    """What one pass did."""

    abandoned_uploads: int
    purged_deletions: int
    condemned_blobs: int
    removed_chunks: int


class Sweep:
    """Reclaims what no version needs."""

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        *,
        upload_ttl_seconds: float,
        garbage_grace_seconds: float,
        restore_window_seconds: float,
    ) -> None:
        """An upload is given up after `upload_ttl_seconds` of silence. What was deleted can be restored for
        `restore_window_seconds`. Content that nothing refers to any more is then kept for `garbage_grace_seconds`, so
        that downloads under way come to their end.
        """
        self._database = database
        self._blobs = blobs
        self._ttl = timedelta(seconds=upload_ttl_seconds)
        self._grace = timedelta(seconds=garbage_grace_seconds)
        self._window = timedelta(seconds=restore_window_seconds)

    async def once(self) -> Swept:
        """One pass. Raises DatabaseUnavailable; what was done by then stays done."""
        abandoned = await self._database.retrying(self._abandon)
        purged = await self._purge()
        condemned = await self._condemn()
        return Swept(abandoned, purged, condemned, await self._remove())

    async def _abandon(self, connection: Connection) -> int:
        now = await connection.now()
        return await contents.abandon_stages(connection, now - self._ttl, now)

    async def _purge(self) -> int:
        """Ends the time in which something could be restored."""
        purged = 0
        while True:
            async with self._database.read() as connection:
                expired = await deletions.list_expired(connection, await connection.now() - self._window, PURGE_BATCH)
            for scope_key, artifact_id, version in expired:
                purged += await self._database.retrying(
                    partial(_purge_one, scope_key=scope_key, artifact_id=artifact_id, version=version)
                )
            if len(expired) < PURGE_BATCH:
                return purged

    async def _condemn(self) -> int:
        condemned = 0
        while True:
            async with self._database.read() as connection:
                since = await connection.now() - self._grace
                found = await contents.list_unreferenced(connection, since, CONDEMN_BATCH)
            for scope_key, blob_ids in found.items():
                condemned += await self._database.retrying(
                    partial(_condemn_of, scope_key=scope_key, blob_ids=blob_ids, since=since)
                )
            if sum(len(blob_ids) for blob_ids in found.values()) < CONDEMN_BATCH:
                return condemned

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


async def _purge_one(connection: Connection, scope_key: str, artifact_id: str, version: int) -> bool:
    # The scope's row first, as everybody does; then whoever takes the note has it: a restore, or this.
    await scopes.change(connection, scope_key)
    if not await deletions.take(connection, scope_key, artifact_id, version):
        return False
    if version == deletions.WHOLE:
        await deletions.forget_versions(connection, scope_key, artifact_id)
    counts = await versions.purge(connection, scope_key, artifact_id, version)
    await contents.release(connection, scope_key, counts, await connection.now())
    return True


async def _condemn_of(connection: Connection, scope_key: str, blob_ids: Sequence[str], since: datetime) -> int:
    await scopes.change(connection, scope_key)
    count, size = await contents.condemn(connection, blob_ids, since, await connection.now())
    await scopes.reclaim(connection, scope_key, size)
    return count
