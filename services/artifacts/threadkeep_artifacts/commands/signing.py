"""Gives addresses from which content can be had without this server, where the operator allows it."""

from __future__ import annotations

from datetime import timedelta

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.domain.values import SignedDownload, SignedPart
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_chassis.clock import Clock

PARTS_AT_ONCE = 256


class Signing:
    """Signs downloads."""

    def __init__(self, downloads: Downloads, blobs: BlobStore, clock: Clock, *, signed_seconds: float) -> None:
        """`signed_seconds`: how long an address is good; 0: there are none."""
        self._downloads = downloads
        self._blobs = blobs
        self._clock = clock
        self._seconds = signed_seconds

    async def sign(
        self, scope_key: str, reader: Reader, artifact_id: str, version: int, first_part: int
    ) -> SignedDownload:
        """Some of the version's parts, from `first_part` on. Raises ArtifactNotFound, ContentStoreUnavailable."""
        found, plan = await self._downloads.open(scope_key, reader, artifact_id, version, 0, 0)
        content = plan.content
        indexes = range(first_part, min(content.chunk_count, first_part + PARTS_AT_ONCE))
        expire_time = self._clock.now() + timedelta(seconds=self._seconds)
        urls = await self._blobs.sign_chunks(content.blob_id, indexes, self._seconds) if self._seconds else None
        if not urls:
            return SignedDownload(found)
        parts = [
            SignedPart(
                url,
                min(content.chunk_bytes, content.size - index * content.chunk_bytes),
                content.chunk_digest(index).hex(),
            )
            for index, url in zip(indexes, urls, strict=True)
        ]
        return SignedDownload(found, parts, indexes.stop if indexes.stop < content.chunk_count else 0, expire_time)
