"""What people type as scopes, grants, addresses, labels and values. Everything raises UsageProblem with an example."""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from threadkeep_cli.exits import UsageProblem

SERVICES = ("runtime", "config", "artifacts", "projection")


def parse_scope(text: str) -> dict[str, str]:
    """`tenant=acme,user=u1`, a JSON object, or `{}` for the empty scope."""
    text = text.strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise UsageProblem(f"--scope is no JSON object: {error}") from error
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise UsageProblem('--scope as JSON is an object of texts: {"tenant": "acme"}')
        return value
    if not text:
        raise UsageProblem("--scope names keys and values: --scope tenant=acme. The empty scope is --scope {}")
    return parse_pairs(text.split(","), "--scope")


def parse_grant(text: str) -> Literal["all"] | list[Mapping[str, str]]:
    """`all`, or scopes as in --scope, several separated by `;`."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts:
        raise UsageProblem("--grant is `all`, or scopes: --grant 'tenant=acme;tenant=globex'")
    if "all" in parts:
        if len(parts) > 1:
            raise UsageProblem("--grant is `all`, or scopes, not both")
        return "all"
    return [parse_scope(part) for part in parts]


def parse_target(text: str) -> str | dict[str, str]:
    """One address for all services, or `runtime=HOST:PORT,config=...`."""
    if "=" not in text:
        return text
    found = parse_pairs(text.split(","), "--target")
    unknown = sorted(set(found) - set(SERVICES))
    if unknown:
        raise UsageProblem(f"--target names no service {', '.join(unknown)}; there are {', '.join(SERVICES)}")
    return found


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` texts as a map; no name twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not name:
            raise UsageProblem(f"{option} takes name=value, not `{text}`")
        if name in found:
            raise UsageProblem(f"{option} names {name} twice")
        found[name] = value
    return found


def parse_json(text: str, option: str) -> Any:
    """A JSON value; `@file` reads it from a file, `@-` from standard input."""
    if text.startswith("@"):
        text = read_text(text[1:], option)
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageProblem(f"{option} is no JSON: {error}. Text is JSON with its quotes: '\"yes\"'") from error


def read_text(path: str, option: str) -> str:
    """A file's text, or standard input for `-`."""
    return read_bytes(path, option).decode("utf-8", "replace")


def read_bytes(path: str, option: str) -> bytes:
    """A file's bytes, or standard input for `-`."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageProblem(f"{option}: {path} can't be read: {error.strerror}") from error


def parse_cursor(text: str) -> bytes:
    """A cursor, base64 as the events show it."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UsageProblem("a cursor is base64, as events show it") from error


def parse_enum(enum: Any, prefix: str, text: str, option: str) -> int:
    """The value of an enum of the contract by its short name, in any case: `completed`, `input-required`."""
    name = f"{prefix}_{text.strip().upper().replace('-', '_')}"
    names = [key for key in enum.keys() if not key.endswith("_UNSPECIFIED")]
    if name not in names:
        short = ", ".join(key.removeprefix(f"{prefix}_").lower() for key in names)
        raise UsageProblem(f"{option} is one of {short}, not `{text}`")
    number: int = enum.Value(name)
    return number


def parse_enums(enum: Any, prefix: str, texts: Sequence[str] | None, option: str) -> list[Any]:
    """Several of them, repeated or separated by commas."""
    parts = [part for text in texts or () for part in text.split(",") if part.strip()]
    return [parse_enum(enum, prefix, part, option) for part in parts]


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(text: str, option: str, now: datetime | None = None) -> datetime:
    """A time with its zone, or how long from now on: `90s`, `10m`, `2h`, `3d`."""
    relative = re.fullmatch(r"\+?(\d{1,5})([smhd])", text.strip())
    if relative is not None:
        return (now or datetime.now(UTC)) + timedelta(seconds=int(relative[1]) * _UNITS[relative[2]])
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageProblem(f"{option} is a time like 2026-01-31T08:00:00Z, or from now: 90s, 10m, 2h, 3d") from error
    if found.tzinfo is None:
        raise UsageProblem(f"{option} needs a time zone: 2026-01-31T08:00:00Z, or +01:00 at its end")
    return found
