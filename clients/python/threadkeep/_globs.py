"""Glob patterns over virtual paths: `*`, `?`, `[...]`, and `**` for any depth. Nothing is looked up on a disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Says whether a relative path matches. A pattern without `/` is held against the last segment, at any depth; a
    leading `/` anchors it to the root of the search.
    """
    anchored = pattern.startswith("/")
    segments = [segment for segment in pattern.split("/") if segment]
    if not anchored and len(segments) == 1 and segments != ["**"]:
        only = re.compile(_segment(segments[0]) + r"\Z")
        return lambda path: only.match(path.rsplit("/", 1)[-1]) is not None
    text = ""
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if segment == "**":
            text += ".*" if is_last else "(?:[^/]+/)*"
        else:
            text += _segment(segment) + ("" if is_last else "/")
    whole = re.compile(text + r"\Z", re.DOTALL)
    return lambda path: whole.match(path) is not None


def _segment(segment: str) -> str:
    """A segment's pattern. Runs of stars count once: many of them would make the match slow."""
    text, at = "", 0
    segment = re.sub(r"\*+", "*", segment)
    while at < len(segment):
        one = segment[at]
        at += 1
        if one == "*":
            text += "[^/]*"
        elif one == "?":
            text += "[^/]"
        elif one == "[" and (end := segment.find("]", at + 1)) > 0:
            body = segment[at:end].replace("\\", "\\\\").replace("[", "\\[")
            text += "[" + ("^" + body[1:] if body.startswith("!") else body.replace("^", "\\^", 1)) + "]"
            at = end + 1
        else:
            text += re.escape(one)
    return text
