"""Digests of large pieces, in a thread: hashing lets go of the interpreter, so that streams go on meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

_LARGE = 64 * 1024


async def sha256_aside(content: bytes) -> bytes:
    """The SHA-256, 32 bytes."""
    if len(content) < _LARGE:
        return hashlib.sha256(content).digest()
    return await asyncio.to_thread(lambda: hashlib.sha256(content).digest())


class Aside:
    """A running digest that is one piece behind: the thread hashes while the caller goes on."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest
        self._hashing: asyncio.Future[None] | None = None

    async def update(self, content: bytes) -> None:
        """Takes a piece, once the one before is done."""
        await self._settled()
        if len(content) < _LARGE:
            self._digest.update(content)
        else:
            self._hashing = asyncio.ensure_future(asyncio.to_thread(self._digest.update, content))

    async def hexdigest(self) -> str:
        """The digest of all pieces."""
        await self._settled()
        return str(self._digest.hexdigest())

    async def _settled(self) -> None:
        hashing, self._hashing = self._hashing, None
        if hashing is not None:
            await hashing
