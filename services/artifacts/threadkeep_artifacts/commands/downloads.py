"""Downloads: a version's content from an offset on, verified as it is read (A3). No transaction outlives a chunk."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.commands.digests import Aside, sha256_aside
from threadkeep_artifacts.domain.content import ReadPlan, Slice, plan_read
from threadkeep_artifacts.domain.errors import ArtifactNotFound
from threadkeep_artifacts.domain.values import ArtifactVersion, StoredContent
from threadkeep_artifacts.domain.visibility import OPERATOR, Reader
from threadkeep_artifacts.store import versions
from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import CorruptContent, FieldInvalid

FRAME_BYTES = 1024 * 1024
"""The largest frame of a download."""

_MOST_PROVEN = 10_000


class Downloads:
    """Serves content."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs
        self._proven = _Proven()

    async def open(
        self, scope_key: str, reader: Reader, artifact_id: str, version: int, offset: int, length: int
    ) -> tuple[ArtifactVersion, ReadPlan]:
        """The version (0: the latest) and what to read of it (`length` 0: to the end).

        Raises ArtifactNotFound, OffsetOutOfRange, FieldInvalid.
        """
        for name, value in (("version", version), ("offset", offset), ("length", length)):
            if value < 0:
                raise FieldInvalid(name, "must not be negative")
        async with self._database.read() as connection:
            found = await versions.read_version_and_content(connection, scope_key, reader, artifact_id, version)
        if found is None:
            raise ArtifactNotFound()
        return found[0], plan_read(found[1], offset, length)

    async def read(self, scope_key: str, version: ArtifactVersion, plan: ReadPlan) -> AsyncIterator[bytes]:
        """Yields the bytes of the plan, at most FRAME_BYTES at a time. A chunk is verified before any of it is given.

        Raises CorruptContent; ArtifactNotFound if the artifact was deleted so long ago that its content is gone.
        """
        content = plan.content
        whole = None if not plan.is_whole or self._proven.holds(content) else Aside(hashlib.sha256())
        parts = plan.slices()
        part = next(parts, None)
        coming = self._begin(content, part)
        try:
            while part is not None and coming is not None:
                chunk, digest = await coming
                following = next(parts, None)
                # Read ahead by one, so that the store works while the client takes what it has.
                coming = self._begin(content, following)
                if chunk is None:
                    await self._check_still_there(scope_key, version)
                    raise _corrupt(content.sha256, part.index, "is missing")
                if digest != content.chunk_digest(part.index):
                    raise _corrupt(content.sha256, part.index, "does not have its digest")
                if whole is not None:
                    await whole.update(chunk)
                for start in range(part.start, part.stop, FRAME_BYTES):
                    stop = min(part.stop, start + FRAME_BYTES)
                    yield chunk if stop - start == len(chunk) else chunk[start:stop]
                part = following
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
        if whole is None:
            return
        if await whole.hexdigest() == content.sha256:
            self._proven.note(content)
        else:
            raise CorruptContent(
                f"The content with SHA-256 {content.sha256} is damaged as a whole; restore it from a backup.",
                metadata={"sha256": content.sha256},
            )

    def _begin(self, content: StoredContent, part: Slice | None) -> asyncio.Task[tuple[bytes | None, bytes]] | None:
        return None if part is None else asyncio.create_task(self._read(content.blob_id, part.index))

    async def _read(self, blob_id: str, index: int) -> tuple[bytes | None, bytes]:
        """A chunk and its digest."""
        chunk = await self._blobs.read_chunk(blob_id, index)
        return chunk, b"" if chunk is None else await sha256_aside(chunk)

    async def _check_still_there(self, scope_key: str, version: ArtifactVersion) -> None:
        async with self._database.read() as connection:
            found = await versions.read_version(connection, scope_key, OPERATOR, version.artifact_id, version.version)
        if found is None:
            raise ArtifactNotFound()


class _Proven:
    """Contents whose chunk digests are known to make up the digest of the whole.

    Who verifies every chunk of such a content has verified the whole, and need not hash it twice.
    """

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def note(self, content: StoredContent) -> None:
        """All chunks were verified, and the whole too."""
        if len(self._digests) >= _MOST_PROVEN:
            self._digests.clear()
        self._digests[content.blob_id] = _identity(content)

    def holds(self, content: StoredContent) -> bool:
        """True if exactly this content was noted, with exactly these digests."""
        return self._digests.get(content.blob_id) == _identity(content)


def _identity(content: StoredContent) -> bytes:
    facts = f"{content.sha256}:{content.size}:{content.chunk_bytes}:".encode()
    return hashlib.sha256(facts + content.chunk_digests).digest()


def _corrupt(sha256: str, index: int, what: str) -> CorruptContent:
    return CorruptContent(
        f"The content with SHA-256 {sha256} is damaged: chunk {index} {what}; restore it from a backup.",
        metadata={"sha256": sha256, "chunk": str(index)},
    )
