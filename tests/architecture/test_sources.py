"""Rules about our sources that no linter knows: dialects, sizes, and what the repository must not carry."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 400
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")

# Where a dialect may be named outside the chassis, and why.
DIALECT_ALLOWED = {
    "services/embedded/": "the daemon turns --database and --data-dir into database settings",
    "services/runtime/threadkeep_runtime/migrations/": "LangGraph's own table definitions are PostgreSQL's",
}
DIALECT = re.compile(r"postgres|sqlite|asyncpg|psycopg|dialect", re.IGNORECASE)


def _tracked(*patterns: str) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            yield Path(name)


def _code(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a Python file that are not comments or docstrings, with their numbers."""
    import tokenize

    with (ROOT / path).open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    previous = tokenize.NEWLINE
    for token in tokens:
        skipped = token.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
        starts = previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if not skipped and not (token.type == tokenize.STRING and starts):
            yield token.start[0], token.string
        if not skipped:
            previous = token.type


@pytest.mark.rule("R22")
def test_no_dialect_is_named_outside_the_chassis() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path in _tracked("services/*.py")
        if not str(path).startswith(("services/chassis/", *DIALECT_ALLOWED))
        for line, text in _code(path)
        if DIALECT.search(text)
    ]
    assert found == []


def test_no_source_file_is_longer_than_it_can_be_read() -> None:
    sizes = {
        str(path): (ROOT / path).read_text().count("\n") for path in _tracked("*.py") if not GENERATED.search(path.name)
    }
    assert {path: size for path, size in sizes.items() if size > LONGEST} == {}


def test_every_module_says_what_it_is_for() -> None:
    """A module of ours starts with its docstring; an empty package file has nothing to say."""
    import ast

    bare = [
        str(path)
        for path in _tracked("services/*.py", "clients/*.py", "tests/*.py", "tools/*.py")
        if not GENERATED.search(path.name)
        and (source := (ROOT / path).read_text().strip())
        and ast.get_docstring(ast.parse(source)) is None
    ]
    assert bare == []


def test_constraints_are_exact_versions_without_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line)] == []
