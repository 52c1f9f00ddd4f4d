"""The blob store that lies in the service's own database: a row per chunk."""

from __future__ import annotations

import sqlalchemy as sa

from threadkeep_artifacts.tables import blob_chunks
from threadkeep_chassis.database import Connection, Database, insert_or_ignore

_WRITE = insert_or_ignore(blob_chunks, ["blob_id", "chunk_index"])
_READ = sa.select(blob_chunks.c.content).where(
    blob_chunks.c.blob_id == sa.bindparam("blob"), blob_chunks.c.chunk_index == sa.bindparam("index")
)
_INDEXES = (
    sa.select(blob_chunks.c.chunk_index)
    .where(blob_chunks.c.blob_id == sa.bindparam("blob"))
    .order_by(blob_chunks.c.chunk_index)
    .limit(sa.bindparam("at_most"))
)
_REMOVE = sa.delete(blob_chunks).where(
    blob_chunks.c.blob_id == sa.bindparam("blob"),
    blob_chunks.c.chunk_index.in_(sa.bindparam("indexes", expanding=True)),
)


class DatabaseBlobs:
    """Implements `BlobStore`. Each call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """See the port."""

        async def work(connection: Connection) -> None:
            await connection.execute(_WRITE, {"blob_id": blob_id, "chunk_index": index, "content": content})

        await self._database.retrying(work)

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """See the port."""
        async with self._database.read() as connection:
            content = await connection.scalar(_READ, {"blob": blob_id, "index": index})
        return None if content is None else bytes(content)

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """See the port."""

        async def work(connection: Connection) -> int:
            rows = await connection.execute(_INDEXES, {"blob": blob_id, "at_most": at_most})
            indexes = [row.chunk_index for row in rows]
            if indexes:
                await connection.execute(_REMOVE, {"blob": blob_id, "indexes": indexes})
            return len(indexes)

        return await self._database.retrying(work)
