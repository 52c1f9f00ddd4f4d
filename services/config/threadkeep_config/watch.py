"""Watches (C6): from a revision everything after it, or a snapshot first; then live, each change once and in order.

A watch first reads the log at its reader's own pace. Once it has reached the tail it joins it: from then on changes
come out of memory, into a bounded buffer of its own. Who lets that overflow is cut with the revision to resume from.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from prometheus_client import CollectorRegistry, Counter, Gauge

from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import FieldInvalid, ShuttingDown, SlowConsumer, ThreadkeepError
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.waker import Waker
from threadkeep_config.domain.errors import RevisionCompacted
from threadkeep_config.domain.values import Entity, EntityType, Key
from threadkeep_config.domain.views import View
from threadkeep_config.store import entities, revisions
from threadkeep_config.store.tail import Logged, Tail

Matched = tuple[Logged, tuple[str, ...]]
"""A change with the ids of the filters that it matched."""

FRAME_CHANGES = 256
FRAME_BYTES = 1024 * 1024
PAGE_CHANGES = 512
PAGE_BYTES = 2 * 1024 * 1024
PAGE_READERS = 3
"""Pages read at once: a thousand watches that start together must leave database sessions to everyone else."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter; an empty part matches everything."""

    filter_id: str
    types: frozenset[EntityType] = frozenset()
    names: frozenset[str] = frozenset()
    scope_key: str | None = None

    def matches(self, entity: Entity) -> bool:
        """True for an entity that passes it."""
        key = entity.key
        return (
            (not self.types or key.type in self.types)
            and (not self.names or key.name in self.names)
            and (self.scope_key is None or key.scope_key == self.scope_key)
        )


ALL = Filter("all")


class FrameKind(Enum):
    """What a frame holds."""

    CHANGES = "changes"
    SYNCED = "synced"
    BOOKMARK = "bookmark"


@dataclass(frozen=True, slots=True)
class Frame:
    """What goes out at once."""

    kind: FrameKind
    revision: int
    """Resume after it; 0 in a snapshot, which starts again."""
    changes: Sequence[Matched] = ()
    """Each change with the filters that it matched."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch is about."""

    view: View
    filters: tuple[Filter, ...]

    def match(self, entity: Entity) -> tuple[str, ...]:
        """The filters that the entity matches; none if the watch does not see it."""
        if not self.view.sees(entity):
            return ()
        return tuple(one.filter_id for one in self.filters if one.matches(entity))


class _Live:
    """A watch that has joined the tail."""

    # Nearly all watches are idle, and there may be very many: what only a busy one needs comes with the first change.
    __slots__ = ("_after", "_buffer", "_bytes", "_max_bytes", "_max_changes", "_watched", "cut", "waker")

    def __init__(self, watched: Watched, after: int, max_changes: int, max_bytes: int) -> None:
        self._watched = watched
        self._after = after
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._buffer: deque[Matched] | None = None
        self._bytes = 0
        self.waker = Waker()
        """Set when something was offered, or the watch must end."""
        self.cut: Callable[[int], ThreadkeepError] | None = None
        """Why the watch must end, given the revision to resume from."""

    @property
    def is_empty(self) -> bool:
        """True when everything that the tail told was handed out."""
        return self._buffer is None

    def offer(self, changes: Sequence[Logged]) -> None:
        """Takes what the tail tells."""
        if self.cut is not None:
            return
        for change in changes:
            matched = self._watched.match(change.entity) if change.entity.revision > self._after else ()
            if matched:
                if self._buffer is None:
                    self._buffer = deque()
                self._buffer.append((change, matched))
                self._bytes += change.size
        if self._buffer is None:
            return
        self.waker.set()
        if len(self._buffer) > self._max_changes or (self._bytes > self._max_bytes and len(self._buffer) > 1):
            self.end(lambda revision: SlowConsumer(resume_revision=revision))

    def end(self, cut: Callable[[int], ThreadkeepError]) -> None:
        """Ends the watch, and frees what it holds at once: its reader may not come back soon."""
        self.cut = cut
        self._buffer = None
        self._bytes = 0
        self.waker.set()

    def take(self) -> list[Matched]:
        """The next changes, as many as fit into a frame."""
        taken: list[Matched] = []
        size = 0
        while self._buffer and len(taken) < FRAME_CHANGES:
            if taken and size + self._buffer[0][0].size > FRAME_BYTES:
                break
            change = self._buffer.popleft()
            taken.append(change)
            size += change[0].size
        if not self._buffer:
            self._buffer = None
        self._bytes -= size
        return taken


