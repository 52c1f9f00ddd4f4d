"""The port of blob stores: numbered chunks under a blob id. It knows no artifacts, versions or scopes.

Which blob ids count, who may write them and when they go is decided outside, in `store/`; a blob store obeys.
"""

from __future__ import annotations

from typing import Protocol


class BlobStore(Protocol):
    """Keeps chunks of bytes. Every call is short and stands alone; nothing is held between calls."""

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """Keeps a chunk for good before it returns. Writing the same chunk again changes nothing.

        Raises DatabaseUnavailable, or CommitUnknown; both may be retried.
        """
        ...

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """The chunk as it was written, or None if there is none. Raises DatabaseUnavailable."""
        ...

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """Removes up to `at_most` chunks of the blob and says how many; fewer than `at_most`: none is left."""
        ...
