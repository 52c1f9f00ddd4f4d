"""The blob store that lies in a directory: a file per chunk, in two levels of shards.

A chunk is written beside its place, flushed, and then linked to it: it is there whole or not at all, and the first
writer wins. File names come from digests of blob ids, never from a caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from threadkeep_artifacts.domain.content import unbroken
from threadkeep_artifacts.domain.errors import ChunkTaken, ContentStoreUnavailable

CHUNK_BYTES = 4 * 1024 * 1024

T = TypeVar("T")


class DirectoryBlobs:
    """Implements `BlobStore`. Files are touched in threads."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    async def start(self) -> None:
        """See the port: makes the directory, and tries it."""

        def try_it() -> None:
            self._root.mkdir(parents=True, exist_ok=True)
            probe = self._root / f".probe-{uuid.uuid4().hex}"
            with open(probe, "xb") as file:
                os.fsync(file.fileno())
            probe.unlink()
            _flush(self._root)

        await _in_thread(try_it)

    async def write_chunk(self, blob_id: str, index: int, content: bytes) -> None:
        """See the port."""
        if not await _in_thread(lambda: self._write(self._folder(blob_id), index, content)):
            raise ChunkTaken()

    async def read_chunk(self, blob_id: str, index: int) -> bytes | None:
        """See the port."""

        def read() -> bytes | None:
            with contextlib.suppress(FileNotFoundError):
                return (self._folder(blob_id) / _name(index)).read_bytes()
            return None

        return await _in_thread(read)

    async def sign_chunks(self, blob_id: str, indexes: Sequence[int], seconds: float) -> None:
        """See the port: there are no addresses."""

    async def count_chunks(self, blob_id: str) -> int:
        """See the port."""

        def count() -> int:
            names = [name for name in _listed(self._folder(blob_id)) if name.isdigit()]
            return unbroken(int(name) for name in sorted(names))

        return await _in_thread(count)

    async def remove_chunks(self, blob_id: str, at_most: int) -> int:
        """See the port."""

        def remove() -> int:
            folder = self._folder(blob_id)
            removed = 0
            # What is not a chunk is the beginning of one, whose writer died.
            for name in sorted(_listed(folder)):
                if removed == at_most:
                    return removed
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).unlink()
                    removed += 1
            # A late writer may have put something there again; the next pass takes that.
            with contextlib.suppress(OSError):
                folder.rmdir()
            return removed

        return await _in_thread(remove)

    def _folder(self, blob_id: str) -> Path:
        digest = hashlib.sha256(blob_id.encode()).hexdigest()
        return self._root / digest[:2] / digest[2:4] / digest

    def _write(self, folder: Path, index: int, content: bytes) -> bool:
        place = folder / _name(index)
        self._make(folder)
        beginning = folder / f"{place.name}.{uuid.uuid4().hex}.part"
        try:
            with open(beginning, "xb", buffering=0) as file:
                view = memoryview(content)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
            try:
                os.link(beginning, place)
            except FileExistsError:
                return place.read_bytes() == content
            _flush(folder)
            return True
        finally:
            beginning.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            _flush(one.parent)


def _name(index: int) -> str:
    return f"{index:08d}"


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _flush(folder: Path) -> None:
    """Makes the names in a directory last, as fsync does for a file's bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        # Without the path: messages go to callers.
        raise ContentStoreUnavailable("directory", os.strerror(error.errno or 0)) from error
