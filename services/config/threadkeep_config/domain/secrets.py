"""Tells references to secrets from secrets (C8), by names and by the looks of values. Never quotes a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

REFERENCE_RULE = "must be a reference to a secret, env:NAME or file:/absolute/path, never the secret itself"

_ENV = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,254}\Z")
_FILE = re.compile(r"file:/[^\x00-\x1f\x7f-\x9f]*[^/\x00-\x1f\x7f-\x9f]\Z")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    {"secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "credential", "credentials"}
    | {"authorization", "bearer", "cookie", "apikey", "apikeys", "accesskey", "privatekey"}
)
_KEY_OWNERS = frozenset({"api", "access", "private", "secret", "signing", "auth", "account", "encryption", "master"})
# Tokens of a text, not of an identity: `eos_token`, `stop_token`.
_TEXT_TOKENS = frozenset({"bos", "cls", "eos", "eot", "mask", "pad", "sep", "stop", "unk"})
_SECRET_VALUE = re.compile(
    r"\s*(?:bearer\s|basic\s+[a-z0-9+/=]{8}|sk-|pk-lf-|gh[pousr]_[a-z0-9]{8}|github_pat_|glpat-|xox[abprs]-|akia[a-z0-9]{12}"
    r"|aiza[a-z0-9_-]{20}|eyj[a-z0-9_-]+\.eyj|-----begin [a-z ]*private key)",
    re.IGNORECASE,
)


def is_reference(text: str) -> bool:
    """True for `env:NAME` and `file:/absolute/path` without `..`."""
    if _ENV.match(text):
        return True
    return bool(_FILE.match(text)) and ".." not in text.removeprefix("file:").split("/")


def names_a_secret(name: str) -> bool:
    """True if a field of this name would hold a secret: `api_key`, `Authorization`, `accessToken`, not `max_tokens`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    if any(word in _SECRET_WORDS for word in words):
        return True
    if any(pair[1] in ("key", "keys") and pair[0] in _KEY_OWNERS for pair in pairwise(words)):
        return True
    return words[-1] == "token" and (len(words) == 1 or words[-2] not in _TEXT_TOKENS)


def looks_like_a_secret(value: str) -> bool:
    """True for values in the well-known forms of keys and tokens."""
    return bool(_SECRET_VALUE.match(value))


def secrets_in(document: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields (path, rule) for each place in a JSON document that would hold a secret."""
    if isinstance(document, dict):
        for name, value in document.items():
            inner = f"{path}.{name[:64]}"
            if names_a_secret(name):
                yield inner, "looks like the name of a secret; put a reference into a field made for it"
            else:
                yield from secrets_in(value, inner)
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from secrets_in(value, f"{path}[{index}]")
    elif isinstance(document, str) and looks_like_a_secret(document):
        yield path, "looks like a secret; config holds references to secrets only"
