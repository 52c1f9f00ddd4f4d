"""Cursors into a log of numbered partitions (R14, P5): where a feed stands, and where a commit lies.

A feed of one thread counts the thread's own sequence; a wider one counts a position in each partition. Every cursor names
log positions too, so that a follower which counts those can tell whether it is past any of them. Pure; signatures are
`cursors`' affair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from threadkeep_chassis import tokens
from threadkeep_chassis.cursors import CursorCodec, peek, varint
from threadkeep_chassis.errors import CursorInvalid, CursorUnknown


class CursorKind(IntEnum):
    """What a cursor is a cursor of. One kind never passes as another, narrower or wider."""

    COMMIT = 1
    SESSION = 2
    RUN = 3
    TASK = 4
    SCOPE = 5
    GRANT = 6


@dataclass(frozen=True)
class LogCursor:
    """A place in the log."""

    kind: CursorKind
    extent: int
    """`extent_tag` of what the feed or the commit belongs to."""
    sequence: int
    """Of the thread's last event that lies before the cursor; 0 in feeds wider than a thread."""
    positions: Mapping[int, int]
    """Partition to the position of its last event that lies before the cursor. A partition that is missing stands at 0;
    in the cursor of one thread only the thread's partition is named."""
    incarnation: str
    """Which life of the log the numbers count in."""

    def is_reached_by(self, positions: Mapping[int, int]) -> bool:
        """True if a follower that has taken everything up to `positions` has taken everything before this cursor."""
        return all(positions.get(partition, 0) >= position for partition, position in self.positions.items())


def extent_tag(*parts: str) -> int:
    """A 56-bit number that stands for a session, run, task or scope in its cursors."""
    return int.from_bytes(hashlib.sha256("\x00".join(parts).encode()).digest()[:7], "big")


def read_log_cursor(cursor: bytes, field: str = "cursor") -> LogCursor:
    """What a cursor of the log says, its signature unread (see `cursors.peek`). Raises CursorInvalid."""
    decoded = peek(cursor, field)
    return _read(decoded.positions, decoded.incarnation, field)


class LogCursors:
    """Signs and reads the cursors of one log."""

    def __init__(self, secret: bytes) -> None:
        """`secret` comes from `meta.load_token_secret`."""
        self._secret_key = tokens.derive_key(secret, "cursor:log")
        self._codec = CursorCodec(secret, "log")

    def encode(self, cursor: LogCursor) -> bytes:
        """The opaque form."""
        numbers = [int(cursor.kind), cursor.extent, cursor.sequence]
        for partition, position in sorted(cursor.positions.items()):
            numbers += (partition, position)
        return self._codec.encode(numbers, cursor.incarnation)

    def of_commit(self, incarnation: str, thread_key: str, sequence: int, partition: int, position: int) -> bytes:
        """The cursor of a CommitReceipt: after the commit's last event, at `position` of the thread's partition."""
        tag = extent_tag(thread_key)
        return self.encode(LogCursor(CursorKind.COMMIT, tag, sequence, {partition: position}, incarnation))

    def decode(
        self, cursor: bytes, kind: CursorKind, extent: int, incarnation: str, field: str = "cursor"
    ) -> LogCursor:
        """Reads a cursor of this kind and extent.

        Raises CursorInvalid (edited, of another kind or extent) and CursorUnknown (of another life of the log).
        """
        decoded = self._codec.decode(cursor, field)
        found = _read(decoded.positions, decoded.incarnation, field)
        if found.kind is not kind or found.extent != extent:
            raise CursorInvalid(field)
        if found.incarnation != incarnation:
            raise CursorUnknown()
        return found

    def writer(self, start: LogCursor) -> CursorWriter:
        """Makes the cursors of a feed that moves on from `start`, cheaply."""
        return CursorWriter(self._secret_key, self._codec, start)


class CursorWriter:
    """Where a feed stands. Move it with `advance`; `cursor()` is the opaque form of the place."""

    def __init__(self, key: bytes, codec: CursorCodec, start: LogCursor) -> None:
        self._key = key
        self._positions = dict(sorted(start.positions.items()))
        self._chunks = {p: varint(p) + varint(n) for p, n in self._positions.items()}
        head = codec.encode([int(start.kind), start.extent], start.incarnation)
        self._head = head[tokens.MAC_BYTES :]
        self._sequence = start.sequence
        self._is_wide = start.kind in (CursorKind.SCOPE, CursorKind.GRANT)

    @property
    def sequence(self) -> int:
        """The thread sequence that it stands at; 0 in wide feeds."""
        return self._sequence

    @property
    def positions(self) -> Mapping[int, int]:
        """The log positions that it stands at."""
        return MappingProxyType(self._positions)

    def advance(self, partition: int, position: int, sequence: int) -> None:
        """Moves to just after an event."""
        if not self._is_wide:
            self._sequence = sequence
            if partition not in self._positions:
                self._positions.clear()
                self._chunks.clear()
        elif partition not in self._positions:
            self._positions = dict(sorted({**self._positions, partition: position}.items()))
            self._chunks = {p: varint(p) + varint(n) for p, n in self._positions.items()}
        self._positions[partition] = position
        self._chunks[partition] = varint(partition) + varint(position)

    def cursor(self) -> bytes:
        """The opaque form, equal to `LogCursors.encode` of the same place."""
        return tokens.seal(self._key, self._head + varint(self._sequence) + b"".join(self._chunks.values()))


def _read(numbers: tuple[int, ...], incarnation: str, field: str) -> LogCursor:
    if len(numbers) < 3 or len(numbers) % 2 == 0 or numbers[0] not in CursorKind:
        raise CursorInvalid(field)
    kind, extent, sequence, *rest = numbers
    positions = dict(zip(rest[::2], rest[1::2], strict=True))
    return LogCursor(CursorKind(kind), extent, sequence, positions, incarnation)
