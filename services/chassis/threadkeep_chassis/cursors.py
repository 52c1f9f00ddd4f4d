"""Cursors: signed, opaque positions in a feed (R14, C6): a list of integers, and the log's incarnation.

What the integers mean belongs to the feed. A cursor of another feed's kind never passes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from threadkeep_chassis import tokens
from threadkeep_chassis.errors import CursorExpired, CursorInvalid, CursorUnknown

_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """A position: not negative integers, and which life of the log they count in."""

    positions: tuple[int, ...]
    incarnation: str = ""


class CursorCodec:
    """Encodes and decodes the cursors of one kind of feed."""

    def __init__(self, secret: bytes, kind: str) -> None:
        """`secret` comes from `meta.load_token_secret`; `kind` names the feed, such as `events`."""
        self._key = tokens.derive_key(secret, f"cursor:{kind}")

    def encode(self, positions: Sequence[int], incarnation: str = "") -> bytes:
        """The opaque form: 12 bytes of signature, then the incarnation and the integers, small ones in one byte."""
        life = incarnation.encode()
        body = bytearray((_VERSION, len(life)))
        body += life
        for position in positions:
            if position < 0:
                raise ValueError("positions are not negative")
            while position > 0x7F:
                body.append(position & 0x7F | 0x80)
                position >>= 7
            body.append(position)
        return tokens.seal(self._key, bytes(body))

    def decode(self, cursor: bytes, field: str = "cursor") -> Cursor:
        """Raises CursorInvalid, naming `field`, for anything this codec's secret did not sign."""
        body = tokens.unseal(self._key, bytes(cursor))
        if body is None or len(body) < 2 or body[0] != _VERSION:
            raise CursorInvalid(field)
        end = 2 + body[1]
        positions: list[int] = []
        value = shift = 0
        for byte in body[end:]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                positions.append(value)
                value = shift = 0
        if shift:
            raise CursorInvalid(field)
        return Cursor(tuple(positions), body[2:end].decode())

    def decode_for(self, cursor: bytes, incarnation: str, field: str = "cursor") -> tuple[int, ...]:
        """The positions, of this incarnation of the log. Raises CursorInvalid, CursorUnknown."""
        decoded = self.decode(cursor, field)
        if decoded.incarnation != incarnation:
            raise CursorUnknown()
        return decoded.positions

    def expired(self, oldest: Sequence[int], incarnation: str = "") -> CursorExpired:
        """The error for a cursor below retention, naming the oldest one left."""
        return CursorExpired(base64.b64encode(self.encode(oldest, incarnation)).decode())
