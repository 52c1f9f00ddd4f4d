"""The follower: consumes the runtime's log of all scopes and applies it, in the shares that this replica holds (P1).

It knows when to read and when to stop; what events mean is the domain's, how they are stored is the commands'. Every
replica says that it is there, takes free shares up to its portion, and lets go of what it has beyond that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog

from threadkeep_chassis.errors import CursorExpired, CursorInvalid, CursorUnknown, ThreadkeepError, Unavailable
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.loops import Loops
from threadkeep_projection.commands.following import Following, ShareLost
from threadkeep_projection.commands.rebuilding import Rebuilding
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import LogFrame, Runtime
from threadkeep_projection.store.shares import ShareLease

_REBUILD_REASONS = frozenset((CursorUnknown.reason, CursorExpired.reason, CursorInvalid.reason))
"""What the runtime says of a cursor from another life of its log, or from before what it keeps."""

_QUEUED_FRAMES = 16
"""How many frames are read ahead; a slow database then slows the reading, not the memory."""

_MIN_REST_SECONDS, _MAX_REST_SECONDS = 0.05, 2.0
"""How long a share that this replica could not follow is left alone by it."""

_log = structlog.get_logger("threadkeep.projection")


class Follower:
    """Follows the log. One per replica."""

    def __init__(
        self,
        runtime: Runtime,
        following: Following,
        rebuilding: Rebuilding,
        metrics: ProjectionMetrics,
        loops: Loops,
        *,
        lease_ttl_seconds: float,
        batch_events: int,
        owner: str | None = None,
    ) -> None:
        self._runtime = runtime
        self._following = following
        self._rebuilding = rebuilding
        self._metrics = metrics
        self._loops = loops
        self._ttl = timedelta(seconds=lease_ttl_seconds)
        self._batch_events = batch_events
        self.owner = owner or new_id()
        """How this replica signs its leases."""
        self._held: dict[int, _Hold] = {}
        self._rests: dict[int, _Rest] = {}
        self._is_divided = False
        """Whether there is a share for each partition of the log that the runtime has now."""
        self._patience = _Rest()
        self._aside_until = 0.0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follows until the loops stop. Never raises for what passes by itself."""
        await self._following.prepare()
        try:
            async with self._following.turns() as turn:
                while not self._loops.stopping.is_set():
                    self._changed.clear()
                    try:
                        await self._meet()
                        self._patience.end(has_failed=False)
                    except ThreadkeepError as error:
                        self._patience.end(has_failed=True)
                        self._note_failure(error)
                    await _first_of(
                        turn.wait(self._seconds_to_next()), self._changed.wait(), self._loops.stopping.wait()
                    )
        finally:
            await self._leave()

    def _seconds_to_next(self) -> float:
        now = asyncio.get_running_loop().time()
        rests = [rest.until - now for share, rest in self._rests.items() if share not in self._held]
        patience = self._ttl.total_seconds() / 3 if self._is_divided else self._patience.seconds
        return max(0.0, min([patience, *(left for left in rests if left > 0)]))

    async def _meet(self) -> None:
        """Takes and lets go of shares, so that this replica has its portion."""
        if not self._is_divided:
            await self._following.divide(await self._runtime.partition_count())
            self._is_divided = True
        now = asyncio.get_running_loop().time()
        meeting = await self._following.meet(
            self.owner,
            self._ttl,
            held=self._held,
            resting={share for share, rest in self._rests.items() if rest.until > now},
            aside=self._aside_until > now,
        )
        for share in meeting.shares:
            if share.owner and share.share not in self._held:
                # Another replica follows it, and says how far it is.
                self._following.reach(share.share).end()
        kept = sorted(share for share, hold in self._held.items() if not hold.is_let_go.is_set())
        for number in kept[meeting.portion :]:
            self._held[number].is_let_go.set()
        for lease, cursor in meeting.taken:
            hold = self._held[lease.share] = _Hold()
            hold.task = asyncio.ensure_future(self._follow(lease, cursor, hold))

    async def _follow(self, lease: ShareLease, cursor: bytes, hold: _Hold) -> None:
        """Follows one share until it is lost, fails, or is let go; then it is free, and rests here if it failed."""
        progress = _Progress(cursor)
        owned = self._metrics.is_owner.labels(str(lease.share))
        owned.set(1)
        has_failed = True
        try:
            self._following.reach(lease.share).begin(await self._following.reach_time(lease.share))
            await self._hold(lease, progress, hold)
            has_failed = not hold.is_let_go.is_set()
        except ShareLost:
            has_failed = False
            _log.info("share lost", share=lease.share, epoch=lease.epoch)
        except ThreadkeepError as error:
            self._note_failure(error)
            if error.reason in _REBUILD_REASONS and progress.cursor:
                await self._begin_anew(lease, progress.cursor, error)
        except Exception as error:
            self._metrics.failures.labels("INTERNAL").inc()
            _log.error("follower failed", **fault_facts(error))
        finally:
            owned.set(0)
            try:
                await self._give_up(lease)
            finally:
                self._rest(lease.share, has_failed and not progress.has_moved)
                del self._held[lease.share]
                self._changed.set()

    async def _begin_anew(self, lease: ShareLease, cursor: bytes, error: ThreadkeepError) -> None:
        try:
            await self._rebuilding.rebuild_all(lease, cursor)
            _log.warning("the log's past is gone; building all anew", reason=error.reason)
        except ShareLost:
            _log.info("share lost", share=lease.share, epoch=lease.epoch)
        except ThreadkeepError as failure:
            self._note_failure(failure)

    def _note_failure(self, error: ThreadkeepError) -> None:
        _log.warning("follower waits", reason=error.reason)
        self._metrics.failures.labels(error.reason).inc()
        # It may be another log by now.
        self._is_divided = False

    def _rest(self, share: int, has_failed: bool) -> None:
        """Leaves the share alone for a while; a replica that fails and fails lets another one have all shares."""
        rest = self._rests.setdefault(share, _Rest())
        rest.end(has_failed=has_failed)
        if rest.seconds == _MAX_REST_SECONDS:
            self._aside_until = asyncio.get_running_loop().time() + self._ttl.total_seconds()

    async def _hold(self, lease: ShareLease, progress: _Progress, hold: _Hold) -> None:
        """Follows and renews the lease, until one of them fails, or the share is let go."""
        await _first_of(
            self._consume(lease, progress),
            self._renew(lease),
            hold.is_let_go.wait(),
        )

    async def _renew(self, lease: ShareLease) -> None:
        """Prolongs the lease while there is nothing to apply. Raises ShareLost."""
        while True:
            await asyncio.sleep(self._ttl.total_seconds() / 3)
            try:
                await self._following.renew(lease)
            except Unavailable as error:
                # The lease may run out; every transaction checks it anyway.
                _log.warning("lease not renewed", reason=error.reason)

    async def _consume(self, lease: ShareLease, progress: _Progress) -> None:
        """Reads ahead, and applies what has arrived in one transaction each. Ends when the feed does."""
        frames: asyncio.Queue[LogFrame | None] = asyncio.Queue(_QUEUED_FRAMES)

        reach = self._following.reach(lease.share)

        async def read() -> None:
            feed = self._runtime.follow_log(progress.cursor, lease.partitions)
            try:
                async for frame in feed:
                    reach.hear()
                    await frames.put(frame)
            finally:
                reach.lose_feed()
                await feed.aclose()  # type: ignore[attr-defined]
            await frames.put(None)

        async def write() -> None:
            async for batch in _batches(frames, self._batch_events):
                cursor = await self._following.apply_frames(lease, progress.cursor, batch)
                progress.move(cursor)
                if frames.empty():
                    reach.be_at_end()

        reading = asyncio.ensure_future(read())
        writing = asyncio.ensure_future(write())
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_EXCEPTION)
            for task in (writing, reading):
                if task.done():
                    task.result()
        finally:
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _give_up(self, lease: ShareLease) -> None:
        try:
            await self._following.release(lease)
        except ThreadkeepError as error:
            _log.info("share not released", reason=error.reason)

    async def _leave(self) -> None:
        """Lets go of all shares, so that others need not wait for the leases to expire."""
        holds = list(self._held.values())
        for hold in holds:
            hold.is_let_go.set()
        await asyncio.gather(*(hold.task for hold in holds if hold.task is not None), return_exceptions=True)
        try:
            await self._following.leave(self.owner)
        except ThreadkeepError as error:
            _log.info("replica not taken off", reason=error.reason)


