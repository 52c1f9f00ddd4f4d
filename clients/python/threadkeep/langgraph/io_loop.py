"""An event loop in a thread of its own, for what must go on while user code blocks: commits and heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class IoLoop:
    """Starts when made. Work is handed to it from any thread; `close` ends it when its work is done or cancelled."""

    def __init__(self, name: str = "threadkeep-io") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @property
    def is_current(self) -> bool:
        """True on the loop's own thread, where nothing may wait for the loop."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Calls on the loop, soon. A closed loop calls nothing any more."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Calls on the loop, after some seconds."""
        self.call_soon(self._loop.call_later, seconds, callback, *args)

    def close(self, timeout: float = 5.0) -> None:
        """Cancels what still runs, and ends the thread."""
        if self._thread.is_alive() and not self.is_current:
            done = self.run(self._cancel_all())
            try:
                done.result(timeout)
            finally:
                self.call_soon(self._loop.stop)
                self._thread.join(timeout)

    async def _cancel_all(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
