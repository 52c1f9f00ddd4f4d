"""Applies events of the log: rows and cursor in one transaction, by whoever holds the share's lease (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.signals import Signals
from threadkeep_projection.commands.channels import Channels
from threadkeep_projection.domain.projector import apply, wanted_checkpoint
from threadkeep_projection.domain.values import Channel, Event
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, FedEvent, LogFrame
from threadkeep_projection.store.shares import (
    Share,
    ShareLease,
    acquire_share,
    advance_share,
    ensure_share,
    list_shares,
    release_share,
    renew_share,
)
from threadkeep_projection.store.threads import ThreadKey, load_threads, write_threads

ADVANCED = "projection"
"""The signal that the share's cursor moved."""


class ShareLost(Exception):
    """Another replica follows now, or the projection was reset. Nothing was written."""


class Following:
    """The follower's transactions."""

    def __init__(self, database: Database, signals: Signals, channels: Channels, metrics: ProjectionMetrics) -> None:
        self._database = database
        self._signals = signals
        self._channels = channels
        self._metrics = metrics

    async def shares(self) -> list[Share]:
        """The shares as they stand; one whose lease has run out has no owner."""
        async with self._database.read() as connection:
            now = await connection.now()
            return [
                share
                if share.lease_expire_time is not None and share.lease_expire_time > now
                else replace(share, owner="")
                for share in await list_shares(connection)
            ]

    async def prepare(self) -> None:
        """Makes the share's row, once."""
        await self._database.retrying(ensure_share)

    async def acquire(self, owner: str, ttl: timedelta) -> tuple[ShareLease, bytes] | None:
        """Takes the share: (lease, cursor). None while another replica holds it."""
        return await self._database.retrying(lambda connection: acquire_share(connection, owner, ttl))

    async def renew(self, lease: ShareLease) -> None:
        """Prolongs the lease. Raises ShareLost."""
        if not await self._database.retrying(lambda connection: renew_share(connection, lease)):
            raise ShareLost()

    async def release(self, lease: ShareLease) -> None:
        """Gives the share up."""
        await self._database.retrying(lambda connection: release_share(connection, lease))

    async def apply_frames(self, lease: ShareLease, from_cursor: bytes, frames: Sequence[LogFrame]) -> bytes:
        """Applies frames that follow `from_cursor`, at least one, in one transaction; returns the cursor after them.

        Each event counts once however often it is delivered: a cursor that moved meanwhile, a lease that was lost and a
        sequence that a session has behind it already leave no trace. Raises ShareLost, Unavailable.
        """
        events = [event for frame in frames for event in frame.events]
        to_cursor = frames[-1].cursor
        threads: dict[ThreadKey, list[tuple[Event, Channel | None]]] = {}
        for fed, channel in zip(events, await self._fetch(events), strict=True):
            threads.setdefault((fed.scope.key, fed.session_id), []).append((fed.event, channel))

        async def work(connection: Connection) -> None:
            if not await advance_share(connection, lease, from_cursor, to_cursor, len(events)):
                raise ShareLost()
            if threads:
                loaded = await load_threads(
                    connection, {key: [event for event, _ in batch] for key, batch in threads.items()}
                )
                for key, batch in threads.items():
                    for event, channel in batch:
                        apply(loaded.drafts[key], event, channel)
                await write_threads(connection, loaded)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._measure(events)
        return to_cursor

    async def _fetch(self, events: Sequence[FedEvent]) -> list[Channel | None]:
        """For each event the channel that it brought. Every checkpoint counts: each introduces its own messages."""

        async def nothing() -> None:
            return None

        async def fetch(fed: FedEvent, checkpoint_id: str) -> Channel | None:
            return await self._channels.fetch(Caller.operator(fed.scope), fed.session_id, checkpoint_id)

        return await _all(
            [
                fetch(fed, checkpoint_id) if (checkpoint_id := wanted_checkpoint(fed.event)) is not None else nothing()
                for fed in events
            ]
        )

    def _measure(self, events: Sequence[FedEvent]) -> None:
        if not events:
            self._metrics.lag.set(0)
            return
        self._metrics.events.inc(len(events))
        self._metrics.batches.observe(len(events))
        behind = (self._database.clock.now() - events[-1].event.time).total_seconds()
        self._metrics.lag.set(max(0.0, behind))


async def _all(work):  # type: ignore[no-untyped-def]
    """Gathers; if one fails, the others are cancelled before the error goes on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