@dataclass
class _Hold:
    """A share that this replica follows."""

    is_let_go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it should stop."""
    task: asyncio.Task[None] | None = None


@dataclass
class _Rest:
    """How long a share is left alone by this replica: longer from failure to failure."""

    seconds: float = _MIN_REST_SECONDS
    until: float = 0.0
    """On the loop's clock."""

    def end(self, *, has_failed: bool) -> None:
        """What was tried has ended now."""
        self.seconds = min(self.seconds * 2, _MAX_REST_SECONDS) if has_failed else _MIN_REST_SECONDS
        self.until = asyncio.get_running_loop().time() + self.seconds


class _Progress:
    """Where this replica stands."""

    def __init__(self, cursor: bytes) -> None:
        self.cursor = cursor
        self.has_moved = False

    def move(self, cursor: bytes) -> None:
        """Takes note of a commit."""
        self.cursor = cursor
        self.has_moved = True


async def _batches(frames: asyncio.Queue[LogFrame | None], most: int) -> AsyncIterator[list[LogFrame]]:
    """What is there already, up to `most` events, at least one frame; ends after None."""
    while True:
        frame = await frames.get()
        if frame is None:
            return
        batch, count, is_last = [frame], len(frame.events), False
        while count < most and not frames.empty():
            frame = frames.get_nowait()
            if frame is None:
                is_last = True
                break
            batch.append(frame)
            count += len(frame.events)
        yield batch
        if is_last:
            return


async def _first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Runs all until one ends; the others are cancelled. Raises what the one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]
