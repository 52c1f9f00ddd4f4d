"""Cursors: signed, opaque positions in a feed (R14, C6): the feed's kind, a list of integers, the log's incarnation.

What the integers mean belongs to the feed. A cursor of another kind, or of another subject, never passes `decode`.
Only who signed a cursor can check it; `read_cursor` lets a peer look into one, for decisions that a forged cursor
could only make slower (how long the projection waits).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from threadkeep_chassis import tokens
from threadkeep_chassis.errors import CursorExpired, CursorInvalid, CursorUnknown

_VERSION = 1

LOG_KIND = "log"
"""The runtime's event log: one position for each of its partitions, in their order. A CommitReceipt's cursor and those
of feeds of several sessions are of this kind. A position p covers the partition's events up to p."""
THREAD_KIND = "thread"
"""One session's feed: one position, the thread's event sequence; the subject is `thread_subject`."""


@dataclass(frozen=True)
class Cursor:
    """A position: not negative integers, which life of the log they count in, and what part of it they are about."""

    positions: tuple[int, ...]
    incarnation: str = ""
    kind: str = ""
    subject: str = ""


def thread_subject(scope_key: str, session_id: str) -> str:
    """What a cursor of one session's feed names as its subject: 16 hexadecimal digits."""
    return hashlib.sha256(f"{scope_key}\x00{session_id}".encode()).hexdigest()[:16]


def selection_subject(base: str, partitions: Iterable[int] | None) -> str:
    """The subject of a log's feed that holds some partitions only (None: all), such as `grant/0.3`."""
    return base if partitions is None else f"{base}/{'.'.join(map(str, sorted(partitions)))}"


def selection_of(subject: str) -> tuple[str, frozenset[int] | None]:
    """The way back: what the feed is called, and its partitions (None: all). Raises ValueError."""
    base, slash, selection = subject.partition("/")
    return base, frozenset(map(int, selection.split("."))) if slash else None


class CursorCodec:
    """Encodes and decodes the cursors of one kind of feed."""

    def __init__(self, secret: bytes, kind: str) -> None:
        """`secret` comes from `meta.load_token_secret`; `kind` names the feed, such as `log`: at most 255 bytes."""
        self._kind = kind
        self._key = tokens.derive_key(secret, f"cursor:{kind}")

    def encode(self, positions: Sequence[int], incarnation: str = "", subject: str = "") -> bytes:
        """The opaque form: 12 bytes of signature, kind, incarnation, subject and the integers (1 byte if small)."""
        return self.encoder(incarnation, subject)(positions)

    def encoder(self, incarnation: str = "", subject: str = "") -> Callable[[Sequence[int]], bytes]:
        """`encode` with what stays the same prepared, for feeds, which make a cursor for each event."""
        head = bytearray((_VERSION,))
        for text in (self._kind, incarnation, subject):
            content = text.encode()
            head.append(len(content))
            head += content
        key, fixed = self._key, bytes(head)

        def encode(positions: Sequence[int]) -> bytes:
            return tokens.seal(key, fixed + b"".join(map(_varint, positions)))

        return encode

    def decode(self, cursor: bytes, field: str = "cursor", subject: str = "") -> Cursor:
        """Raises CursorInvalid, naming `field`, for anything that this codec's secret did not sign for the subject."""
        body = tokens.unseal(self._key, bytes(cursor))
        if body is None:
            raise CursorInvalid(field)
        decoded = _parse(body, field)
        if decoded.kind != self._kind or decoded.subject != subject:
            raise CursorInvalid(field)
        return decoded

    def decode_for(self, cursor: bytes, incarnation: str, field: str = "cursor", subject: str = "") -> tuple[int, ...]:
        """The positions, of this incarnation of the log. Raises CursorInvalid, CursorUnknown."""
        decoded = self.decode(cursor, field, subject)
        if decoded.incarnation != incarnation:
            raise CursorUnknown()
        return decoded.positions

    def expired(self, oldest: Sequence[int], incarnation: str = "", subject: str = "") -> CursorExpired:
        """The error for a cursor below retention, naming the oldest one left."""
        return CursorExpired(base64.b64encode(self.encode(oldest, incarnation, subject)).decode())


def read_cursor(cursor: bytes, field: str = "cursor") -> Cursor:
    """Reads a cursor without checking who signed it. Raises CursorInvalid for what has no cursor's form."""
    body = tokens.peek(bytes(cursor))
    if body is None:
        raise CursorInvalid(field)
    return _parse(body, field)


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """A not negative integer, 7 bits in each byte, the lowest first. Most numbers of a cursor were in the last one."""
    if value < 0:
        raise ValueError("positions are not negative")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse(body: bytes, field: str) -> Cursor:
    if not body or body[0] != _VERSION:
        raise CursorInvalid(field)
    texts: list[str] = []
    at = 1
    for _ in range(3):
        end = at + 1 + body[at] if at < len(body) else len(body) + 1
        if end > len(body):
            raise CursorInvalid(field)
        try:
            texts.append(body[at + 1 : end].decode())
        except UnicodeDecodeError as error:
            raise CursorInvalid(field) from error
        at = end
    positions: list[int] = []
    value = shift = 0
    for byte in body[at:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            positions.append(value)
            value = shift = 0
    if shift:
        raise CursorInvalid(field)
    return Cursor(tuple(positions), incarnation=texts[1], kind=texts[0], subject=texts[2])
