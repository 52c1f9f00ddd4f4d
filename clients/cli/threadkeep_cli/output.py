"""How answers are shown: tables and texts for people, one JSON document (or JSON lines, for streams) for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from threadkeep_cli.plain import to_plain

PLAIN_WIDTH = 200
"""Columns of a table that nobody watches: what goes into a pipe is not cut to 80."""


class Output(StrEnum):
    """How to show."""

    TABLE = "table"
    JSON = "json"


Column = tuple[str, Callable[[dict[str, Any]], Any]]
"""A heading, and what stands under it, from the plain form of a message."""


class Printer:
    """Shows answers on standard output."""

    def __init__(self, output: Output) -> None:
        self.output = output
        width = None if sys.stdout.isatty() else PLAIN_WIDTH
        self.console = Console(width=width, highlight=False, soft_wrap=False)

    @property
    def is_json(self) -> bool:
        """True if the answer is for a program."""
        return self.output is Output.JSON

    def one(self, message: Message | dict[str, Any]) -> None:
        """Shows one record."""
        plain = to_plain(message)
        if self.is_json:
            self.document(plain)
            return
        for name, value in _lines(plain):
            self.console.print(f"[bold]{escape(name)}[/bold]  {escape(value)}")

    def many(
        self, messages: Iterable[Message | dict[str, Any]], columns: Sequence[Column], empty: str = "nothing"
    ) -> None:
        """Shows a list: an array, or a table with these columns."""
        rows = [to_plain(message) for message in messages]
        if self.is_json:
            self.document(rows)
            return
        if not rows:
            self.console.print(f"[dim]{escape(empty)}[/dim]")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading, _ in columns:
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*(escape(_text(read(row))) for _, read in columns))
        self.console.print(table)

    def line(self, message: Message | dict[str, Any], show: Callable[[dict[str, Any]], str]) -> None:
        """Shows one item of a stream at once: a JSON line, or what `show` makes of it."""
        plain = to_plain(message)
        text = json.dumps(plain, ensure_ascii=False) if self.is_json else show(plain)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        """Says something as it stands."""
        self.console.print(text, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Says something to people alone."""
        if not self.is_json:
            self.console.print(f"[dim]{escape(text)}[/dim]")

    def document(self, value: Any) -> None:
        """Prints one JSON document."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def short(name: str) -> Callable[[dict[str, Any]], str]:
    """An enum's value without its prefix: `TASK_STATE_COMPLETED` in the field `state` is `completed`."""

    def read(row: dict[str, Any]) -> str:
        return short_name(row.get(name, ""))

    return read


def short_name(value: Any) -> str:
    """The last part of an enum value's name, in small letters."""
    text = str(value)
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text.lower()


def field(name: str) -> Callable[[dict[str, Any]], Any]:
    """The value of a field; a dot leads into a message."""

    def read(row: dict[str, Any]) -> Any:
        found: Any = row
        for part in name.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        return found

    return read


_PREFIXES = (
    "SESSION_STATUS_",
    "TASK_STATE_",
    "RUN_STATE_",
    "RUN_END_CAUSE_",
    "TICKET_STATE_",
    "TICKET_KIND_",
    "ENTITY_TYPE_",
    "SOURCE_KIND_",
    "SET_ACTION_",
    "MESSAGE_ROLE_",
    "VISIBILITY_",
    "LIVE_KIND_",
    "STATE_SCOPE_",
    "STATE_MERGE_",
)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _lines(plain: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """Every value with its path; what is empty is left out."""
    if isinstance(plain, dict) and plain and (not path or any(isinstance(one, dict | list) for one in plain.values())):
        for name, value in plain.items():
            yield from _lines(value, f"{path}.{name}" if path else name)
    elif plain not in ("", [], {}, None):
        yield path, _text(plain)
