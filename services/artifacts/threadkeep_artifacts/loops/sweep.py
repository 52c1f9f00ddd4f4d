"""Runs the sweep and the purge of receipts, again and again. It owns when; `commands.sweeping` owns what."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter

from threadkeep_artifacts.commands.sweeping import Sweep
from threadkeep_chassis.database import Database
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.receipts import purge_receipts


def add_loops(
    loops: Loops,
    database: Database,
    sweep: Sweep,
    registry: CollectorRegistry,
    *,
    sweep_interval_seconds: float,
    receipt_ttl_seconds: float,
) -> None:
    """Adds both loops to those of the service."""
    abandoned = Counter("threadkeep_artifacts_abandoned_uploads", "Uploads given up after silence", registry=registry)
    purged = Counter("threadkeep_artifacts_purged_deletions", "Deletions that became final", registry=registry)
    removed = Counter("threadkeep_artifacts_removed_chunks", "Chunks of content reclaimed", registry=registry)

    async def sweep_once() -> None:
        swept = await sweep.once()
        abandoned.inc(swept.abandoned_uploads)
        purged.inc(swept.purged_deletions)
        removed.inc(swept.removed_chunks)

    async def purge() -> None:
        await purge_receipts(database, older_than=timedelta(seconds=receipt_ttl_seconds))

    loops.every("artifacts-sweep", sweep_interval_seconds, sweep_once)
    loops.every("artifacts-receipts", max(sweep_interval_seconds, 60.0), purge)
