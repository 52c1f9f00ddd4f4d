"""Digests of large pieces, in a thread: hashing lets go of the interpreter, so that streams go on meanwhile."""

from __future__ import annotations

import asyncio
import hashlib

_LARGE = 64 * 1024


async def sha256_aside(content: bytes) -> bytes:
    """The SHA-256, 32 bytes."""
    if len(content) < _LARGE:
        return hashlib.sha256(content).digest()
    return await asyncio.to_thread(lambda: hashlib.sha256(content).digest())
