"""One upload's staged blob: declared, shown to be alive while the client sends, and given to the sweep unless kept."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.commands.digests import Aside, sha256_aside
from threadkeep_artifacts.domain.errors import UploadAbandoned
from threadkeep_artifacts.store import contents
from threadkeep_chassis.clock import Clock
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import ThreadkeepError, Unavailable
from threadkeep_chassis.ids import new_id

WRITES_AT_ONCE = 3
"""Chunks of one upload that are on their way to the blob store at once."""

_log = structlog.get_logger("threadkeep.artifacts")


class Stage:
    """Where an upload's chunks go before they count."""

    def __init__(
        self, database: Database, blobs: BlobStore, clock: Clock, blob_id: str, holder: str, ttl_seconds: float
    ) -> None:
        self.blob_id = blob_id
        self.holder = holder
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._touch_after = ttl_seconds / 4
        self._touched = clock.monotonic()
        self._lost = False
        self._writes: deque[asyncio.Task[bytes]] = deque()
        self._whole = Aside(hashlib.sha256())
        self.chunk_digests = bytearray()
        """SHA-256 of each chunk that is kept, in order."""

    async def write(self, index: int, content: bytes) -> None:
        """Begins to keep a chunk; waits while more than a few are under way. Raises what an earlier one met, and
        UploadAbandoned if the sweep gave the upload up.
        """
        # Also here, not only in the background: after a long stop of this process the write must not come first.
        if self._clock.monotonic() - self._touched >= self._touch_after:
            await self.touch()
        if self._lost:
            raise UploadAbandoned()
        while len(self._writes) >= WRITES_AT_ONCE:
            await self._one_written()
        self._writes.append(asyncio.create_task(self._keep(index, content)))
        await self._whole.update(content)

    async def adopt(self, content: bytes) -> None:
        """Takes note of the next chunk, which an earlier stream of the upload kept."""
        self.chunk_digests += await sha256_aside(content)
        await self._whole.update(content)

    async def sha256(self) -> str:
        """The digest of all chunks together."""
        return await self._whole.hexdigest()

    async def written(self) -> None:
        """Waits until every chunk is kept for good. Raises as `write`."""
        while self._writes:
            await self._one_written()

    async def at_rest(self) -> None:
        """Waits until nothing is written any more, whatever becomes of it: only then may the sweep have the chunks."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _one_written(self) -> None:
        # Not cancelled with the upload: a write that ended after the sweep came by would never be found again.
        self.chunk_digests += await asyncio.shield(self._writes[0])
        self._writes.popleft()

    async def _keep(self, index: int, content: bytes) -> bytes:
        digesting = asyncio.create_task(sha256_aside(content))
        try:
            await self._blobs.write_chunk(self.blob_id, index, content)
        finally:
            await asyncio.wait([digesting])
        return digesting.result()

    async def touch(self) -> None:
        """Shows that the upload lives."""
        asked = self._clock.monotonic()

        async def work(connection: Connection) -> bool:
            return await contents.touch_stage(connection, self.blob_id, self.holder, await connection.now())

        self._lost = not await self._database.retrying(work)
        self._touched = asked

    async def keep_alive(self) -> None:
        """Touches again and again, however slow the client is, until cancelled or lost."""
        while not self._lost:
            await self._clock.sleep(self._touch_after)
            try:
                await self.touch()
            except Unavailable as error:
                _log.warning("staged upload not touched", reason=error.reason)


@asynccontextmanager
async def staging(
    database: Database,
    blobs: BlobStore,
    clock: Clock,
    ttl_seconds: float,
    open_: Callable[[Connection, str], Awaitable[str]],
    survives: Callable[[BaseException], bool] = lambda _: False,
) -> AsyncIterator[Stage]:
    """A stage for the block. What the block does not make content of (`contents.close_stage`) goes to the sweep, unless
    it `survives` the error, so that another stream can go on.

    `open_` gets a transaction and a fresh holder, opens or takes over a staged blob for it, and gives the blob's id.
    """
    holder = new_id()

    async def opened(connection: Connection) -> str:
        return await open_(connection, holder)

    async def drop(connection: Connection) -> None:
        await contents.drop_stage(connection, stage.blob_id, holder, await connection.now())

    async def clean_up(keep: bool) -> None:
        await stage.at_rest()
        if keep:
            return
        try:
            await database.retrying(drop)
        except ThreadkeepError as error:
            # The sweep finds it when its time is over.
            _log.warning("staged upload not dropped", reason=error.reason)

    stage = Stage(database, blobs, clock, await database.retrying(opened), holder, ttl_seconds)
    alive = asyncio.create_task(stage.keep_alive(), name="artifacts-upload-alive")
    keep = False
    try:
        yield stage
    except BaseException as error:
        keep = survives(error)
        raise
    finally:
        alive.cancel()
        await asyncio.gather(alive, return_exceptions=True)
        cleaning = asyncio.ensure_future(clean_up(keep))
        try:
            await asyncio.shield(cleaning)
        except asyncio.CancelledError:
            # The client is gone; the clean-up is finished nevertheless.
            await asyncio.wait([cleaning])
            raise
