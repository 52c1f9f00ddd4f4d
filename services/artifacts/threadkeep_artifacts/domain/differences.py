"""The difference of two texts as a unified diff. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from threadkeep_artifacts.domain.errors import ContentNotText

DEFAULT_CONTEXT_LINES = 3
MAX_CONTEXT_LINES = 1000


@dataclass(frozen=True)
class Difference:
    """What changed."""

    diff: str
    """A unified diff; empty if the texts are equal."""
    added_lines: int
    removed_lines: int


def to_lines(content: bytes) -> list[str]:
    """The lines of a text, with their ends; only `\\n` ends a line. Raises ContentNotText."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContentNotText() from error
    if "\x00" in text:
        raise ContentNotText()
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def difference(before: list[str], after: list[str], names: tuple[str, str], context_lines: int) -> Difference:
    """The unified diff from one text's lines to another's, under these names."""
    added = removed = 0
    out: list[str] = []
    for number, line in enumerate(difflib.unified_diff(before, after, *names, n=context_lines)):
        if number > 1:
            added += line.startswith("+")
            removed += line.startswith("-")
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return Difference("".join(out), added, removed)
