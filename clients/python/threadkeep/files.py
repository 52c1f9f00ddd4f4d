"""Files for agents: list, read, write, edit, glob and grep over the artifacts of a session or of one run (A8).

files = ArtifactFiles(client, session_id="s-1")
files.write("/notes/plan.md", "# Plan")
files.edit("/notes/plan.md", "Plan", "The plan")

Methods, results and their fields are those that deepagents-style tools call on a backend: what goes wrong comes back
as `error`, in words for the model. Every change is a version of an artifact with that path; nothing touches a disk.
Methods that begin with `a` do the same in a thread.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from threadkeep._file_results import (
    DeleteResult,
    EditResult,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from threadkeep._globs import matcher
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion
from threadkeep.client import Client
from threadkeep.errors import ArtifactNotFound, FieldInvalid, PathTaken, RevisionConflict

MOST_GREPPED_BYTES = 10 * 1024 * 1024
"""Larger files are not searched."""

MOST_PATH_BYTES = 1024

_ATTEMPTS = 10


class ArtifactFiles:
    """A tree of files whose paths belong to one session."""

    def __init__(
        self,
        client: Client,
        *,
        session_id: str,
        run_id: str | None = None,
        only_run: bool = False,
        on_written: Callable[[ArtifactVersion], None] = lambda _: None,
        **fields: Any,
    ) -> None:
        """`run_id` is noted with what is written; with `only_run` nothing that other runs wrote is seen. `on_written`
        is told each version that was made. `fields` are further metadata of every version, as
        `client.artifacts.upload` takes them.
        """
        self._on_written = on_written
        self._client = client
        self._session_id = session_id
        self._filter: dict[str, Any] = {"session_id": session_id, "run_id": run_id if only_run else None}
        self._fields: Mapping[str, Any] = {"session_id": session_id, "run_id": run_id, **fields}

    def ls(self, path: str) -> LsResult:
        """What a directory holds: its files, and the directories right below it."""
        folder = path.rstrip("/") + "/"
        entries: dict[str, FileInfo] = {}
        for version in self._under(folder):
            name, separator, _ = version.metadata.path[len(folder) :].partition("/")
            if separator:
                entries.setdefault(folder + name + "/", FileInfo(path=folder + name + "/", is_dir=True))
            else:
                entries[version.metadata.path] = _info(version)
        return LsResult(entries=list(entries.values()))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Up to `limit` lines of a text from line `offset` (counted from 0) on; what is no text comes whole."""
        if limit <= 0:
            return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
        found = self._content(file_path)
        if found is None:
            return ReadResult(error=_not_found(file_path))
        version, raw = found
        modified_at = _time(version)
        try:
            lines = raw.decode().splitlines(keepends=True)
        except UnicodeDecodeError:
            text = base64.b64encode(raw).decode()
            return ReadResult(file_data=FileData(content=text, encoding="base64", modified_at=modified_at))
        start = max(0, offset)
        window = lines[start : start + limit]
        data = FileData(content="".join(window), encoding="utf-8", modified_at=modified_at)
        if not window:
            if start and lines:
                return ReadResult(error=f"Line offset {start} exceeds the file's length ({len(lines)} lines)")
            return ReadResult(file_data=data)
        end = start + len(window)
        more = end if end < len(lines) else None
        return ReadResult(file_data=data, total_lines=len(lines), start_line=start + 1, end_line=end, next_offset=more)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Writes a text file, a new one or a new version; equal content makes none."""
        try:
            self._write(file_path, content.encode())
        except FieldInvalid as error:
            return WriteResult(error=_invalid(file_path, error))
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a text that occurs once, or everywhere; another writer's change in between is not lost."""
        for _ in range(_ATTEMPTS):
            found = self._content(file_path)
            if found is None:
                return EditResult(error=_not_found(file_path))
            version, raw = found
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                return EditResult(error=f"'{file_path}' is no text")
            count = text.count(old_string) if old_string else 0
            if count == 0:
                return EditResult(error=f"String not found in file: '{old_string}'")
            if count > 1 and not replace_all:
                return EditResult(
                    error=f"String '{old_string}' appears {count} times in file; use replace_all=True or more context"
                )
            try:
                self._add(file_path, text.replace(old_string, new_string).encode(), version)
            except RevisionConflict:
                continue
            return EditResult(path=file_path, occurrences=count)
        return EditResult(error=f"'{file_path}' is being changed by others; try again")

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or everything below a directory. Deleted files can be restored for a while."""
        below = file_path.rstrip("/") + "/"
        found = [one for one in (self._find(file_path),) if one is not None] + [*self._under(below)]
        if not found:
            return DeleteResult(error=_not_found(file_path))
        for version in found:
            try:
                self._client.artifacts.delete(version.artifact_id)
            except ArtifactNotFound:
                # Somebody else did.
                continue
        return DeleteResult(path=file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The files below `path` that match: a pattern without `/` by their name at any depth, one with `/` by their
        path from there, with `**` for any depth.
        """
        folder = (path or "/").rstrip("/") + "/"
        try:
            matches = matcher(pattern)
        except re.error as error:
            return GlobResult(error=f"Invalid pattern '{pattern}': {error}")
        return GlobResult(
            matches=[_info(one) for one in self._under(folder) if matches(one.metadata.path[len(folder) :])]
        )

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """The lines of texts below `path`, or of that file, that hold `pattern` literally."""
        found: list[GrepMatch] = []
        truncated = False
        try:
            wanted = matcher(glob if glob is not None else "*")
        except re.error as error:
            return GrepResult(error=f"Invalid pattern '{glob}': {error}")
        for version, relative in self._searched(path or "/"):
            if not wanted(relative):
                continue
            if version.size > MOST_GREPPED_BYTES:
                truncated = True
                continue
            try:
                text = self._client.artifacts.read(version.artifact_id, version.version).decode()
            except (ArtifactNotFound, UnicodeDecodeError):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if pattern in line:
                    if max_count is not None and len(found) == max_count:
                        return GrepResult(matches=found, truncated=True)
                    found.append(GrepMatch(path=version.metadata.path, line=number, text=line))
        return GrepResult(matches=found, truncated=truncated)

    def upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files of any content."""
        answers = []
        for path, content in files:
            try:
                self._write(path, content)
                answers.append(FileUploadResponse(path))
            except FieldInvalid:
                answers.append(FileUploadResponse(path, "invalid_path"))
        return answers

    def download_files(self, paths: Sequence[str]) -> list[FileDownloadResponse]:
        """Reads files whole."""
        answers = []
        for path in paths:
            found = self._content(path)
            answers.append(
                FileDownloadResponse(path, error="file_not_found")
                if found is None
                else FileDownloadResponse(path, found[1])
            )
        return answers

    async def als(self, path: str) -> LsResult:
        """As `ls`."""
        return await asyncio.to_thread(self.ls, path)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """As `read`."""
        return await asyncio.to_thread(self.read, file_path, offset, limit)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As `write`."""
        return await asyncio.to_thread(self.write, file_path, content)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """As `edit`."""
        return await asyncio.to_thread(self.edit, file_path, old_string, new_string, replace_all)

    async def adelete(self, file_path: str) -> DeleteResult:
        """As `delete`."""
        return await asyncio.to_thread(self.delete, file_path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """As `glob`."""
        return await asyncio.to_thread(self.glob, pattern, path)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """As `grep`."""
        return await asyncio.to_thread(lambda: self.grep(pattern, path, glob, max_count=max_count))

    async def aupload_files(self, files: Sequence[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return await asyncio.to_thread(self.upload_files, files)

    async def adownload_files(self, paths: Sequence[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return await asyncio.to_thread(self.download_files, paths)

    def _under(self, prefix: str) -> Iterator[ArtifactVersion]:
        if not _can_be(prefix):
            return iter(())
        return self._client.artifacts.list(path_prefix=prefix, page_size=1000, **self._filter)

    def _searched(self, path: str) -> Iterator[tuple[ArtifactVersion, str]]:
        folder = path.rstrip("/") + "/"
        alone = self._find(path) if not path.endswith("/") else None
        if alone is not None:
            yield alone, path.rsplit("/", 1)[1]
        for version in self._under(folder):
            yield version, version.metadata.path[len(folder) :]

    def _find(self, path: str, *, of_any_run: bool = False) -> ArtifactVersion | None:
        """The file of exactly this path: paths are sorted, so it comes first of those that begin so."""
        if not _can_be(path):
            return None
        wanted: dict[str, Any] = {"session_id": self._session_id} if of_any_run else self._filter
        first = next(iter(self._client.artifacts.list(path_prefix=path, page_size=1, **wanted)), None)
        return first if first is not None and first.metadata.path == path else None

    def _content(self, path: str) -> tuple[ArtifactVersion, bytes] | None:
        version = self._find(path)
        if version is None:
            return None
        try:
            return version, self._client.artifacts.read(version.artifact_id, version.version)
        except ArtifactNotFound:
            return None

    def _write(self, path: str, content: bytes) -> ArtifactVersion:
        digest = hashlib.sha256(content).hexdigest()
        for _ in range(_ATTEMPTS):
            # A path is of one artifact of the session, whichever run made it.
            there = self._find(path, of_any_run=True)
            if there is not None and there.sha256 == digest and self._find(path) is not None:
                return there
            try:
                return self._add(path, content, there)
            except (PathTaken, RevisionConflict, ArtifactNotFound):
                # Another writer was there first.
                continue
        return self._add(path, content, self._find(path, of_any_run=True))

    def _add(self, path: str, content: bytes, before: ArtifactVersion | None) -> ArtifactVersion:
        onto: dict[str, Any] = (
            {} if before is None else {"artifact_id": before.artifact_id, "expected_version": before.version}
        )
        name = path.rsplit("/", 1)[-1][:256] or "file"
        version = self._client.artifacts.upload(content, name, path=path, **self._fields, **onto)
        self._on_written(version)
        return version


def _can_be(path: str) -> bool:
    """False for what no path begins with: the server would refuse to look for it."""
    return 0 < len(path.encode(errors="replace")) <= MOST_PATH_BYTES and path.startswith("/") and "\x00" not in path


def _info(version: ArtifactVersion) -> FileInfo:
    return FileInfo(path=version.metadata.path, is_dir=False, size=version.size, modified_at=_time(version))


def _time(version: ArtifactVersion) -> str:
    return version.create_time.ToJsonString()


def _not_found(path: str) -> str:
    return f"File '{path}' not found"


def _invalid(path: str, error: FieldInvalid) -> str:
    return f"Invalid path '{path}': {'; '.join(one.description for one in error.violations) or error.message}"


__all__ = [
    "ArtifactFiles",
    "DeleteResult",
    "EditResult",
    "FileData",
    "FileDownloadResponse",
    "FileInfo",
    "FileUploadResponse",
    "GlobResult",
    "GrepMatch",
    "GrepResult",
    "LsResult",
    "ReadResult",
    "WriteResult",
]
