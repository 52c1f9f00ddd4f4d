"""A progress bar for content that is sent or received: on a terminal only, and never in the way of the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

Moved = Callable[[int], None]
"""Told the number of bytes that moved just now."""


@contextmanager
def transfer(what: str, size: int | None) -> Iterator[Moved]:
    """Shows progress on stderr for the block. `size` in bytes; None if it is not known."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=size)
        yield lambda count: progress.advance(task, count)


class Counted:
    """A binary file that tells how much of it was read."""

    def __init__(self, file: BinaryIO, moved: Moved) -> None:
        self._file, self._moved = file, moved

    def read(self, size: int = -1) -> bytes:
        """Reads."""
        found = self._file.read(size)
        self._moved(len(found))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
