"""The follower: consumes the runtime's log of all scopes and applies it, while this replica holds the share (P1).

It knows when to read and when to stop; what events mean is the domain's, how they are stored is the commands'.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
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

_MAX_BACKOFF_SECONDS = 2.0

_log = structlog.get_logger("threadkeep.projection")


class Follower:
    """Follows the log. One per replica; those without the share wait for it."""

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
        """How this replica signs its lease."""

    async def run(self) -> None:
        """Follows until the loops stop. Never raises for what passes by itself."""
        await self._following.prepare()
        backoff = 0.05
        while not self._loops.stopping.is_set():
            taken = await self._following.acquire(self.owner, self._ttl)
            if taken is None:
                await self._stand_by()
                continue
            lease, cursor = taken
            self._metrics.is_owner.set(1)
            self._following.reach.begin(await self._following.reach_time())
            progress = _Progress(cursor)
            try:
                await self._hold(lease, progress)
            except ShareLost:
                _log.info("share lost", epoch=lease.epoch)
            except ThreadkeepError as error:
                if error.reason in _REBUILD_REASONS and progress.cursor:
                    _log.warning("the log's past is gone; building all anew", reason=error.reason)
                    await self._rebuilding.rebuild_all()
                else:
                    _log.warning("follower waits", reason=error.reason)
                self._metrics.failures.labels(error.reason).inc()
            except Exception as error:
                self._metrics.failures.labels("INTERNAL").inc()
                _log.error("follower failed", **fault_facts(error))
            finally:
                self._metrics.is_owner.set(0)
                await self._give_up(lease)
            backoff = 0.05 if progress.has_moved else min(backoff * 2, _MAX_BACKOFF_SECONDS)
            await self._loops.pause(backoff)

    async def _stand_by(self) -> None:
        """Waits for the share: another replica has it, or it is paused."""
        if (await self._following.shares())[0][0].owner:
            self._following.reach.end()
        await _first_of(self._following.wait_for_turn(self._ttl.total_seconds() / 3), self._loops.stopping.wait())

    async def _hold(self, lease: ShareLease, progress: _Progress) -> None:
        """Follows and renews the lease, until one of them fails or the loops stop."""
        await _first_of(
            self._consume(lease, progress),
            self._renew(lease),
            self._loops.stopping.wait(),
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

        async def read() -> None:
            feed = self._runtime.follow_log(progress.cursor)
            try:
                async for frame in feed:
                    self._following.reach.hear()
                    await frames.put(frame)
            finally:
                self._following.reach.lose_feed()
                await feed.aclose()  # type: ignore[attr-defined]
            await frames.put(None)

        async def write() -> None:
            async for batch in _batches(frames, self._batch_events):
                cursor = await self._following.apply_frames(lease, progress.cursor, batch)
                progress.move(cursor)
                if frames.empty():
                    self._following.reach.be_at_end()

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
