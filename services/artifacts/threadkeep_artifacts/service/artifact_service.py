"""The servicer of ArtifactService."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2_grpc, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb
from threadkeep_artifacts.commands.artifacts import Artifacts
from threadkeep_artifacts.commands.comparing import Comparing
from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.commands.signing import Signing
from threadkeep_artifacts.commands.uploads import Uploads
from threadkeep_artifacts.commands.writing import CONTENT_QUOTA, VERSION_QUOTA, Writing
from threadkeep_artifacts.domain.decisions import check_intent
from threadkeep_artifacts.domain.differences import DEFAULT_CONTEXT_LINES
from threadkeep_artifacts.domain.metadata import check_metadata
from threadkeep_artifacts.domain.values import ArtifactVersion, ContentClaim
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_artifacts.peers import Leases
from threadkeep_artifacts.service.convert import (
    change_of,
    claim_from_proto,
    filter_from_proto,
    identity_of,
    intent_from_proto,
    signed_to_proto,
    version_to_proto,
)
from threadkeep_artifacts.service.readers import reader_of
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import FieldInvalid, ShuttingDown
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.paging import PageBuilder, Pager
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, current_call


@dataclass(frozen=True)
class Rooms:
    """What the servicer calls, there once the database is open."""

    database: Database
    pager: Pager
    uploads: Uploads
    downloads: Downloads
    artifacts: Artifacts
    writing: Writing
    comparing: Comparing
    signing: Signing
    leases: Leases
    limits: Limits


class ArtifactService(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms
    """Set when the service starts, before the first call."""

    async def UploadVersion(
        self, request_iterator: AsyncIterator[transfer_pb2.UploadVersionRequest], context: grpc.aio.ServicerContext
    ) -> transfer_pb2.UploadVersionResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            raise FieldInvalid("header", "must come first")
        response = await self.rooms.uploads.receive(
            call,
            reader,
            intent_from_proto(first.header),
            identity_of(first.header),
            _parts(call, requests),
            transfer_pb2.UploadVersionResponse,
            lambda version: transfer_pb2.UploadVersionResponse(version=version_to_proto(version)),
        )
        assert isinstance(response, transfer_pb2.UploadVersionResponse)
        return response

    async def ResumeUpload(
        self, request: transfer_pb2.ResumeUploadRequest, context: grpc.aio.ServicerContext
    ) -> transfer_pb2.ResumeUploadResponse:
        """See the contract."""
        offset = await self.rooms.uploads.kept(current_call().scope_key, request.upload_id)
        return transfer_pb2.ResumeUploadResponse(offset=offset)

    async def CreateVersion(
        self, request: transfer_pb2.CreateVersionRequest, context: grpc.aio.ServicerContext
    ) -> transfer_pb2.CreateVersionResponse:
        """See the contract."""
        call = current_call()
        self.rooms.limits.check("max_inline_bytes", len(request.content))
        intent = intent_from_proto(request)
        check_metadata(intent.metadata, "metadata")
        head = transfer_pb2.CreateVersionRequest()
        head.CopyFrom(request)
        head.ClearField("content")
        response = await self.rooms.uploads.receive(
            call,
            await self._reader(call),
            intent,
            head.SerializeToString(deterministic=True),
            _inline(request.content, self.rooms.limits["max_chunk_bytes"]),
            transfer_pb2.CreateVersionResponse,
            lambda version: transfer_pb2.CreateVersionResponse(version=version_to_proto(version)),
        )
        assert isinstance(response, transfer_pb2.CreateVersionResponse)
        return response

    async def CopyVersion(
        self, request: transfer_pb2.CopyVersionRequest, context: grpc.aio.ServicerContext
    ) -> transfer_pb2.CopyVersionResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        intent = intent_from_proto(request)
        check_intent(intent)
        check_metadata(intent.metadata, "metadata")
        artifact_id = intent.artifact_id if intent.artifact_id is not None else new_id()

        async def work(connection: Connection) -> transfer_pb2.CopyVersionResponse:
            version = await self.rooms.writing.from_digest(
                connection, call.scope_key, reader, intent, artifact_id, request.sha256
            )
            return transfer_pb2.CopyVersionResponse(version=version_to_proto(version))

        return await idempotent(self.rooms.database, call, request, transfer_pb2.CopyVersionResponse, work)

    async def DownloadVersion(
        self, request: transfer_pb2.DownloadVersionRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[transfer_pb2.DownloadVersionResponse]:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        version, plan = await self.rooms.downloads.open(
            call.scope_key, reader, request.artifact_id, request.version, request.offset, request.length
        )
        yield transfer_pb2.DownloadVersionResponse(version=version_to_proto(version))
        async for chunk in self.rooms.downloads.read(call.scope_key, version, plan):
            if call.draining.is_set:
                # The reader has what it has, and goes on elsewhere at that offset.
                raise ShuttingDown()
            yield transfer_pb2.DownloadVersionResponse(chunk=chunk)

    async def SignDownload(
        self, request: transfer_pb2.SignDownloadRequest, context: grpc.aio.ServicerContext
    ) -> transfer_pb2.SignDownloadResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        signed = await self.rooms.signing.sign(
            call.scope_key, reader, request.artifact_id, request.version, request.first_part
        )
        return signed_to_proto(signed)

    async def GetArtifact(
        self, request: pb.GetArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetArtifactResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        found = await self.rooms.artifacts.get(call.scope_key, reader, request.artifact_id, request.version)
        return pb.GetArtifactResponse(version=version_to_proto(found))

    async def ListArtifacts(
        self, request: pb.ListArtifactsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListArtifactsResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[artifact_pb2.ArtifactVersion] = PageBuilder(page)
        wanted = filter_from_proto(request)
        found = await self.rooms.artifacts.list_latest(call.scope_key, reader, wanted, page.after, builder.wanted)
        for place, version in found:
            if not builder.add(version_to_proto(version), place):
                break
        return pb.ListArtifactsResponse(
            artifacts=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def ListVersions(
        self, request: pb.ListVersionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListVersionsResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[artifact_pb2.ArtifactVersion] = PageBuilder(page)
        before = page.after[0] if page.after is not None else None
        found = await self.rooms.artifacts.list_versions(
            call.scope_key, reader, request.artifact_id, before, builder.wanted
        )
        for version in found:
            if not builder.add(version_to_proto(version), (version.version,)):
                break
        return pb.ListVersionsResponse(
            versions=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def UpdateArtifact(
        self, request: pb.UpdateArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpdateArtifactResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        change = change_of(request)
        expected = request.expected_version if request.HasField("expected_version") else None

        async def work(connection: Connection) -> pb.UpdateArtifactResponse:
            version = await self.rooms.writing.with_metadata(
                connection, call.scope_key, reader, request.artifact_id, expected, change
            )
            return pb.UpdateArtifactResponse(version=version_to_proto(version))

        return await idempotent(self.rooms.database, call, request, pb.UpdateArtifactResponse, work)

    async def DiffVersions(
        self, request: pb.DiffVersionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.DiffVersionsResponse:
        """See the contract."""
        call = current_call()
        found = await self.rooms.comparing.compare(
            call.scope_key,
            await self._reader(call),
            request.artifact_id,
            request.from_version,
            request.to_version,
            request.context_lines if request.HasField("context_lines") else DEFAULT_CONTEXT_LINES,
        )
        return pb.DiffVersionsResponse(
            diff=found.diff, added_lines=found.added_lines, removed_lines=found.removed_lines
        )

    async def GetUsage(self, request: pb.GetUsageRequest, context: grpc.aio.ServicerContext) -> pb.GetUsageResponse:
        """See the contract."""
        used = await self.rooms.artifacts.usage(current_call().scope_key)
        return pb.GetUsageResponse(
            artifact_count=used.artifact_count,
            version_count=used.version_count,
            content_bytes=used.content_bytes,
            stored_bytes=used.stored_bytes,
            max_version_count=self.rooms.limits[VERSION_QUOTA],
            max_content_bytes=self.rooms.limits[CONTENT_QUOTA],
        )

    async def DeleteVersion(
        self, request: pb.DeleteVersionRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteVersionResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)

        async def work(connection: Connection) -> pb.DeleteVersionResponse:
            latest = await self.rooms.artifacts.delete_version(
                connection, call.scope_key, reader, request.artifact_id, request.version
            )
            return pb.DeleteVersionResponse(latest=_if_seen(latest, reader))

        return await idempotent(self.rooms.database, call, request, pb.DeleteVersionResponse, work)

    async def DeleteArtifact(
        self, request: pb.DeleteArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteArtifactResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)
        expected = request.expected_version if request.HasField("expected_version") else None

        async def work(connection: Connection) -> pb.DeleteArtifactResponse:
            count = await self.rooms.artifacts.delete(connection, call.scope_key, reader, request.artifact_id, expected)
            return pb.DeleteArtifactResponse(version_count=count)

        return await idempotent(self.rooms.database, call, request, pb.DeleteArtifactResponse, work)

    async def RestoreArtifact(
        self, request: pb.RestoreArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.RestoreArtifactResponse:
        """See the contract."""
        call = current_call()
        reader = await self._reader(call)

        async def work(connection: Connection) -> pb.RestoreArtifactResponse:
            latest = await self.rooms.artifacts.restore(
                connection, call.scope_key, reader, request.artifact_id, request.version
            )
            return pb.RestoreArtifactResponse(latest=_if_seen(latest, reader))

        return await idempotent(self.rooms.database, call, request, pb.RestoreArtifactResponse, work)

    async def _reader(self, call: Call) -> Reader:
        return await reader_of(call, self.rooms.leases)


async def _parts(
    call: Call, requests: AsyncIterator[transfer_pb2.UploadVersionRequest]
) -> AsyncIterator[bytes | ContentClaim]:
    """The upload's chunks, then its claim: it is given once the stream has ended with it. Raises FieldInvalid."""
    claim: ContentClaim | None = None
    async for request in requests:
        if call.draining.is_set:
            raise ShuttingDown()
        part = request.WhichOneof("part")
        if claim is not None:
            raise FieldInvalid(part or "part", "comes after the trailer, which ends the upload")
        if part == "chunk":
            yield request.chunk
        elif part == "trailer":
            claim = claim_from_proto(request.trailer)
        else:
            raise FieldInvalid(part or "part", "comes once, first" if part else "is required")
    if claim is not None:
        yield claim


async def _inline(content: bytes, chunk_bytes: int) -> AsyncIterator[bytes | ContentClaim]:
    """Inline content in the form of an upload's parts."""
    for start in range(0, len(content), chunk_bytes):
        yield content[start : start + chunk_bytes]
    yield ContentClaim(len(content), hashlib.sha256(content).hexdigest())


def _if_seen(version: ArtifactVersion, reader: Reader) -> artifact_pb2.ArtifactVersion | None:
    metadata = version.metadata
    seen = reader.sees(metadata.visibility, metadata.session_id, metadata.run_id)
    return version_to_proto(version) if seen else None
