"""One subscription: catches up from the log, then lives from the tail's sink, without a seam in between (R14).

It never blocks a writer: it reads in short reads of its own, what waits for it is bounded, and a reader who is too slow
for its sink is sent back to the log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from threadkeep_chassis.errors import ShuttingDown
from threadkeep_chassis.waker import Waker
from threadkeep_runtime.domain.feeds import GRANT, RUN, SESSION, SESSION_DELETED, EventFilter, Extent, ThreadExtent
from threadkeep_runtime.feeds.cursors import Place
from threadkeep_runtime.feeds.frames import BookmarkFrame, EventsFrame, Frame, GapFrame, Item, LiveFrame
from threadkeep_runtime.feeds.sink import Gap, LiveQueue, Sink
from threadkeep_runtime.store.events_read import EventRow

if TYPE_CHECKING:
    from threadkeep_chassis.scope import Drain
    from threadkeep_runtime.feeds.feeds import Feeds


class Subscription:
    """A reader's way through the log. Iterate `frames()` once, and close it."""

    # Nearly all subscriptions are idle, and there may be very many.
    __slots__ = (
        "_changed",
        "_drain",
        "_extent",
        "_feeds",
        "_is_over",
        "_live",
        "_settings",
        "_shown",
        "_shown_at",
        "_sink",
        "_wanted",
        "place",
    )

    def __init__(
        self, feeds: Feeds, extent: Extent, wanted: EventFilter, place: Place, *, include_live: bool, drain: Drain
    ) -> None:
        settings = feeds.settings
        self._feeds = feeds
        self._settings = settings
        self._extent = extent
        self._wanted = wanted
        self.place = place
        """How far the frames that were given reach."""
        self._drain = drain
        self._changed = Waker()
        self._sink = Sink(self._changed.set, self._is_for_sink, settings.queue_events, settings.queue_bytes)
        self._live = (
            LiveQueue(self._changed.set, self._is_live_wanted, settings.live_queue_items, settings.live_queue_bytes)
            if include_live
            else None
        )
        # A run or task that was over before the log is read has all of its events in it.
        self._is_over = isinstance(extent, ThreadExtent) and extent.last_sequence is not None
        self._shown: bytes | None = None
        self._shown_at = feeds.now()

    async def frames(self) -> AsyncGenerator[Frame]:
        """Frames until the extent has ended (a run or task did, or a session was deleted), or for ever.

        Raises ShuttingDown with the cursor to resume from, DatabaseUnavailable.
        """
        self._drain.attach(self._changed.set)
        try:
            if self._live is not None:
                self._feeds.live.attach(self._live, self._extent)
            await self._feeds.tails.attach(self._sink, self._extent)
            while True:
                async for frame in self._catch_up():
                    yield frame
                if self._is_over:
                    break
                async for frame in self._follow():
                    yield frame
            if self._shown is None:
                yield self._bookmark()
        finally:
            self._drain.detach(self._changed.set)
            self._feeds.tails.detach(self._sink, self._extent)
            if self._live is not None:
                self._feeds.live.detach(self._live, self._extent)

    async def _catch_up(self) -> AsyncIterator[Frame]:
        """Reads the log up to its committed end. The sink collects from before the first read on."""
        self._sink.restart()
        while True:
            self._check_drain()
            page = await self._feeds.reader.page(self._extent, self._wanted, self.place, self._settings.frame_events)
            if page is None:
                return
            async for frame in self._frames_of(page.rows):
                yield frame
            self.place.move(page.index, page.upto)
            for frame in self._frames_between():
                yield frame

    async def _follow(self) -> AsyncIterator[Frame]:
        """Gives what the sink collects, until it overflows or the extent has ended: the log has the rest."""
        while True:
            rows = self._sink.take(self._settings.frame_events, self._settings.frame_bytes)
            async for frame in self._frames_of(row for row in rows if self._is_ahead(row)):
                yield frame
            if self._sink.overflowed:
                self._feeds.metrics.overflows.inc()
            if self._is_over or self._sink.overflowed:
                return
            if not len(self._sink):
                self._pass_what_was_not_wanted()
            for frame in self._frames_between():
                yield frame
            if len(self._sink):
                continue
            self._check_drain()
            if self._shown is None:
                # The reader learns where it stands, and that it is live.
                yield self._bookmark()
            await self._wait()

    async def _frames_of(self, rows: Iterable[EventRow]) -> AsyncIterator[Frame]:
        """Frames of rows that lie ahead. The place moves along, and stands at a frame's end when the frame is given."""
        items: list[Item] = []
        size = 0
        for row in rows:
            if items and (len(items) >= self._settings.frame_events or size + row.size > self._settings.frame_bytes):
                yield await self._events(items)
                items, size = [], 0
            if isinstance(self._extent, ThreadExtent):
                self.place.move(0, row.sequence)
                self._is_over = self._is_over or row.type in self._extent.terminal_types
            else:
                self.place.move(row.partition, row.position)
            if self._wanted.matches(row.type, row.visibility):
                items.append((row, self.place.cursor()))
                size += row.size
        if items:
            yield await self._events(items)

    async def _events(self, items: list[Item]) -> EventsFrame:
        scopes = None
        if self._extent.kind == GRANT:
            scopes = await self._feeds.reader.scopes_of(row.scope_key for row, _ in items)
        self._note_shown(items[-1][1])
        return EventsFrame(tuple(items), items[-1][1], scopes)

    def _frames_between(self) -> Iterator[Frame]:
        """Live frames that wait, and a bookmark if none came for long."""
        if self._feeds.now() - self._shown_at >= self._settings.bookmark_seconds:
            if self.place.cursor() != self._shown:
                yield self._bookmark()
            else:
                self._shown_at = self._feeds.now()
        while self._live is not None and (item := self._live.take()) is not None:
            if isinstance(item, Gap):
                yield GapFrame(item.dropped_count)
            else:
                yield LiveFrame(item.content, item.scope if self._extent.kind == GRANT else None)

    def _bookmark(self) -> BookmarkFrame:
        cursor = self.place.cursor()
        self._note_shown(cursor)
        return BookmarkFrame(cursor)

    def _note_shown(self, cursor: bytes) -> None:
        self._shown = cursor
        self._shown_at = self._feeds.now()

    async def _wait(self) -> None:
        """Returns at a change, or when a bookmark may be due."""
        await self._changed.wait(self._shown_at + self._settings.bookmark_seconds - self._feeds.now())

    def _check_drain(self) -> None:
        if self._drain.is_set:
            raise ShuttingDown(resume_cursor=self.place.text())

    def _is_ahead(self, row: EventRow) -> bool:
        if isinstance(self._extent, ThreadExtent):
            return row.sequence > self.place.numbers[0]
        return row.position > self.place.numbers[row.partition]

    def _pass_what_was_not_wanted(self) -> None:
        """With an empty sink, everything that the tail handed out is behind this reader."""
        if isinstance(self._extent, ThreadExtent):
            self.place.move(0, self._sink.passed_sequence)
        else:
            for partition, position in enumerate(self._feeds.tails.positions()):
                if self._extent.holds(partition):
                    self.place.move(partition, position)

    def _is_for_sink(self, row: EventRow) -> bool:
        extent = self._extent
        if row.type == SESSION_DELETED and isinstance(extent, ThreadExtent):
            return True
        if isinstance(extent, ThreadExtent) and extent.kind != SESSION:
            if (row.run_id if extent.kind == RUN else row.task_id) != extent.member_id:
                return False
            if row.type in extent.terminal_types:
                return True
        return self._wanted.matches(row.type, row.visibility)

    def _is_live_wanted(self, run_id: str, task_id: str) -> bool:
        extent = self._extent
        if not isinstance(extent, ThreadExtent) or extent.kind == SESSION:
            return True
        return (run_id if extent.kind == RUN else task_id) == extent.member_id
