"""The report's text, and how its facts are read back out of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ROW = re.compile(r"^\| (?P<fact>[^|]+?) \| (?P<value>.*?) \|$", re.MULTILINE)


def render(
    name: str, *, sha256: str, size: int, lines: int, words: int, headings: int, commonest: Sequence[tuple[str, int]]
) -> str:
    """The report in Markdown."""
    ranked = ", ".join(f"{word} ({count})" for word, count in commonest) or "none"
    rows = [
        ("SHA-256", sha256),
        ("Bytes", str(size)),
        ("Lines", str(lines)),
        ("Words", str(words)),
        ("Headings", str(headings)),
        ("Commonest words", ranked),
    ]
    table = "\n".join(f"| {fact} | {value} |" for fact, value in rows)
    return f"# Report on {name}\n\n| Fact | Value |\n|---|---|\n{table}\n"


def parse(text: str) -> dict[str, str]:
    """The facts of a report, by their names."""
    found = {match["fact"]: match["value"] for match in _ROW.finditer(text)}
    found.pop("Fact", None)
    return found
