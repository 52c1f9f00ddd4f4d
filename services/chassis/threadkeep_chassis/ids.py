"""Ids that the server assigns: UUIDv7 text (RFC 9562), growing within a process.

They sort roughly by time, which helps indexes. No order may be read from them: orders come from counter rows (X10).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


class IdFactory:
    """Makes UUIDv7 ids. Those of one factory sort strictly upwards, also when the clock stands or goes back."""

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._last_ms = 0
        self._counter = 0

    def new_id(self) -> str:
        """Returns a new id, 36 characters."""
        random = int.from_bytes(self._random_bytes(9), "big")
        with self._lock:
            ms = self._now_ms()
            if ms > self._last_ms:
                self._last_ms = ms
                # Starting below the half leaves room to count within the millisecond.
                self._counter = random & 0x7FF
            else:
                self._counter += 1
                if self._counter > 0xFFF:
                    self._last_ms += 1
                    self._counter = 0
            ms, counter = self._last_ms, self._counter
        value = (ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | (random >> 10 & (1 << 62) - 1)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_FACTORY = IdFactory()


def new_id() -> str:
    """A new id from the process's factory."""
    return _FACTORY.new_id()
