"""Cuts a stream of bytes into chunks of one size and digests them; plans which chunks a read needs. Pure and flat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from threadkeep_artifacts.domain.errors import OffsetOutOfRange, UploadMismatch
from threadkeep_artifacts.domain.media_types import HEAD_BYTES
from threadkeep_artifacts.domain.values import ContentClaim, StoredContent


class Assembler:
    """Takes pieces of any size and gives chunks of exactly `chunk_bytes`; holds less than one chunk between calls."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._pieces: list[bytes] = []
        self._held = 0
        self._count = 0
        self.size = 0
        """How many bytes were taken."""
        self.head = b""
        """The first bytes, for `media_types.detect`."""

    def take(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Takes a piece; yields the chunks that it completes, as (index, bytes). Exhaust it before the next call."""
        if self.size < HEAD_BYTES:
            self.head += piece[: HEAD_BYTES - self.size]
        self.size += len(piece)
        self._pieces.append(piece)
        self._held += len(piece)
        while self._held >= self._chunk_bytes:
            held = b"".join(self._pieces)
            rest = held[self._chunk_bytes :]
            self._pieces, self._held = [rest], len(rest)
            yield self._cut(held[: self._chunk_bytes])

    def last(self) -> Iterator[tuple[int, bytes]]:
        """Yields the last, shorter chunk, if there is one. Nothing may be taken afterwards."""
        if self._held:
            chunk = b"".join(self._pieces)
            self._pieces, self._held = [], 0
            yield self._cut(chunk)

    def content(self, blob_id: str, sha256: str, chunk_digests: bytes) -> StoredContent:
        """What was taken, after `last`; with the digest of the whole, and of each chunk (32 bytes each)."""
        return StoredContent(blob_id, self.size, sha256, self._chunk_bytes, chunk_digests)

    def _cut(self, chunk: bytes) -> tuple[int, bytes]:
        self._count += 1
        return self._count - 1, chunk


def check_claim(content: StoredContent, claim: ContentClaim) -> None:
    """Raises UploadMismatch if the content is not what the trailer announced."""
    if content.size != claim.size:
        raise UploadMismatch("size", claim.size, content.size)
    if content.sha256 != claim.sha256:
        raise UploadMismatch("sha256", claim.sha256, content.sha256)


@dataclass(frozen=True)
class Slice:
    """The part of a chunk that a read wants: `chunk[start:stop]`."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class ReadPlan:
    """Which bytes a read wants: `offset` to `end`, exclusive."""

    content: StoredContent
    offset: int
    end: int

    @property
    def is_whole(self) -> bool:
        """True if every byte is read, so that the whole digest can be verified too."""
        return self.offset == 0 and self.end == self.content.size

    def slices(self) -> Iterator[Slice]:
        """The chunks to read, in order."""
        size = self.content.chunk_bytes
        at = self.offset
        while at < self.end:
            index = at // size
            stop = min(self.end - index * size, size)
            yield Slice(index, at - index * size, stop)
            at = index * size + stop


def plan_read(content: StoredContent, offset: int, length: int) -> ReadPlan:
    """The plan for `length` bytes (0: all) from `offset`. Raises OffsetOutOfRange; the very end is in range."""
    if offset > content.size:
        raise OffsetOutOfRange(offset, content.size)
    end = content.size if length == 0 else min(content.size, offset + length)
    return ReadPlan(content, offset, end)


def unbroken(indexes: Iterable[int]) -> int:
    """How many of the sorted indexes count up from 0 without a gap."""
    count = 0
    for index in indexes:
        if index != count:
            break
        count += 1
    return count
