"""Differences of texts: as unified diffs say them, whatever the texts are, and never slow (A1)."""

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_artifacts.domain.differences import difference, to_lines
from threadkeep_artifacts.domain.errors import ContentNotText

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n"]), max_size=30)


@pytest.mark.rule("A1")
@given(TEXTS, TEXTS, st.sampled_from(["", "end"]), st.sampled_from(["", "end", "fin"]), st.integers(0, 3))
def test_a_diff_applied_to_the_older_text_gives_the_newer(
    before: list[str], after: list[str], before_end: str, after_end: str, context: int
) -> None:
    old, new = "".join(before) + before_end, "".join(after) + after_end
    found = difference(to_lines(old.encode()), to_lines(new.encode()), ("old", "new"), context)
    assert (found.diff == "") == (old == new)
    assert _applied(old, found.diff) == new
    marks = [line[0] for line in found.diff.split("\n")[2:] if line]
    assert (found.added_lines, found.removed_lines) == (marks.count("+"), marks.count("-"))


def _applied(old: str, diff: str) -> str:
    """The newer text, by the diff alone."""
    lines, out, at, previous = to_lines(old.encode()), [], 0, ""
    for line in diff.split("\n")[2:-1] if diff else []:
        mark, rest = line[:1], line[1:]
        if mark == "@":
            start, _, count = rest.split()[1][1:].partition(",")
            begin = int(start) - (0 if count == "0" else 1)
            out += lines[at:begin]
            at = begin
        elif mark == "\\":
            out[-1:] = [out[-1].removesuffix("\n")] if out and previous != "-" else out[-1:]
        elif mark == "+":
            out.append(rest + "\n")
        else:
            assert lines[at].removesuffix("\n") == rest
            if mark == " ":
                out.append(lines[at])
            at += 1
        previous = mark
    return "".join(out + lines[at:])


@pytest.mark.rule("A1")
def test_the_tool_that_everybody_has_takes_it(tmp_path: Path) -> None:
    choose = random.Random(7)
    old = [f"line {number}\n" for number in range(300)]
    new = [line for line in old if choose.random() > 0.1]
    for _ in range(20):
        new.insert(choose.randrange(len(new)), f"new {choose.random()}\n")
    found = difference(old, new, ("a/f", "b/f"), 3)
    (tmp_path / "f").write_text("".join(old))
    subprocess.run(["git", "apply", "-"], input=found.diff, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_text() == "".join(new)


@pytest.mark.rule("A1", "X9")
@pytest.mark.parametrize("kind", ["periods", "random", "reversed", "one line"])
def test_no_text_keeps_it_busy_for_long(kind: str) -> None:
    size, choose = 20_000, random.Random(3)
    old = [f"{number % 100}\n" for number in range(size)]
    new = {
        "periods": [f"{number * 7 % 100}\n" for number in range(size)],
        "random": [f"{choose.randrange(100)}\n" for _ in range(size)],
        "reversed": [f"unique {number}\n" for number in range(size)][::-1],
        "one line": ["\n"] * (size - 1),
    }[kind]
    if kind == "reversed":
        old = new[::-1]
    elif kind == "one line":
        old = ["\n"] * size
    # A close comparison of all with all would take many minutes.
    found = difference(old, new, ("a", "b"), 3)
    assert len(old) - found.removed_lines == len(new) - found.added_lines


@pytest.mark.rule("A1")
@pytest.mark.parametrize("content", [b"\xff", b"a\x00b", b"\xc3"])
def test_what_is_no_text_has_no_lines(content: bytes) -> None:
    with pytest.raises(ContentNotText):
        to_lines(content)
