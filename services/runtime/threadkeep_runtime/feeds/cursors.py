"""The cursors of feeds: where a reader stands, opaque and signed (R14).

A feed of one thread counts the thread's sequence, a wider one a position in each log partition. A cursor is bound to
its feed's extent, so that one of a wider or narrower feed, or of another scope, never passes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Sequence

from threadkeep_chassis.cursors import (
    LOG_KIND,
    THREAD_KIND,
    CursorCodec,
    read_cursor,
    selection_of,
    selection_subject,
    thread_subject,
)
from threadkeep_chassis.errors import CursorExpired, CursorInvalid
from threadkeep_runtime.domain.feeds import RUN, SCOPE, SESSION, TASK, Extent, ThreadExtent, WideExtent

_MEMBER = {RUN: 1, TASK: 2}


class FeedCursors:
    """Reads and makes the cursors of every kind of feed of one log."""

    def __init__(self, secret: bytes) -> None:
        """`secret` comes from `meta.load_token_secret`."""
        self._thread = CursorCodec(secret, THREAD_KIND)
        self._log = CursorCodec(secret, LOG_KIND)

    def read(self, cursor: bytes, extent: Extent, incarnation: str, partitions: int) -> tuple[int, ...]:
        """Where the cursor stands: (sequence,) in a feed of one thread, else a position for each partition.

        Raises CursorInvalid (edited, or of another feed), CursorUnknown (of another life of the log).
        """
        if isinstance(extent, ThreadExtent):
            numbers = self._thread.decode_for(cursor, incarnation, "after", _subject(extent))
            if numbers[1:] != _marks(extent) or not numbers:
                raise CursorInvalid("after")
            return numbers[:1]
        numbers = self._log.decode_for(cursor, incarnation, "after", _subject_of_wider(cursor, extent))
        if len(numbers) != partitions:
            raise CursorInvalid("after")
        return tuple(number if extent.holds(partition) else 0 for partition, number in enumerate(numbers))

    def place(self, extent: Extent, incarnation: str, numbers: Sequence[int]) -> Place:
        """A reader's place, to move on from there."""
        codec = self._thread if isinstance(extent, ThreadExtent) else self._log
        return Place(codec, extent, incarnation, numbers)


class Place:
    """Where a reader stands. It only moves forward. In partitions that its feed does not hold it stands at 0."""

    __slots__ = ("_codec", "_encode", "_incarnation", "_marks", "_subject", "is_anywhere", "numbers")

    def __init__(self, codec: CursorCodec, extent: Extent, incarnation: str, numbers: Sequence[int]) -> None:
        self._codec = codec
        self._incarnation = incarnation
        self._subject = _subject(extent)
        self._encode = codec.encoder(incarnation, self._subject)
        self._marks = _marks(extent) if isinstance(extent, ThreadExtent) else ()
        self.is_anywhere = False
        """True until something is shown to a reader who asked for the start of what is kept: it may come later."""
        self.numbers = list(numbers)
        """(sequence,) or a position for each partition."""

    def move(self, index: int, number: int) -> None:
        """Moves to `number` in the partition (index 0 in a feed of one thread)."""
        self.numbers[index] = max(number, self.numbers[index])

    def cursor(self) -> bytes:
        """The opaque form."""
        self.is_anywhere = False
        return self._encode((*self.numbers, *self._marks))

    def text(self) -> str:
        """The opaque form in base64, for an error's metadata."""
        return base64.b64encode(self.cursor()).decode()

    def expired(self, oldest: Sequence[int]) -> CursorExpired:
        """The error for a reader below what is kept."""
        return self._codec.expired((*oldest, *self._marks), self._incarnation, self._subject)


def _subject(extent: Extent) -> str:
    if isinstance(extent, ThreadExtent):
        return thread_subject(extent.scope_key, extent.session_id)
    return selection_subject(f"scope:{extent.name[:24]}" if extent.kind == SCOPE else "grant", extent.partitions)


def _subject_of_wider(cursor: bytes, extent: WideExtent) -> str:
    """The subject of the cursor, if it is of a feed that differs at most in having more partitions; else the extent's.

    Nothing is believed yet: the signature covers the subject.
    """
    subject = read_cursor(cursor, "after").subject
    if extent.partitions is not None:
        with contextlib.suppress(ValueError):
            base, selected = selection_of(subject)
            if base == selection_of(_subject(extent))[0] and (selected is None or selected >= extent.partitions):
                return subject
    return _subject(extent)


def _marks(extent: ThreadExtent) -> tuple[int, ...]:
    """What tells a run's or task's feed from its session's: behind the sequence, where readers of that don't look."""
    if extent.kind == SESSION:
        return ()
    digest = hashlib.sha256((extent.member_id or "").encode()).digest()
    return (_MEMBER[extent.kind], int.from_bytes(digest[:6], "big"))
