"""Applies events of the log: rows and cursor in one transaction, by whoever holds the share's lease (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.signals import Signals
from threadkeep_projection.commands.channels import NOTHING, Channels, Fetched
from threadkeep_projection.domain.projector import PURGES, Draft, apply, wanted_checkpoint
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
from threadkeep_projection.store.threads import Loaded, ThreadKey, drop_session, load_threads, write_threads

ADVANCED = "projection"
"""The signal that the share's cursor moved."""


_BATCH_BYTES = 32 * 1024 * 1024
"""Stored bytes of the channels that one transaction applies at most, or so."""

Batch = list[tuple[FedEvent, Channel | None]]


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
        """Applies frames that follow `from_cursor`, at least one, and returns the cursor after them.

        It takes one transaction, or several if the checkpoints to read are large. Each event counts once however often
        it is delivered: a cursor that moved meanwhile, a lease that was lost and a sequence that a session has behind
        it already leave no trace. Raises ShareLost, Unavailable.
        """
        events = [event for frame in frames for event in frame.events]
        cursor, applied = from_cursor, 0
        while True:
            if applied < len(events) and events[applied].event.type in PURGES:
                fed = events[applied]
                applied += 1
                is_last = applied == len(events)
                to_cursor = frames[-1].cursor if is_last else fed.cursor
                await self._begin_anew(lease, cursor, to_cursor, fed)
            else:
                upto = next((n for n in range(applied, len(events)) if events[n].event.type in PURGES), len(events))
                batch = await self._next_batch(events[:upto], applied)
                applied += len(batch)
                is_last = applied == len(events)
                to_cursor = frames[-1].cursor if is_last else batch[-1][0].cursor
                await self._commit(lease, cursor, to_cursor, batch)
            cursor = to_cursor
            if is_last:
                return cursor

    async def _commit(self, lease: ShareLease, from_cursor: bytes, to_cursor: bytes, batch: Batch) -> None:
        threads: dict[ThreadKey, list[tuple[Event, Channel | None]]] = {}
        for fed, channel in batch:
            threads.setdefault((fed.scope.key, fed.session_id), []).append((fed.event, channel))

        async def work(connection: Connection) -> None:
            if not await advance_share(connection, lease, from_cursor, to_cursor, len(batch)):
                raise ShareLost()
            if threads:
                loaded = await load_threads(
                    connection, {key: [event for event, _ in pairs] for key, pairs in threads.items()}
                )
                for key, pairs in threads.items():
                    for event, channel in pairs:
                        apply(loaded.drafts[key], event, channel)
                await write_threads(connection, loaded)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._measure([fed for fed, _ in batch])

    async def _begin_anew(self, lease: ShareLease, from_cursor: bytes, to_cursor: bytes, fed: FedEvent) -> None:
        """Builds the session anew from what the runtime has left of it; what the log still brings is in there then.

        One that is gone meanwhile keeps nothing: its last event is on its way.
        """
        draft = Draft(fed.session_id)
        try:
            await self._channels.catch_up(Caller.operator(fed.scope), draft)
        except ThreadkeepError as error:
            if error.reason != "SESSION_NOT_FOUND":
                raise
            draft = Draft(fed.session_id)
        key = (fed.scope.key, fed.session_id)

        async def work(connection: Connection) -> None:
            if not await advance_share(connection, lease, from_cursor, to_cursor, 1):
                raise ShareLost()
            await drop_session(connection, key)
            if draft.session is not None:
                await write_threads(connection, Loaded({key: Draft(fed.session_id)}, {key: draft}))
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._metrics.rebuilds.labels("purged").inc()
        self._measure([fed])

    async def _next_batch(self, events: Sequence[FedEvent], start: int) -> Batch:
        """The events from `start` on with the channels that they brought, until these take too much memory.

        Every checkpoint is read, though the next one holds its messages too: each introduces its own.
        """
        batch: Batch = []
        size = 0
        while start + len(batch) < len(events) and size < _BATCH_BYTES:
            round_ = self._round(events, start + len(batch))
            for fed, fetched in zip(round_, await _all([self._fetch(fed) for fed in round_]), strict=True):
                batch.append((fed, fetched.channel))
                size += fetched.size
        return batch

    def _round(self, events: Sequence[FedEvent], start: int) -> Sequence[FedEvent]:
        """The events from `start` on that ask for as many checkpoints as are read at once."""
        wanted = 0
        for index in range(start, len(events)):
            wanted += wanted_checkpoint(events[index].event) is not None
            if wanted == self._channels.at_once:
                return events[start : index + 1]
        return events[start:]

    async def _fetch(self, fed: FedEvent) -> Fetched:
        checkpoint_id = wanted_checkpoint(fed.event)
        if checkpoint_id is None:
            return NOTHING
        return await self._channels.fetch(Caller.operator(fed.scope), fed.session_id, checkpoint_id)

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
