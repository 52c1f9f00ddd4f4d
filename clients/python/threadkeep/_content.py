"""Moves artifact content: uploads in chunks with size and digest, downloads that go on where they broke and verify.

Memory stays flat: one chunk at a time, whatever the content's size.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from threadkeep._api import artifacts
from threadkeep._errors import ThreadkeepError
from threadkeep._rpc.aio_transport import AioTransport
from threadkeep._rpc.context import CallContext, CallOptions, RetryPolicy
from threadkeep._rpc.transport import Transport
from threadkeep.artifacts.v1 import transfer_pb2
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion
from threadkeep.errors import CorruptContent, OffsetOutOfRange, UploadNotFound

CHUNK_BYTES = 512 * 1024
LARGE_BYTES = 8 * 1024 * 1024

Content = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO | Iterable[bytes]
"""What is uploaded: bytes, a path (text is a path), an open binary file, or chunks. An upload whose connection broke
goes on where it broke, except from chunks and from files that can't seek."""


class _Broken(Exception):
    """The content could not be read again from its start."""


class _Source:
    """Content that can be read from the start again, where that is possible."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._start = content.tell() if _seekable(content) else None  # type: ignore[union-attr]
        self._used = False

    @property
    def repeatable(self) -> bool:
        return self._start is not None or isinstance(self._content, bytes | bytearray | memoryview | str | os.PathLike)

    @property
    def is_large(self) -> bool:
        """True if it is worth asking what is kept of it before it is sent again."""
        if isinstance(self._content, bytes | bytearray | memoryview):
            return memoryview(self._content).nbytes > LARGE_BYTES
        if isinstance(self._content, str | os.PathLike):
            return Path(self._content).is_file() and os.path.getsize(self._content) > LARGE_BYTES
        if self._start is None:
            return False
        file = cast(BinaryIO, self._content)
        size = file.seek(0, os.SEEK_END) - self._start
        file.seek(self._start)
        return size > LARGE_BYTES

    def chunks(self) -> Iterator[bytes]:
        content = self._content
        if self._used and not self.repeatable:
            raise _Broken
        self._used = True
        if isinstance(content, bytes | bytearray | memoryview):
            view = memoryview(content).cast("B")
            for start in range(0, len(view), CHUNK_BYTES):
                yield bytes(view[start : start + CHUNK_BYTES])
        elif isinstance(content, str | os.PathLike):
            with open(content, "rb") as opened:
                yield from _read(opened)
        elif hasattr(content, "read"):
            file = cast(BinaryIO, content)
            if self._start is not None:
                file.seek(self._start)
            yield from _read(file)
        else:
            for chunk in content:
                for start in range(0, len(chunk), CHUNK_BYTES):
                    yield chunk[start : start + CHUNK_BYTES]


def _seekable(content: Any) -> bool:
    return callable(getattr(content, "seekable", None)) and bool(content.seekable())


def _read(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _messages(
    header: transfer_pb2.UploadHeader, source: _Source, failed: list[BaseException]
) -> Iterator[transfer_pb2.UploadVersionRequest]:
    yield transfer_pb2.UploadVersionRequest(header=header)
    digest, size = hashlib.sha256(), 0
    try:
        for chunk in source.chunks():
            digest.update(chunk)
            # What the server has kept is read for its digest only.
            unsent = chunk[max(0, header.offset - size) :]
            size += len(chunk)
            if unsent:
                yield transfer_pb2.UploadVersionRequest(chunk=unsent)
    except Exception as error:
        # gRPC would report a cancelled call; the reader's own error says what happened.
        failed.append(error)
        raise
    trailer = transfer_pb2.UploadTrailer(size=size, sha256=digest.hexdigest())
    yield transfer_pb2.UploadVersionRequest(trailer=trailer)


class _Resumable:
    """An upload that asks, before it starts again, how much is kept."""

    def __init__(self, header: transfer_pb2.UploadHeader, source: _Source) -> None:
        self.header = header
        # A name of the caller's may be known from before; else the first try starts at the start.
        self.asks = header.HasField("upload_id")
        if not self.asks and source.is_large:
            header.upload_id = header.request_id

    def broke(self) -> None:
        self.asks = self.header.HasField("upload_id")

    def call(self) -> Any:
        return artifacts.resume(self.header.upload_id)

    def goes_on(self, offset: int) -> None:
        self.header.offset = offset

    def starts_again(self, error: ThreadkeepError) -> bool:
        """True if what was kept is gone after all."""
        if not self.header.offset or not isinstance(error, UploadNotFound | OffsetOutOfRange):
            return False
        self.header.offset, self.asks = 0, False
        return True


class _Patience:
    """How long a transfer is tried again without any progress."""

    def __init__(self, options: CallOptions) -> None:
        self._retry = options.retry
        self._timeout = options.timeout
        self._attempt = 0
        self._since: float | None = None

    def progressed(self) -> None:
        self._attempt, self._since = 0, None

    def delay_after(self, error: ThreadkeepError) -> float:
        now = time.monotonic()
        self._since = self._since or now
        retry: RetryPolicy | None = self._retry
        if retry is None or not retry.retries(error) or now - self._since > self._timeout:
            raise error
        self._attempt += 1
        return retry.delay(self._attempt, error)


class _Progress:
    """A download as far as it came."""

    def __init__(self, artifact_id: str, version: int) -> None:
        self.artifact_id, self.number = artifact_id, version
        self.version: ArtifactVersion | None = None
        self.offset = 0
        self._digest = hashlib.sha256()

    def call(self) -> Any:
        return artifacts.download(self.artifact_id, self.number, offset=self.offset)

    def take(self, frame: transfer_pb2.DownloadVersionResponse) -> bytes | None:
        if frame.WhichOneof("part") == "version":
            # "The latest" means the same version after a break.
            self.version, self.number = self.version or frame.version, frame.version.version
            return None
        self._digest.update(frame.chunk)
        self.offset += len(frame.chunk)
        return frame.chunk

    def verify(self) -> None:
        if self.version is None or self.offset != self.version.size or self._digest.hexdigest() != self.version.sha256:
            raise CorruptContent(f"artifact {self.artifact_id} came with {self.offset} bytes or another digest")


def upload(
    transport: Transport,
    context: CallContext,
    options: CallOptions,
    header: transfer_pb2.UploadHeader,
    content: Content,
) -> ArtifactVersion:
    """Uploads content as a new version."""
    source, patience = _Source(content), _Patience(options)
    resumable = _Resumable(header, source)
    while True:
        failed: list[BaseException] = []
        try:
            if resumable.asks:
                try:
                    resumable.goes_on(transport.unary(resumable.call(), context, options))
                except UploadNotFound:
                    resumable.goes_on(0)
            response = transport.upload(artifacts.UPLOAD, _messages(header, source, failed), context)
        except ThreadkeepError as error:
            if failed:
                raise failed[0] from error
            if not source.repeatable:
                raise
            if resumable.starts_again(error):
                continue
            resumable.broke()
            time.sleep(patience.delay_after(error))
        else:
            return response.version


async def aupload(
    transport: AioTransport,
    context: CallContext,
    options: CallOptions,
    header: transfer_pb2.UploadHeader,
    content: Content | AsyncIterable[bytes],
) -> ArtifactVersion:
    """The same for asyncio; files are read in a thread."""
    if isinstance(content, AsyncIterable):
        streamed = await transport.upload(artifacts.UPLOAD, _messages_of(header, content), context)
        return streamed.version
    source, patience = _Source(content), _Patience(options)
    resumable = _Resumable(header, source)
    while True:
        failed: list[BaseException] = []
        messages = _messages(header, source, failed)
        try:
            if resumable.asks:
                try:
                    resumable.goes_on(await transport.unary(resumable.call(), context, options))
                except UploadNotFound:
                    resumable.goes_on(0)
            response = await transport.upload(artifacts.UPLOAD, _in_thread(messages), context)
        except ThreadkeepError as error:
            if failed:
                raise failed[0] from error
            if not source.repeatable:
                raise
            if resumable.starts_again(error):
                continue
            resumable.broke()
            await asyncio.sleep(patience.delay_after(error))
        else:
            return response.version


async def _messages_of(
    header: transfer_pb2.UploadHeader, content: AsyncIterable[bytes]
) -> AsyncIterator[transfer_pb2.UploadVersionRequest]:
    """An upload as its chunks come; they can't be had again, so it is tried once."""
    yield transfer_pb2.UploadVersionRequest(header=header)
    digest, size = hashlib.sha256(), 0
    async for chunk in content:
        digest.update(chunk)
        size += len(chunk)
        for start in range(0, len(chunk), CHUNK_BYTES):
            yield transfer_pb2.UploadVersionRequest(chunk=chunk[start : start + CHUNK_BYTES])
    yield transfer_pb2.UploadVersionRequest(trailer=transfer_pb2.UploadTrailer(size=size, sha256=digest.hexdigest()))


