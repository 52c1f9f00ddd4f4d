"""Facts about a text file, taken while it streams by: however large it is, it is never in memory as a whole.

Bytes that are not UTF-8 count as what a reader would see there: U+FFFD, which belongs to no word.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BLOCK_BYTES = 1024 * 1024
RANKED = 5

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_HEADING = re.compile(r"#{1,6}(\s|$)")


def digest(path: Path) -> tuple[str, int]:
    """SHA-256 in hexadecimal, and the size in bytes."""
    sha256, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            sha256.update(block)
            size += len(block)
    return sha256.hexdigest(), size


def counts(path: Path) -> tuple[int, int, int]:
    """Lines, words and Markdown headings. A last line without its line feed is a line."""
    lines = words = headings = 0
    for line in _lines(path):
        lines += 1
        words += sum(1 for _ in _WORD.finditer(line))
        headings += bool(_HEADING.match(line))
    return lines, words, headings


def commonest(path: Path) -> list[tuple[str, int]]:
    """The five commonest words with how often they occur; capitals make no difference, and ties go by the alphabet."""
    seen: Counter[str] = Counter()
    for line in _lines(path):
        seen.update(word.group().casefold() for word in _WORD.finditer(line))
    return sorted(seen.items(), key=lambda one: (-one[1], one[0]))[:RANKED]


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from file
