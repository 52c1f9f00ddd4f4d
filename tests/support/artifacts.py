"""Uploads and downloads for tests, as any client would write them with the stubs."""

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tests.support.calls import Metadata
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2_grpc, transfer_pb2

MIB = 1024 * 1024
SECONDS = 60.0

Stub = artifact_service_pb2_grpc.ArtifactServiceStub


def header(name: str = "report.md", request_id: str | None = None, **more: Any) -> transfer_pb2.UploadHeader:
    """A header; what is not a field of it goes into the metadata: `header(labels={"a": "b"}, create_only=True)`."""
    own = {
        key: more.pop(key)
        for key in ("artifact_id", "create_only", "expected_version", "upload_id", "offset")
        if key in more
    }
    return transfer_pb2.UploadHeader(
        request_id=request_id or fresh_id("request"), metadata=artifact_pb2.ArtifactMetadata(name=name, **more), **own
    )


def trailer(content: bytes) -> transfer_pb2.UploadTrailer:
    """The trailer that fits the content."""
    return transfer_pb2.UploadTrailer(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def frames(
    content: bytes,
    head: transfer_pb2.UploadHeader | None = None,
    end: transfer_pb2.UploadTrailer | None = None,
    cut: int = MIB,
) -> list[transfer_pb2.UploadVersionRequest]:
    """The frames of an upload, in chunks of `cut` bytes."""
    chunks = [content[at : at + cut] for at in range(0, len(content), cut)]
    return [
        transfer_pb2.UploadVersionRequest(header=head or header()),
        *(transfer_pb2.UploadVersionRequest(chunk=chunk) for chunk in chunks),
        transfer_pb2.UploadVersionRequest(trailer=end or trailer(content)),
    ]


async def send(stub: Stub, metadata: Metadata, requests: Iterable[transfer_pb2.UploadVersionRequest]) -> Any:
    """Sends frames and gives the call, finished without an error."""
    call = stub.UploadVersion(iter(requests), metadata=metadata, timeout=SECONDS)
    await call
    return call


async def upload(
    stub: Stub, metadata: Metadata, content: bytes, head: transfer_pb2.UploadHeader | None = None, **more: Any
) -> artifact_pb2.ArtifactVersion:
    """Uploads content and gives the version."""
    requests = frames(content, head or header(**more))
    return (await stub.UploadVersion(iter(requests), metadata=metadata, timeout=SECONDS)).version


async def download_frames(
    stub: Stub, metadata: Metadata, artifact_id: str, **more: Any
) -> AsyncIterator[transfer_pb2.DownloadVersionResponse]:
    """The frames of a download."""
    request = transfer_pb2.DownloadVersionRequest(artifact_id=artifact_id, **more)
    async for frame in stub.DownloadVersion(request, metadata=metadata, timeout=SECONDS):
        yield frame


async def download(stub: Stub, metadata: Metadata, artifact_id: str, **more: Any) -> bytes:
    """The bytes of a download."""
    found = bytearray()
    async for frame in download_frames(stub, metadata, artifact_id, **more):
        found += frame.chunk
    return bytes(found)