async def _in_thread(items: Iterator[Any]) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item


def download(transport: Transport, context: CallContext, options: CallOptions, progress: _Progress) -> Iterator[bytes]:
    """The content in chunks, verified at the end."""
    patience = _Patience(options)
    while True:
        frames = transport.frames(progress.call(), context)
        try:
            for frame in frames:
                chunk = progress.take(frame)
                patience.progressed()
                if chunk:
                    yield chunk
        except ThreadkeepError as error:
            time.sleep(patience.delay_after(error))
        else:
            progress.verify()
            return
        finally:
            frames.close()  # type: ignore[attr-defined]


async def adownload(
    transport: AioTransport, context: CallContext, options: CallOptions, progress: _Progress
) -> AsyncIterator[bytes]:
    """The same for asyncio."""
    patience = _Patience(options)
    while True:
        frames = transport.frames(progress.call(), context)
        try:
            async for frame in frames:
                chunk = progress.take(frame)
                patience.progressed()
                if chunk:
                    yield chunk
        except ThreadkeepError as error:
            await asyncio.sleep(patience.delay_after(error))
        else:
            progress.verify()
            return
        finally:
            await frames.aclose()  # type: ignore[attr-defined]


Progress = _Progress


def replacing(path: str | os.PathLike[str]) -> tuple[BinaryIO, Callable[[], None], Callable[[], None]]:
    """A file beside `path` to write to, what puts it in place, and what throws it away: readers of `path` never see a
    half download."""
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    file = os.fdopen(descriptor, "wb")

    def finish() -> None:
        file.close()
        os.replace(name, target)

    def discard() -> None:
        file.close()
        Path(name).unlink(missing_ok=True)

    return file, finish, discard
