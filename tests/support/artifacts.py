"""Uploads and downloads for tests, as any client would write them with the stubs."""

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tests.support.calls import Metadata
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2_grpc
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

MIB = 1024 * 1024
SECONDS = 60.0

Stub = artifact_service_pb2_grpc.ArtifactServiceStub


def header(name: str = "report.md", request_id: str | None = None, **more: Any) -> pb.UploadHeader:
    """A header; what is not a field of it goes into the metadata: `header(labels={"a": "b"}, create_only=True)`."""
    own = {key: more.pop(key) for key in ("artifact_id", "create_only", "expected_version") if key in more}
    return pb.UploadHeader(
        request_id=request_id or fresh_id("request"), metadata=artifact_pb2.ArtifactMetadata(name=name, **more), **own
    )


def trailer(content: bytes) -> pb.UploadTrailer:
    """The trailer that fits the content."""
    return pb.UploadTrailer(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def frames(
    content: bytes, head: pb.UploadHeader | None = None, end: pb.UploadTrailer | None = None, cut: int = MIB
) -> list[pb.UploadVersionRequest]:
    """The frames of an upload, in chunks of `cut` bytes."""
    chunks = [content[at : at + cut] for at in range(0, len(content), cut)]
    return [
        pb.UploadVersionRequest(header=head or header()),
        *(pb.UploadVersionRequest(chunk=chunk) for chunk in chunks),
        pb.UploadVersionRequest(trailer=end or trailer(content)),
    ]


async def send(stub: Stub, metadata: Metadata, requests: Iterable[pb.UploadVersionRequest]) -> Any:
    """Sends frames and gives the call, finished without an error."""
    call = stub.UploadVersion(iter(requests), metadata=metadata, timeout=SECONDS)
    await call
    return call


async def upload(
    stub: Stub, metadata: Metadata, content: bytes, head: pb.UploadHeader | None = None, **more: Any
) -> artifact_pb2.ArtifactVersion:
    """Uploads content and gives the version."""
    requests = frames(content, head or header(**more))
    return (await stub.UploadVersion(iter(requests), metadata=metadata, timeout=SECONDS)).version


async def download_frames(
    stub: Stub, metadata: Metadata, artifact_id: str, **more: Any
) -> AsyncIterator[pb.DownloadVersionResponse]:
    """The frames of a download."""
    request = pb.DownloadVersionRequest(artifact_id=artifact_id, **more)
    async for frame in stub.DownloadVersion(request, metadata=metadata, timeout=SECONDS):
        yield frame


async def download(stub: Stub, metadata: Metadata, artifact_id: str, **more: Any) -> bytes:
    """The bytes of a download."""
    found = bytearray()
    async for frame in download_frames(stub, metadata, artifact_id, **more):
        found += frame.chunk
    return bytes(found)
