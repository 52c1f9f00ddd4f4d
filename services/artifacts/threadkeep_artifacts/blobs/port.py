"""The port of blob stores: numbered chunks under a blob id. It knows no artifacts, versions or scopes.

Which blob ids count, who may write them and when they go is decided outside, in `store/`; a blob store obeys. Every
adapter passes one suite (`tests/store/artifacts/test_blob_stores.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class BlobStore(Protocol):
    """Keeps chunks of bytes. Every call stands alone; nothing is held between calls."""

    @property
    def chunk_bytes(self) -> int:
        """How content is cut for this store. The last chunk of a blob may be shorter."""
        ...

    async def start(self) -> None:
        """Makes sure that content can be kept. Raises ContentStoreUnavailable, DatabaseUnavailable."""
        ...

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """Keeps a chunk for good before it returns. Nobody ever sees a part of it.

        The first writer of a chunk wins: the same bytes again change nothing, others raise ChunkTaken. Raises
        DatabaseUnavailable, CommitUnknown or ContentStoreUnavailable; all three may be retried.
        """
        ...

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """The chunk as it lies there, or None if there is none. Raises DatabaseUnavailable, ContentStoreUnavailable."""
        ...

    async def sign_chunks(self, blob_id: str, indexes: Sequence[int], seconds: float) -> Sequence[str] | None:
        """An address for each of these chunks that anybody can read it from for so long; None if the store gives none.

        Raises ContentStoreUnavailable.
        """
        ...

    async def count_chunks(self, blob_id: str) -> int:
        """How many chunks there are from the first on, without a gap. Raises as `read_chunk`."""
        ...

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """Removes up to `at_most` chunks of the blob and says how many; fewer than `at_most`: none is left.

        What a writer that died had begun goes with them. Raises as `read_chunk`.
        """
        ...
