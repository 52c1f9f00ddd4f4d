"""The difference of two texts as a unified diff. Pure."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import Any

from threadkeep_artifacts.domain.errors import ContentNotText

DEFAULT_CONTEXT_LINES = 3
MAX_CONTEXT_LINES = 1000

_CLOSELY = 250_000
"""Lines of one part times lines of the other, up to which they are compared closely."""


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
    if before == after:
        return Difference("", 0, 0)
    # It groups what was found here.
    matcher: Any = difflib.SequenceMatcher(None, "", "", autojunk=False)
    matcher.a, matcher.b = before, after
    matcher.matching_blocks = [*_joined(_matches(before, after)), difflib.Match(len(before), len(after), 0)]
    out = [f"--- {names[0]}\n", f"+++ {names[1]}\n"]
    added = removed = 0
    for group in matcher.get_grouped_opcodes(context_lines):
        (_, from_start, _, to_start, _), (_, _, from_stop, _, to_stop) = group[0], group[-1]
        out.append(f"@@ -{_range(from_start, from_stop)} +{_range(to_start, to_stop)} @@\n")
        for tag, a, a_stop, b, b_stop in group:
            if tag == "equal":
                out += [_line(" ", line) for line in before[a:a_stop]]
                continue
            out += [_line("-", line) for line in before[a:a_stop]]
            out += [_line("+", line) for line in after[b:b_stop]]
            removed += a_stop - a
            added += b_stop - b
    return Difference("".join(out), added, removed)


def _matches(before: list[str], after: list[str]) -> list[difflib.Match]:
    """Equal runs of lines, in order. It looks for lines that both texts have once (patience diff), and compares closely
    only between those, in pieces of a bounded size: no text makes it slow.
    """
    found: list[difflib.Match] = []
    todo = [(0, len(before), 0, len(after))]
    while todo:
        a, a_stop, b, b_stop = todo.pop()
        start = a
        while a < a_stop and b < b_stop and before[a] == after[b]:
            a, b = a + 1, b + 1
        if a > start:
            found.append(difflib.Match(start, b - (a - start), a - start))
        end = a_stop
        while a < a_stop and b < b_stop and before[a_stop - 1] == after[b_stop - 1]:
            a_stop, b_stop = a_stop - 1, b_stop - 1
        if end > a_stop:
            found.append(difflib.Match(a_stop, b_stop, end - a_stop))
        if a == a_stop or b == b_stop:
            continue
        anchors = _anchors(before, after, (a, a_stop, b, b_stop))
        if anchors:
            for anchor_a, anchor_b in [*anchors, (a_stop, b_stop)]:
                todo.append((a, anchor_a, b, anchor_b))
                if anchor_a < a_stop:
                    found.append(difflib.Match(anchor_a, anchor_b, 1))
                a, b = anchor_a + 1, anchor_b + 1
        elif (a_stop - a) * (b_stop - b) <= _CLOSELY:
            close = difflib.SequenceMatcher(None, before[a:a_stop], after[b:b_stop], autojunk=False)
            found += [difflib.Match(a + m.a, b + m.b, m.size) for m in close.get_matching_blocks() if m.size]
    return sorted(found)


def _anchors(before: list[str], after: list[str], part: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Places of lines that both parts have exactly once: the longest series that grows in both."""
    a, a_stop, b, b_stop = part
    in_before, in_after = Counter(before[a:a_stop]), Counter(after[b:b_stop])
    places = {line: at for at, line in enumerate(after[b:b_stop], b) if in_after[line] == 1}
    pairs = [
        (at, places[line]) for at, line in enumerate(before[a:a_stop], a) if in_before[line] == 1 and line in places
    ]
    # Longest increasing series of the second places, by the usual piles.
    tops: list[int] = []
    piles: list[int] = []
    previous: list[int] = []
    for index, (_, place) in enumerate(pairs):
        pile = bisect_left(tops, place)
        previous.append(piles[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(place)
            piles.append(index)
        else:
            tops[pile], piles[pile] = place, index
    series = []
    index = piles[-1] if piles else -1
    while index >= 0:
        series.append(pairs[index])
        index = previous[index]
    return series[::-1]


def _joined(matches: list[difflib.Match]) -> list[difflib.Match]:
    """Adjacent runs as one."""
    joined: list[difflib.Match] = []
    for match in matches:
        if joined and joined[-1].a + joined[-1].size == match.a and joined[-1].b + joined[-1].size == match.b:
            joined[-1] = difflib.Match(joined[-1].a, joined[-1].b, joined[-1].size + match.size)
        else:
            joined.append(match)
    return joined


def _range(start: int, stop: int) -> str:
    """As unified diffs count: from 1, and an empty range is named by the line before it."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