class _Place:
    """How far a watch has come."""

    __slots__ = ("cursor", "shown_at")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.shown_at = _now()
        """When its reader was last told."""

    def shown(self, frame: Frame) -> Frame:
        """Takes note of a frame that is about to be given."""
        self.cursor = frame.revision
        self.shown_at = _now()
        return frame


class Watches:
    """All watches of this replica. A Listener of the tail."""

    def __init__(
        self,
        database: Database,
        tail: Tail,
        limits: Limits,
        registry: CollectorRegistry,
        *,
        bookmark_seconds: float,
        buffer_changes: int,
        buffer_bytes: int,
    ) -> None:
        self._database = database
        self._tail = tail
        self._limits = limits
        self._bookmark_seconds = bookmark_seconds
        self._buffer_changes = buffer_changes
        self._buffer_bytes = buffer_bytes
        self._live: set[_Live] = set()
        self._paging = asyncio.Semaphore(PAGE_READERS)
        self._count = 0
        self._open = Gauge("threadkeep_config_watches", "Watches that are open", registry=registry)
        self._cut = Counter("threadkeep_config_watches_cut", "Watches cut as too slow", registry=registry)
        tail.attach(self)

    def changed(self, changes: Sequence[Logged]) -> None:
        """See Listener."""
        for live in list(self._live):
            live.offer(changes)
            if live.cut is not None:
                self._cut.inc()
                self._live.discard(live)

    def gap(self, oldest: int) -> None:
        """See Listener."""
        for live in self._live:
            live.end(lambda _: RevisionCompacted(oldest))
        self._live.clear()

    async def watch(self, watched: Watched, after_revision: int | None, drain: Drain) -> AsyncGenerator[Frame]:
        """Yields frames until its reader leaves.

        Raises RevisionCompacted, FieldInvalid (a revision that is not there yet), SlowConsumer, ShuttingDown,
        LimitExceeded.
        """
        self._limits.check("max_subscriptions", self._count + 1)
        self._count += 1
        self._open.inc()
        try:
            place = _Place(await self._start(after_revision))
            # A generator of its own: what a reader caught up with is not held while it idles.
            async with aclosing(self._until_live(watched, place, after_revision is None, drain)) as frames:
                async for frame in frames:
                    yield frame
                    del frame
            del frames
            # Nothing was awaited since the tail's position was looked at: the watch joins exactly where it has read to.
            live = _Live(watched, place.cursor, self._buffer_changes, self._buffer_bytes)
            self._live.add(live)
            drain.attach(live.waker.set)
            try:
                while True:
                    if live.cut is not None:
                        raise live.cut(place.cursor)
                    if drain.is_set:
                        raise ShuttingDown(resume_revision=place.cursor)
                    taken = live.take()
                    wait_seconds = place.shown_at + self._bookmark_seconds - _now()
                    if taken or wait_seconds <= 0:
                        # With nothing left to hand out, all up to the tail's position has been.
                        end = max(place.cursor, self._tail.position) if live.is_empty else taken[-1][0].entity.revision
                        yield place.shown(Frame(FrameKind.CHANGES if taken else FrameKind.BOOKMARK, end, taken))
                    else:
                        await live.waker.wait(wait_seconds)
            finally:
                self._live.discard(live)
                drain.detach(live.waker.set)
        finally:
            self._count -= 1
            self._open.dec()

    async def _until_live(
        self, watched: Watched, place: _Place, with_snapshot: bool, drain: Drain
    ) -> AsyncGenerator[Frame]:
        """Frames of the entities as they stand at the place, if wanted, and of what the log has behind it.

        Ends with the place where the tail stands.
        """
        if with_snapshot:
            after: Key | None = None
            while True:
                if drain.is_set:
                    raise ShuttingDown
                changes, after = await self._snapshot_page(watched, place.cursor, after)
                for frame in _frames(changes):
                    yield frame
                if after is None:
                    break
            yield place.shown(Frame(FrameKind.SYNCED, place.cursor))
        while place.cursor < self._tail.position:
            if drain.is_set:
                raise ShuttingDown(resume_revision=place.cursor)
            changes, end = await self._log_page(watched, place.cursor)
            for frame in _frames(changes, end):
                yield place.shown(frame)
            place.cursor = end
            if _now() - place.shown_at >= self._bookmark_seconds:
                yield place.shown(Frame(FrameKind.BOOKMARK, end))

    async def _start(self, after_revision: int | None) -> int:
        """The revision that the watch starts after, or that its snapshot is of."""
        async with self._database.read() as connection:
            revision, compacted = await revisions.state(connection)
        if after_revision is None:
            return revision
        if after_revision < 0:
            raise FieldInvalid("after_revision", "must not be negative")
        if after_revision > revision:
            raise FieldInvalid("after_revision", f"is beyond the service's revision {revision}; take a snapshot")
        if after_revision < compacted:
            raise RevisionCompacted(compacted + 1)
        return after_revision

    async def _snapshot_page(
        self, watched: Watched, revision: int, after: Key | None
    ) -> tuple[list[Matched], Key | None]:
        """Entities as they stood at the revision, by key, after `after`; and the key to go on after, None at the end.

        No transaction spans the snapshot: what was changed since is looked up in the log.
        """
        matched: list[Matched] = []
        async with self._paging, self._database.read() as connection:
            page = await entities.page(
                connection,
                watched.view,
                types=(),
                after=None if after is None else (int(after.type), after.name, after.scope_key),
                limit=PAGE_CHANGES,
                max_bytes=PAGE_BYTES,
                changed_after=revision,
            )
            for current in page:
                entity: Entity | None = current
                if current.revision > revision:
                    entity = await revisions.as_of(connection, current.key, revision)
                ids = watched.match(entity) if entity is not None and entity.exists else ()
                if entity is not None and ids:
                    matched.append((Logged(entity), ids))
            _, compacted = await revisions.state(connection)
        if compacted > revision:
            raise RevisionCompacted(compacted + 1)
        return matched, page[-1].key if page else None

    async def _log_page(self, watched: Watched, after: int) -> tuple[list[Matched], int]:
        """What the log has after the revision, and up to which one that goes."""
        async with self._paging, self._database.read() as connection:
            page = await revisions.after(connection, after, limit=PAGE_CHANGES, max_bytes=PAGE_BYTES)
            # Looked at after the page was read, so what the page lacks had not been compacted away.
            _, compacted = await revisions.state(connection)
        if compacted > after:
            raise RevisionCompacted(compacted + 1)
        matched = [(Logged(entity), ids) for entity in page if (ids := watched.match(entity))]
        return matched, page[-1].revision if page else after


def _frames(changes: Sequence[Matched], end: int = 0) -> Iterator[Frame]:
    """Cuts changes into frames. The last one says `end`; in a snapshot, which has none, all say 0."""
    start = size = 0
    for index, (change, _) in enumerate(changes):
        if index > start and (index - start == FRAME_CHANGES or size + change.size > FRAME_BYTES):
            yield Frame(FrameKind.CHANGES, changes[index - 1][0].entity.revision if end else 0, changes[start:index])
            start, size = index, 0
        size += change.size
    if changes:
        yield Frame(FrameKind.CHANGES, end, changes[start:])


def _now() -> float:
    return asyncio.get_running_loop().time()
