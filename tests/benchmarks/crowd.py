"""Many streams that are read all the time, by a reader that costs as little as can be: it looks for a mark in bytes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

_SECONDS = 120.0
"""How long a message may take to reach all; beyond that the case fails instead of waiting."""


class Crowd:
    """Streams of one kind, whose messages are raw bytes."""

    def __init__(self) -> None:
        self._readers: list[asyncio.Task[None]] = []
        self._mark = b"\x00no mark yet"
        self._missing = 0
        self._complete = asyncio.Event()

    @property
    def size(self) -> int:
        """How many streams there are."""
        return len(self._readers)

    async def join(self, call: Any) -> None:
        """Takes a call in, once it gave its first message."""
        frames = aiter(call)
        await anext(frames)
        self._readers.append(asyncio.create_task(self._read(frames)))

    async def rate(self, rounds: int, send: Callable[[bytes], Awaitable[object]]) -> float:
        """Messages per second that reach all streams when `send` sends one with the given mark, again and again."""
        started = time.perf_counter()
        for number in range(rounds):
            self._mark = f"mark-{number}-{started}-end".encode()
            self._missing = self.size
            self._complete.clear()
            await send(self._mark)
            async with asyncio.timeout(_SECONDS):
                await self._complete.wait()
        return rounds * self.size / (time.perf_counter() - started)

    async def leave(self) -> None:
        """Ends all of them."""
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read(self, frames: Any) -> None:
        async for frame in frames:
            if self._mark in frame:
                self._missing -= 1
                if self._missing == 0:
                    self._complete.set()
