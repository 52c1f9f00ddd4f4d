"""The blob store that lies in an S3-compatible bucket: an object per chunk, written with a condition, read privately.

No object is larger than a chunk, so every write is one atomic request: no multipart upload is ever left unfinished,
which no list would show.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import S3Config

from threadkeep_artifacts.domain.content import unbroken
from threadkeep_artifacts.domain.errors import ChunkTaken, ContentStoreUnavailable

CHUNK_BYTES = 4 * 1024 * 1024


class BucketBlobs:
    """Implements `BlobStore`."""

    chunk_bytes = CHUNK_BYTES

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        """Credentials come from the environment, as AWS's own tools take them. An `http:` endpoint is taken as such."""
        config: S3Config = {"conditional_put": "etag"}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if region is not None:
            config["region"] = region
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._store = S3Store(
            bucket,
            config=config,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http:"),
                "timeout": timedelta(seconds=timeout_seconds),
            },
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_seconds)},
        )

    async def start(self) -> None:
        """See the port: lists what no blob has, which shows whether the bucket is there and ours."""
        async with _told():
            await self._listed("none/", 1)

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """See the port."""
        key = self._folder(blob_id) + _name(index)
        async with _told():
            try:
                await obstore.put_async(self._store, key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                if await self._read(key) != content:
                    raise ChunkTaken() from None

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """See the port."""
        async with _told():
            return await self._read(self._folder(blob_id) + _name(index))

    async def sign_chunks(self, blob_id: str, indexes: Sequence[int], seconds: float) -> Sequence[str]:
        """See the port."""
        keys = [self._folder(blob_id) + _name(index) for index in indexes]
        async with _told():
            return await obstore.sign_async(self._store, "GET", keys, timedelta(seconds=seconds)) if keys else []

    async def count_chunks(self, blob_id: str) -> int:
        """See the port."""
        async with _told():
            keys = await self._listed(self._folder(blob_id), None)
        return unbroken(int(key.rsplit("/", 1)[1]) for key in sorted(keys))

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """See the port."""
        async with _told():
            keys = await self._listed(self._folder(blob_id), at_most)
            if keys:
                await obstore.delete_async(self._store, keys)
        return len(keys)

    async def _read(self, key: str) -> bytes | None:
        try:
            answer = await obstore.get_async(self._store, key)
            return bytes(await answer.bytes_async())
        except FileNotFoundError:
            return None

    async def _listed(self, folder: str, at_most: int | None) -> list[str]:
        found: list[str] = []
        async for batch in obstore.list(self._store, prefix=folder, chunk_size=at_most or 1000):
            found += [one["path"] for one in batch]
            if at_most is not None and len(found) >= at_most:
                return found[:at_most]
        return found

    def _folder(self, blob_id: str) -> str:
        # Spread by a digest: buckets scale by prefix, and no caller's text gets into a key.
        digest = hashlib.sha256(blob_id.encode()).hexdigest()
        return f"{self._prefix}{digest[:2]}/{digest}/"


def _name(index: int) -> str:
    return f"{index:08d}"


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """Turns what the bucket's client raises into our error, without texts that may hold keys or addresses."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise ContentStoreUnavailable("bucket", type(error).__name__) from error
