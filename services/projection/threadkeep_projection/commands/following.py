"""Applies events of the log: rows and cursor in one transaction, by whoever holds the share's lease (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from google.protobuf.message import Message

from threadkeep_chassis.database import Connection, Database, is_data_error
from threadkeep_chassis.errors import ScopeForbidden, ThreadkeepError
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call
from threadkeep_chassis.signals import Signals, Subscription
from threadkeep_projection.commands.channels import NOTHING, Channels, Fetched
from threadkeep_projection.domain.batches import apply_all
from threadkeep_projection.domain.projector import PURGES, Draft, wanted_checkpoint
from threadkeep_projection.domain.sharing import portion
from threadkeep_projection.domain.values import Channel, Event, Poison
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, FedEvent, LogFrame
from threadkeep_projection.reach import Reach
from threadkeep_projection.store import followers
from threadkeep_projection.store.poison import count_poison
from threadkeep_projection.store.shares import (
    Share,
    ShareLease,
    acquire_share,
    advance_share,
    divide_shares,
    ensure_shares,
    list_shares,
    pause_shares,
    release_share,
    renew_share,
    restart_shares,
    resume_shares,
)
from threadkeep_projection.store.threads import (
    Loaded,
    ThreadKey,
    drop_everything,
    drop_session,
    load_threads,
    write_threads,
)

_log = structlog.get_logger("threadkeep.projection")

ADVANCED = "projection"
"""The signal that a share's cursor moved."""

TURN = "projection.turn"
"""The signal that shares may be free, or are wanted: a pause is over, a replica came, or gave a share up."""

ResponseT = TypeVar("ResponseT", bound=Message)

_BATCH_BYTES = 32 * 1024 * 1024
"""Stored bytes of the channels that one transaction applies at most, or so."""

Batch = list[tuple[FedEvent, Channel | None]]


class ShareLost(Exception):
    """Another replica follows now, or the projection was reset or paused. Nothing was written."""


def check_operator(call: Call) -> None:
    """Raises ScopeForbidden unless the call has the grant over all scopes."""
    if call.named_grant is None or not call.named_grant.all:
        raise ScopeForbidden("This needs the grant over all scopes.")


@dataclass
class Meeting:
    """What a replica learns when it says that it takes part."""

    shares: list[Share]
    """As they stood before."""
    portion: int = 0
    """How many of them it should have."""
    taken: list[tuple[ShareLease, bytes]] = field(default_factory=list)
    """(lease, cursor) of those that it got."""


