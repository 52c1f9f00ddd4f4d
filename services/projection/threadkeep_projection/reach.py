"""How far the log is known to be in, and how long ago that was: the lag (P5)."""

from __future__ import annotations

import time
from datetime import datetime

from threadkeep_chassis.clock import Clock

SILENCE_SECONDS = 30.0
"""A feed that is at the log's end and says nothing for so long may be broken: the lag then grows."""


class Reach:
    """What this replica's follower has reached. While it is at the end of a feed that lives, that is now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reached: datetime | None = None
        self._is_at_end = False
        self._heard_at = 0.0
        self._is_following = False

    def begin(self, reached: datetime | None) -> None:
        """This replica follows from now on, from where the share stands."""
        self._is_following, self._reached, self._is_at_end = True, reached, False

    def move(self, reached: datetime) -> None:
        """Everything up to that time is in."""
        self._reached = reached if self._reached is None else max(reached, self._reached)

    def hear(self) -> None:
        """The feed said something, which is still to be applied."""
        self._heard_at, self._is_at_end = time.monotonic(), False

    def be_at_end(self) -> None:
        """All that the feed said is in."""
        self._is_at_end = True
        self._reached = self._clock.now()

    def lose_feed(self) -> None:
        """The feed broke: what is committed from now on is not heard of."""
        self._reached, self._is_at_end = self.now(), False

    def end(self) -> None:
        """Another replica follows, and says how far it is."""
        self._is_following = False

    def now(self) -> datetime | None:
        """Everything committed before is in; None: nothing is known."""
        if self._is_at_end and time.monotonic() - self._heard_at < SILENCE_SECONDS:
            self._reached = self._clock.now()
        return self._reached

    def lag_seconds(self) -> float:
        """How long ago that was; 0 where another replica follows, or nothing was read yet."""
        reached = self.now()
        if not self._is_following or reached is None:
            return 0.0
        return max(0.0, (self._clock.now() - reached).total_seconds())
