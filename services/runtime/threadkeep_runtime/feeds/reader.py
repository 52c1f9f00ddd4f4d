"""Reads the log onward from a place, page by page, each page a read of its own: for lists, and to catch up.

The committed end is read first; then everything up to it is there to be read (R14).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from threadkeep_chassis.database import Database
from threadkeep_chassis.database import SyncConnection as Connection
from threadkeep_chassis.errors import CursorUnknown
from threadkeep_runtime.domain.errors import RunNotFound, SessionNotFound, TaskNotFound
from threadkeep_runtime.domain.feeds import RUN, SESSION, EventFilter, Extent, ThreadExtent, WideExtent
from threadkeep_runtime.feeds.cursors import FeedCursors, Place
from threadkeep_runtime.store import events_read
from threadkeep_runtime.store.events_read import EventRow, LogHead

MAX_KNOWN_SCOPES = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """What one read found."""

    rows: list[EventRow]
    """In order; in a run's or task's feed the event that ends it is among them, wanted or not."""
    index: int
    """Which number of the place moves: the partition, or 0 in a feed of one thread."""
    upto: int
    """Where the place stands when all rows are taken."""


class LogReader:
    """Finds extents and starting places, and reads pages. One per server."""

    def __init__(self, database: Database, cursors: FeedCursors, window: int) -> None:
        self._database = database
        self._cursors = cursors
        self._window = window
        self._scopes: OrderedDict[str, dict[str, str]] = OrderedDict()

    async def find(self, scope_key: str, kind: str, member_id: str) -> ThreadExtent:
        """The extent of a session, run or task. Raises SessionNotFound, RunNotFound, TaskNotFound."""
        async with self._database.read() as connection:
            if kind == SESSION:
                extent = await connection.run(lambda c: events_read.find_session(c, scope_key, member_id))
            else:
                extent = await connection.run(lambda c: events_read.find_member(c, scope_key, kind, member_id))
        if extent is None:
            raise {SESSION: SessionNotFound, RUN: RunNotFound}.get(kind, TaskNotFound)()
        return extent

    async def start(
        self, extent: Extent, after: bytes, *, from_now: bool = False, after_sequence: int | None = None
    ) -> Place:
        """The place after a cursor, in a thread also after a sequence; else the start of what is kept, or the end.

        Raises CursorInvalid, CursorUnknown, CursorExpired.
        """
        async with self._database.read() as connection:
            head, floors, starts, ends = await connection.run(lambda c: _bounds(c, extent))
        if from_now:
            return self._cursors.place(extent, head.incarnation, ends)
        if not after and after_sequence is None:
            place = self._cursors.place(extent, head.incarnation, starts)
            place.is_anywhere = True
            return place
        if after_sequence is not None:
            numbers: tuple[int, ...] = (after_sequence,)
        else:
            numbers = self._cursors.read(after, extent, head.incarnation, len(head.positions))
        place = self._cursors.place(extent, head.incarnation, numbers)
        if any(number > end for number, end in zip(numbers, ends, strict=True)):
            # It counts events that this log never had: the log was restored to an earlier point.
            raise CursorUnknown()
        if any(number < floor for number, floor in zip(numbers, floors, strict=True)):
            raise place.expired([max(pair) for pair in zip(numbers, floors, strict=True)])
        return place

    async def page(self, extent: Extent, wanted: EventFilter, place: Place, count: int) -> Page | None:
        """The next wanted events behind the place, or None at the committed end. Raises CursorExpired."""

        def read(connection: Connection) -> tuple[Page | None, Sequence[int]]:
            if isinstance(extent, ThreadExtent):
                found = _thread_page(connection, extent, wanted, place.numbers[0], count)
                # What was purged before the page was read shows in the floor that is read after it.
                return found, [events_read.thread_floor(connection, extent.thread_key)]
            found = _wide_page(connection, extent, wanted, place.numbers, count, self._window)
            purged = events_read.log_floor(connection, extent.scope_keys)
            return found, [
                purged.get(partition, 0) if extent.holds(partition) else 0 for partition in range(len(place.numbers))
            ]

        async with self._database.read() as connection:
            found, floors = await connection.run(read)
        if all(number >= floor for number, floor in zip(place.numbers, floors, strict=True)):
            return found
        if not place.is_anywhere:
            raise place.expired([max(pair) for pair in zip(place.numbers, floors, strict=True)])
        for index, floor in enumerate(floors):
            place.move(index, floor)
        return await self.page(extent, wanted, place, count)

    async def scopes_of(self, keys: Iterable[str]) -> dict[str, dict[str, str]]:
        """The scopes that these keys stand for."""
        wanted = set(keys)
        missing = wanted - self._scopes.keys()
        if missing:
            async with self._database.read() as connection:
                found = await connection.run(lambda c: events_read.read_scopes(c, missing))
            for key, scope in found.items():
                self._scopes[key] = json.loads(scope)
        known = {}
        for key in wanted & self._scopes.keys():
            self._scopes.move_to_end(key)
            known[key] = self._scopes[key]
        while len(self._scopes) > MAX_KNOWN_SCOPES:
            self._scopes.popitem(last=False)
        return known


Numbers = tuple[int, ...]


def _bounds(connection: Connection, extent: Extent) -> tuple[LogHead, Numbers, Numbers, Numbers]:
    """The log's head; and per counter of the extent: up to where events were purged, just before the first event that
    is there, and the last one.

    The first two differ by what deleted sessions have left: a cursor may stand there, nobody needs to read there.
    """
    head = events_read.log_head(connection)
    if isinstance(extent, ThreadExtent):
        end = events_read.thread_head(connection, extent.thread_key)
        floor = max(events_read.thread_floor(connection, extent.thread_key), extent.first_sequence - 1)
        return head, (floor,), (floor,), (end,)
    purged = events_read.log_floor(connection, extent.scope_keys)
    floors, starts = [], []
    for partition, end in enumerate(head.positions):
        if not extent.holds(partition):
            floors.append(0)
            starts.append(0)
            continue
        oldest = events_read.oldest_of_partition(connection, partition)
        floors.append(purged.get(partition, 0))
        starts.append(max(purged.get(partition, 0), end if oldest is None else oldest - 1))
    ends = tuple(end if extent.holds(partition) else 0 for partition, end in enumerate(head.positions))
    return head, tuple(floors), tuple(starts), ends


def _thread_page(
    connection: Connection, extent: ThreadExtent, wanted: EventFilter, after: int, count: int
) -> Page | None:
    end = events_read.thread_head(connection, extent.thread_key)
    if after >= end:
        return None
    rows = events_read.read_thread(connection, extent, wanted, after, end, count)
    return Page(rows, 0, rows[-1].sequence if events_read.is_cut(rows, count) else end)


def _wide_page(
    connection: Connection, extent: WideExtent, wanted: EventFilter, places: list[int], count: int, window: int
) -> Page | None:
    head = events_read.log_head(connection)
    for partition, (after, end) in enumerate(zip(places, head.positions, strict=True)):
        if after < end and extent.holds(partition):
            upto = min(end, after + window)
            rows = events_read.read_partition(connection, partition, extent.scope_keys, wanted, after, upto, count)
            return Page(rows, partition, rows[-1].position if events_read.is_cut(rows, count) else upto)
    return None