class Following:
    """The follower's transactions."""

    def __init__(self, database: Database, signals: Signals, channels: Channels, metrics: ProjectionMetrics) -> None:
        self._database = database
        self._signals = signals
        self._channels = channels
        self._metrics = metrics
        self._reaches: dict[int, Reach] = {}

    def reach(self, share: int) -> Reach:
        """What this replica knows of how far the share is."""
        if share not in self._reaches:
            self._reaches[share] = Reach(self._database.clock)
            self._metrics.show_lag(self._reaches[share].lag_seconds, share)
        return self._reaches[share]

    async def shares(self) -> tuple[list[Share], datetime]:
        """The shares as they stand (one whose lease has run out has no owner), and the time."""
        async with self._database.read() as connection:
            now = await connection.now()
            return [share.at(now) for share in await list_shares(connection)], now

    async def poison_count(self) -> int:
        """How many events could not be projected."""
        async with self._database.read() as connection:
            return await count_poison(connection)

    async def pause(
        self,
        call: Call,
        request: Message,
        duration: timedelta | None,
        response_type: type[ResponseT],
        answer: Callable[[datetime | None], ResponseT],
    ) -> ResponseT:
        """Stops every replica's follower, for a time or until `resume`. Raises ScopeForbidden."""
        check_operator(call)

        async def work(connection: Connection) -> ResponseT:
            return answer(await pause_shares(connection, duration))

        return await idempotent(self._database, call, request, response_type, work)

    async def resume(
        self, call: Call, request: Message, response_type: type[ResponseT], answer: Callable[[bool], ResponseT]
    ) -> ResponseT:
        """Lets the follower go on; `answer` learns whether it was paused. Raises ScopeForbidden."""
        check_operator(call)

        async def work(connection: Connection) -> ResponseT:
            connection.after_commit(lambda: self._signals.notify(TURN))
            return answer(await resume_shares(connection))

        return await idempotent(self._database, call, request, response_type, work)

    def turns(self) -> AbstractAsyncContextManager[Subscription]:
        """Wakes whoever waits for shares."""
        return self._signals.subscribe(TURN)

    async def reach_time(self, share: int) -> datetime | None:
        """How far the share was known to be, when it was last written."""
        return next((one.reach_time for one in (await self.shares())[0] if one.share == share), None)

    async def prepare(self) -> None:
        """Makes the first share's row, once."""
        await self._database.retrying(ensure_shares)

    async def divide(self, share_count: int) -> None:
        """Sees to it that there is a share for each of the log's partitions.

        One share that followed the whole log is divided where it stands. Shares of another number are those of another
        log, of which no row can be trusted: everything begins anew.
        """

        async def work(connection: Connection) -> bool:
            if await divide_shares(connection, share_count):
                return True
            await drop_everything(connection)
            await restart_shares(connection, share_count)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))
            return False

        if not await self._database.retrying(work):
            _log.warning("the log has another number of partitions; building all anew", partitions=share_count)
            self._metrics.rebuilds.labels("all").inc()

    async def meet(
        self, owner: str, ttl: timedelta, *, held: Collection[int], resting: Collection[int], aside: bool
    ) -> Meeting:
        """Says that this replica takes part, and takes free shares up to its portion.

        `held`: the shares that it has; `resting`: those that it does not want now; `aside`: it would rather have
        none, if another replica is there to take them.
        """

        async def work(connection: Connection) -> Meeting:
            living, is_new = await followers.meet(connection, owner, ttl, aside=aside)
            now = await connection.now()
            meeting = Meeting([share.at(now) for share in await list_shares(connection)])
            meeting.portion = portion(len(meeting.shares), living, owner)
            for share in meeting.shares:
                if len(held) + len(meeting.taken) >= meeting.portion:
                    break
                if share.owner not in ("", owner) or share.is_paused or share.share in held or share.share in resting:
                    continue
                taken = await acquire_share(connection, share.share, owner, ttl)
                if taken is not None:
                    meeting.taken.append(taken)
            if is_new:
                connection.after_commit(lambda: self._signals.notify(TURN))
            return meeting

        return await self._database.retrying(work)

    async def leave(self, owner: str) -> None:
        """This replica takes part no longer; its shares were released before."""
        await self._database.retrying(lambda connection: followers.leave(connection, owner))
        self._signals.notify(TURN)

    async def acquire(self, owner: str, ttl: timedelta, share: int = 0) -> tuple[ShareLease, bytes] | None:
        """Takes a share: (lease, cursor). None while another replica holds it."""
        return await self._database.retrying(lambda connection: acquire_share(connection, share, owner, ttl))

    async def renew(self, lease: ShareLease) -> None:
        """Prolongs the lease. Raises ShareLost."""
        reached = self.reach(lease.share).now()
        if not await self._database.retrying(lambda connection: renew_share(connection, lease, reached)):
            raise ShareLost()

    async def release(self, lease: ShareLease) -> None:
        """Gives the share up."""
        await self._database.retrying(lambda connection: release_share(connection, lease))
        self._signals.notify(TURN)

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

    async def _commit(
        self,
        lease: ShareLease,
        from_cursor: bytes,
        to_cursor: bytes,
        batch: Batch,
        known: Mapping[int, str] | None = None,
    ) -> None:
        """Applies a batch. What can't be projected is set aside, with the reason; the rest goes on.

        `known`: sequences of events of the batch, of one thread, that the database refused.
        """
        threads: dict[ThreadKey, list[tuple[Event, Channel | None]]] = {}
        for fed, channel in batch:
            threads.setdefault((fed.scope.key, fed.session_id), []).append((fed.event, channel))
        reached = batch[-1][0].event.time if batch else self._database.clock.now()

        async def work(connection: Connection) -> list[Poison]:
            if not await advance_share(connection, lease, from_cursor, to_cursor, len(batch), reached):
                raise ShareLost()
            poison: list[Poison] = []
            if threads:
                loaded = await load_threads(
                    connection, {key: [event for event, _ in pairs] for key, pairs in threads.items()}
                )
                for key, pairs in threads.items():
                    loaded.drafts[key], _ = apply_all(loaded.drafts[key], pairs, known)
                    poison += loaded.drafts[key].poison.values()
                await write_threads(connection, loaded)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))
            return poison

        try:
            poison = await self._database.retrying(work)
        except Exception as error:
            if known is not None or not batch or not is_data_error(error):
                raise
            await self._commit_each(lease, from_cursor, to_cursor, batch, error)
            return
        self._metrics.note_poison(len(poison))
        for one in poison:
            _log.error("event set aside", type=one.type, why=one.reason)
        self._note(lease, len(batch), reached)

    async def _commit_each(
        self, lease: ShareLease, from_cursor: bytes, to_cursor: bytes, batch: Batch, error: Exception
    ) -> None:
        """Commits event by event what the database refused together; the one at fault is set aside."""
        if len(batch) == 1:
            known = {batch[0][0].event.sequence: type(error).__name__}
            await self._commit(lease, from_cursor, to_cursor, batch, known)
            return
        for index, one in enumerate(batch):
            upto = to_cursor if index == len(batch) - 1 else one[0].cursor
            await self._commit(lease, from_cursor, upto, [one])
            from_cursor = upto

    async def _begin_anew(self, lease: ShareLease, from_cursor: bytes, to_cursor: bytes, fed: FedEvent) -> None:
        """Builds the session anew from what the runtime has left of it; what the log still brings is in there then.

        One that is gone meanwhile keeps nothing: its last event is on its way.
        """
        draft = Draft(fed.session_id)
        try:
            draft, _ = await self._channels.catch_up(Caller.operator(fed.scope), draft)
        except ThreadkeepError as error:
            if error.reason != "SESSION_NOT_FOUND":
                raise
            draft = Draft(fed.session_id)
        key = (fed.scope.key, fed.session_id)

        async def work(connection: Connection) -> None:
            if not await advance_share(connection, lease, from_cursor, to_cursor, 1, fed.event.time):
                raise ShareLost()
            await drop_session(connection, key)
            if draft.session is not None:
                await write_threads(connection, Loaded({key: Draft(fed.session_id)}, {key: draft}))
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._metrics.rebuilds.labels("purged").inc()
        self._note(lease, 1, fed.event.time)

    def _note(self, lease: ShareLease, count: int, reached: datetime) -> None:
        self.reach(lease.share).move(reached)
        if count:
            self._metrics.events.inc(count)
            self._metrics.batches.observe(count)

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
