"""Secrets that are stored all the same, by an older release or by hand, are shown to nobody (C8, X11).

What a write would refuse as a secret is replaced by a mark wherever a definition is shown. The stored text stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from threadkeep_config.domain import secrets

MARK = "[redacted]"

_OPEN_JSON = ("options_json", "document_json")
"""Fields whose JSON may hold anything; those with schemas hold names of fields, not their values."""
_MAPS = ("headers", "environment", "metadata")
_URLS = ("url", "endpoint")
HOLDS_ANY = frozenset(
    {"api_key_reference", "document_json", "endpoint", "environment", "http", "metadata", "middleware", "options_json"}
    | {"environment_references", "stdio"}
)
"""The fields of definitions in which a secret can stand at all, at whatever depth."""


def may_hold_secrets(definition: Mapping[str, Any]) -> bool:
    """False if no field of the definition can hold a secret. Most can't, and this costs next to nothing."""
    return any(not HOLDS_ANY.isdisjoint(body) for body in definition.values())


def redacted(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition without secrets."""
    found: dict[str, Any] = _fields(definition)
    return found


def _fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_fields(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _field(name, inner) for name, inner in value.items()}


def _field(name: str, value: Any) -> Any:
    if name.endswith("_reference") and isinstance(value, str):
        return value if not value or secrets.is_reference(value) else MARK
    if name.endswith("_references") and isinstance(value, dict):
        return {key: one if secrets.is_reference(one) else MARK for key, one in value.items()}
    if name in _MAPS and isinstance(value, dict):
        return _plain(value)
    if name in _OPEN_JSON and isinstance(value, str):
        return _json(value)
    if name in _URLS and isinstance(value, str):
        return _url(value)
    if name == "arguments" and isinstance(value, list):
        return [MARK if secrets.looks_like_a_secret(one) else one for one in value]
    return _fields(value)


def _json(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    shown = _plain(value)
    # Numbers keep their form where there is nothing to hide.
    return text if shown == value else json.dumps(shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _plain(value: Any) -> Any:
    """Any JSON value, with what `secrets.secrets_in` finds replaced."""
    if isinstance(value, Mapping):
        return {name: MARK if secrets.names_a_secret(name) else _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return MARK if isinstance(value, str) and secrets.looks_like_a_secret(value) else value


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return MARK
    if parts.username is not None or parts.password is not None:
        return MARK
    return MARK if any(secrets.names_a_secret(name) or secrets.looks_like_a_secret(one) for name, one in query) else url
