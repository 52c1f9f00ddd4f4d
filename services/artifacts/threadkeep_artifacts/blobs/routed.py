"""One blob store before several: new content goes to the chosen one, old content stays where its blob id says.

So a server whose setting was changed still reads what was kept before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.domain.errors import ContentStoreUnavailable

_NAMES = {"": "database", "dir": "directory", "s3": "bucket"}
"""What a blob id begins with, before its colon, and whose content that is."""


class RoutedBlobs:
    """Implements `BlobStore`; blob ids come from `blob_id`."""

    def __init__(self, chosen: str, stores: Mapping[str, BlobStore]) -> None:
        """`stores` by name: database, directory, bucket. Raises KeyError if the chosen one is none of them."""
        self._chosen = stores[chosen]
        self._mark = next(mark for mark, name in _NAMES.items() if name == chosen)
        self._stores = stores

    @property
    def chunk_bytes(self) -> int:
        """See the port: of new content."""
        return self._chosen.chunk_bytes

    def blob_id(self, fresh_id: str) -> str:
        """A blob id that leads to the chosen store."""
        return f"{self._mark}:{fresh_id}" if self._mark else fresh_id

    def chunk_bytes_of(self, blob_id: str) -> int:
        """How content of that blob id is cut."""
        return self._of(blob_id).chunk_bytes

    async def start(self) -> None:
        """See the port."""
        for store in self._stores.values():
            await store.start()

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """See the port."""
        await self._of(blob_id).write_chunk(blob_id, index, content)

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """See the port."""
        return await self._of(blob_id).read_chunk(blob_id, index)

    async def sign_chunks(self, blob_id: str, indexes: Sequence[int], seconds: float) -> Sequence[str] | None:
        """See the port."""
        return await self._of(blob_id).sign_chunks(blob_id, indexes, seconds)

    async def count_chunks(self, blob_id: str) -> int:
        """See the port."""
        return await self._of(blob_id).count_chunks(blob_id)

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """See the port."""
        return await self._of(blob_id).remove_chunks(blob_id, at_most)

    def _of(self, blob_id: str) -> BlobStore:
        mark, separator, _ = blob_id.partition(":")
        name = _NAMES[mark if separator else ""]
        store = self._stores.get(name)
        if store is None:
            raise ContentStoreUnavailable(name, "this server is not set to use it")
        return store
