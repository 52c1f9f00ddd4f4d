"""What file tools answer: `threadkeep.files` gives these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired, TypedDict


class FileInfo(TypedDict):
    """An entry of a list. Times are ISO 8601, sizes in bytes."""

    path: str
    is_dir: NotRequired[bool]
    size: NotRequired[int]
    modified_at: NotRequired[str]


class FileData(TypedDict):
    """A file's content: text, or base64 of what is no text."""

    content: str
    encoding: str
    modified_at: NotRequired[str]


class GrepMatch(TypedDict):
    """A line that matches; lines count from 1."""

    path: str
    line: int
    text: str


@dataclass
class LsResult:
    """What a directory holds."""

    error: str | None = None
    entries: list[FileInfo] | None = None


@dataclass
class ReadResult:
    """Lines of a file; `start_line` and `end_line` count from 1, `next_offset` from 0."""

    error: str | None = None
    file_data: FileData | None = None
    total_lines: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    next_offset: int | None = None
    no_lines_requested: bool = False


@dataclass
class WriteResult:
    """What was written."""

    error: str | None = None
    path: str | None = None


@dataclass
class EditResult:
    """What was replaced."""

    error: str | None = None
    path: str | None = None
    occurrences: int | None = None


@dataclass
class DeleteResult:
    """What was deleted."""

    error: str | None = None
    path: str | None = None


@dataclass
class GlobResult:
    """The files that match."""

    error: str | None = None
    matches: list[FileInfo] | None = None
    truncated: bool = False
    truncation_reason: str | None = None


@dataclass
class GrepResult:
    """The lines that match."""

    error: str | None = None
    matches: list[GrepMatch] | None = None
    truncated: bool = False


@dataclass
class FileUploadResponse:
    """What became of one file that was uploaded."""

    path: str
    error: str | None = None


@dataclass
class FileDownloadResponse:
    """One file that was asked for."""

    path: str
    content: bytes | None = None
    error: str | None = None
