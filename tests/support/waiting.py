"""Waits for a condition with a deadline; the only way in which tests wait."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
"""Long, because a busy machine must never fail a test; a passing test does not wait that long."""


async def eventually(
    condition: Callable[[], T | Awaitable[T]], timeout: float = PATIENCE_SECONDS, interval: float = 0.01
) -> T:
    """Calls `condition` (sync or async) until it gives something true, and returns that.

    An AssertionError inside the condition counts as "not yet". Raises AssertionError after `timeout` seconds, with the
    last one as its cause.
    """
    deadline = time.monotonic() + timeout
    while True:
        last: object = None
        try:
            answer = condition()
            last = await answer if inspect.isawaitable(answer) else answer
            if last:
                return last  # type: ignore[return-value]
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            cause = last if isinstance(last, AssertionError) else None
            raise AssertionError(f"not so within {timeout} s; the last answer was {last!r}") from cause
        await asyncio.sleep(interval)
