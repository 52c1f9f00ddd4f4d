"""Options that several groups share, and lists that end at a limit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar

import typer

T = TypeVar("T")

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most rows to show.")]
All = Annotated[bool, typer.Option("--all", help="Show every row.")]
SessionOption = Annotated[str | None, typer.Option("--session", help="Only of this session.")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only of this task.")]
RunOption = Annotated[str | None, typer.Option("--run", help="Only of this run.")]
AgentOption = Annotated[str | None, typer.Option("--agent", help="The agent's name.")]
Metadata = Annotated[list[str] | None, typer.Option("--metadata", "-m", help="A fact as name=value. Repeatable.")]
ExpectedRevision = Annotated[
    int | None, typer.Option("--expected-revision", help="Refuse if it is not the current one.")
]
RequestId = Annotated[
    str | None, typer.Option("--request-id", help="The idempotency key; the same again has one effect. Default: new.")
]


def up_to(rows: Iterable[T], limit: int, everything: bool) -> Iterator[T]:
    """The first rows; no page is fetched beyond them."""
    return iter(rows) if everything else itertools.islice(rows, limit)


def page_size(limit: int, everything: bool) -> int:
    """The page size that fits."""
    return 1000 if everything else min(limit, 1000)
