"""Signed byte strings: what clients carry back to us unread. Shared by page tokens and cursors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

_MAC_BYTES = 12


def derive_key(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose, so that a token of one kind never passes as another."""
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)


def seal(key: bytes, body: bytes, bound_to: bytes = b"") -> bytes:
    """The body with its signature. `bound_to` is signed with it but not contained."""
    return _mac(key, body, bound_to) + body


def unseal(key: bytes, token: bytes, bound_to: bytes = b"") -> bytes | None:
    """The body, or None if the token was not made with the key for `bound_to`."""
    mac, body = token[:_MAC_BYTES], token[_MAC_BYTES:]
    return body if hmac.compare_digest(mac, _mac(key, body, bound_to)) else None


def peek(token: bytes) -> bytes | None:
    """The body, unchecked; None if there is none. For readers without the key, whom a forged body can't harm."""
    return token[_MAC_BYTES:] or None


def to_text(token: bytes) -> str:
    """URL-safe text without padding."""
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode("ascii")


def from_text(text: str) -> bytes | None:
    """The bytes, or None if the text is not what `to_text` makes of any bytes."""
    try:
        raw = text.encode("ascii")
        token = base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        return None
    return token if to_text(token) == text else None


def _mac(key: bytes, body: bytes, bound_to: bytes) -> bytes:
    framed = len(bound_to).to_bytes(4, "big") + bound_to + body
    return hmac.digest(key, framed, hashlib.sha256)[:_MAC_BYTES]
