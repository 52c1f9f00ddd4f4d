"""What waits for one reader: a bounded queue of committed events, and a bounded one of live observations.

Events are never lost here: a queue that overflows is emptied, and its reader goes back to the log. Observations are
dropped, and a gap says how many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from threadkeep_runtime.store.events_read import EventRow


class Sink:
    """The committed events that reached the tail since the reader was last at the log."""

    __slots__ = (
        "_bytes",
        "_max_bytes",
        "_max_events",
        "_rows",
        "_wake",
        "_wants",
        "overflowed",
        "passed_sequence",
    )

    def __init__(
        self, wake: Callable[[], None], wants: Callable[[EventRow], bool], max_events: int, max_bytes: int
    ) -> None:
        self._wake = wake
        self._wants = wants
        self._max_events = max_events
        self._max_bytes = max_bytes
        # An empty deque takes 760 bytes, and nearly all readers are idle.
        self._rows: deque[EventRow] | None = None
        self._bytes = 0
        self.overflowed = False
        """True once events were let go; the reader must read the log again."""
        self.passed_sequence = 0
        """Thread sequence of the last event that came by, wanted or not."""

    def __len__(self) -> int:
        return len(self._rows or ())

    def offer(self, row: EventRow) -> None:
        """Takes an event if it is wanted. Never blocks."""
        if self.overflowed:
            return
        self.passed_sequence = row.sequence
        if not self._wants(row):
            return
        if len(self) >= self._max_events or (self._rows and self._bytes + row.size > self._max_bytes):
            self.overflowed = True
            self._rows = None
            self._bytes = 0
        else:
            if self._rows is None:
                self._rows = deque()
            self._rows.append(row)
            self._bytes += row.size
        self._wake()

    def restart(self) -> None:
        """Collects again. Call it before the log is read, so that nothing falls in between."""
        self.overflowed = False
        self.passed_sequence = 0
        self._rows = None
        self._bytes = 0

    def take(self, max_events: int, max_bytes: int) -> list[EventRow]:
        """The next events, up to a number and about a size; at least one if there is any."""
        taken: list[EventRow] = []
        size = 0
        while self._rows and len(taken) < max_events and (not taken or size + self._rows[0].size <= max_bytes):
            row = self._rows.popleft()
            size += row.size
            taken.append(row)
        self._bytes -= size
        if not self._rows:
            self._rows = None
        return taken


class Observation(NamedTuple):
    """A live observation on its way to readers."""

    scope_key: str
    scope: Mapping[str, str]
    thread_key: str
    run_id: str
    task_id: str
    content: Any
    """What the reader gets, unread by us."""
    size: int
    """Bytes of the content."""


class Gap:
    """Observations were dropped here."""

    def __init__(self, count: int = 1) -> None:
        self.dropped_count = count


class LiveQueue:
    """The live observations that wait for one reader, with gaps where it was too slow."""

    __slots__ = ("_bytes", "_items", "_max_bytes", "_max_items", "_wake", "wants")

    def __init__(
        self, wake: Callable[[], None], wants: Callable[[str, str], bool], max_items: int, max_bytes: int
    ) -> None:
        """`wants` is asked with (run_id, task_id)."""
        self._wake = wake
        self.wants = wants
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[Observation | Gap] | None = None
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items or ())

    def offer(self, observation: Observation) -> bool:
        """Takes an observation, or counts it as dropped and returns False. Never blocks."""
        full = len(self) >= self._max_items or self._bytes + observation.size > self._max_bytes
        if not full or not self._items:
            if self._items is None:
                self._items = deque()
            self._items.append(observation)
            self._bytes += observation.size
            self._wake()
            return True
        self.miss(1)
        return False

    def miss(self, count: int) -> None:
        """Notes that observations are missing here. Never blocks."""
        last = self._items[-1] if self._items else None
        if isinstance(last, Gap):
            last.dropped_count += count
        else:
            # A gap costs next to nothing, so it may stand above the limit.
            if self._items is None:
                self._items = deque()
            self._items.append(Gap(count))
            self._wake()

    def take(self) -> Observation | Gap | None:
        """The next one, or None."""
        if not self._items:
            self._items = None
            return None
        item = self._items.popleft()
        if isinstance(item, Observation):
            self._bytes -= item.size
        return item
