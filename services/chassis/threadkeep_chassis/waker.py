"""Wakes one waiter. An asyncio.Event with a timeout costs 1.5 KB, and there is one for each idle reader."""

from __future__ import annotations

import asyncio


class Waker:
    """Set by anyone, waited for by one."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Something happened."""
        self._is_set = True
        if self._waiter is not None:
            _release(self._waiter)

    async def wait(self, seconds: float) -> None:
        """Returns once something happened since it last returned for that reason, or after so many seconds."""
        if not self._is_set:
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = loop.call_later(max(0.0, seconds), _release, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._is_set = False


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
