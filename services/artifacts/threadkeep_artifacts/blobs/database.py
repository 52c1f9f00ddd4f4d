"""The blob store that lies in the service's own database: a row per chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import sqlalchemy as sa

from threadkeep_artifacts.domain.content import unbroken
from threadkeep_artifacts.domain.errors import ChunkTaken
from threadkeep_artifacts.tables import blob_chunks
from threadkeep_chassis.database import Connection, Database, insert_or_ignore

CHUNK_BYTES = 1024 * 1024

_WRITE = insert_or_ignore(blob_chunks, ["blob_id", "chunk_index"]).returning(blob_chunks.c.chunk_index)
_READ = sa.select(blob_chunks.c.content).where(
    blob_chunks.c.blob_id == sa.bindparam("blob"), blob_chunks.c.chunk_index == sa.bindparam("index")
)
_INDEXES = (
    sa.select(blob_chunks.c.chunk_index)
    .where(blob_chunks.c.blob_id == sa.bindparam("blob"))
    .order_by(blob_chunks.c.chunk_index)
)
_REMOVE = sa.delete(blob_chunks).where(
    blob_chunks.c.blob_id == sa.bindparam("blob"),
    blob_chunks.c.chunk_index.in_(sa.bindparam("indexes", expanding=True)),
)


class DatabaseBlobs:
    """Implements `BlobStore`. Each call is one transaction."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, database: Database) -> None:
        self._database = database
        # Content leaves sessions to everything else, however many streams there are.
        self._turns = asyncio.Semaphore(max(1, database.settings.pool_size // 2))

    async def start(self) -> None:
        """See the port. The database was opened before."""

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """See the port."""

        async def work(connection: Connection) -> bool:
            row = {"blob_id": blob_id, "chunk_index": index, "content": content}
            if (await connection.execute(_WRITE, row)).first() is not None:
                return True
            kept = await connection.scalar(_READ, {"blob": blob_id, "index": index})
            return kept is not None and bytes(kept) == content

        async with self._turns:
            kept = await self._database.retrying(work)
        if not kept:
            raise ChunkTaken()

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """See the port."""
        async with self._turns, self._database.read() as connection:
            content = await connection.scalar(_READ, {"blob": blob_id, "index": index})
        return None if content is None else bytes(content)

    async def sign_chunks(self, blob_id: str, indexes: Sequence[int], seconds: float) -> None:
        """See the port: there are no addresses."""

    async def count_chunks(self, blob_id: str) -> int:
        """See the port."""
        async with self._database.read() as connection:
            rows = await connection.execute(_INDEXES, {"blob": blob_id})
        return unbroken(row.chunk_index for row in rows)

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """See the port."""

        async def work(connection: Connection) -> int:
            rows = await connection.execute(_INDEXES.limit(at_most), {"blob": blob_id})
            indexes = [row.chunk_index for row in rows]
            if indexes:
                await connection.execute(_REMOVE, {"blob": blob_id, "indexes": indexes})
            return len(indexes)

        return await self._database.retrying(work)
