"""When to try again what failed: later each time, by key. It knows nothing of what is tried."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from threadkeep_chassis.clock import Clock

FIRST_SECONDS = 1.0
MOST_SECONDS = 60.0
MOST_KEYS = 10_000


class Backoff:
    """The failures of keys. It remembers a bounded number: the one that failed longest ago is forgotten first."""

    def __init__(self, clock: Clock, most_keys: int = MOST_KEYS) -> None:
        self._clock = clock
        self._most_keys = most_keys
        self._waits: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """By key: the wait in seconds, and when it is over."""

    def is_ready(self, key: Hashable) -> bool:
        """True unless the key failed and its wait is not over."""
        wait = self._waits.get(key)
        return wait is None or self._clock.monotonic() >= wait[1]

    def failed(self, key: Hashable) -> None:
        """Puts the next attempt off: a second, and twice as long each time, up to a minute."""
        before = self._waits.pop(key, None)
        seconds = FIRST_SECONDS if before is None else min(before[0] * 2, MOST_SECONDS)
        self._waits[key] = (seconds, self._clock.monotonic() + seconds)
        if len(self._waits) > self._most_keys:
            self._waits.popitem(last=False)

    def succeeded(self, key: Hashable) -> None:
        """Forgets the key's failures."""
        self._waits.pop(key, None)
