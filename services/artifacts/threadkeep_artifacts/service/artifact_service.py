"""The servicer of ArtifactService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2_grpc
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb
from threadkeep_artifacts.commands.artifacts import Artifacts
from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.commands.uploads import Uploads
from threadkeep_artifacts.domain.values import ArtifactVersion, ContentClaim
from threadkeep_artifacts.service.convert import (
    claim_from_proto,
    filter_from_proto,
    intent_from_proto,
    version_to_proto,
)
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import FieldInvalid, ShuttingDown
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


class ArtifactService(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Parses, calls, renders."""

    rooms: Rooms
    """Set when the service starts, before the first call."""

    async def UploadVersion(
        self, request_iterator: AsyncIterator[pb.UploadVersionRequest], context: grpc.aio.ServicerContext
    ) -> pb.UploadVersionResponse:
        """See the contract."""
        call = current_call()
        requests = aiter(request_iterator)
        first = await anext(requests, None)
        if first is None or first.WhichOneof("part") != "header":
            raise FieldInvalid("header", "must come first")
        response = await self.rooms.uploads.receive(
            call,
            intent_from_proto(first.header),
            first.header.SerializeToString(deterministic=True),
            _parts(call, requests),
            pb.UploadVersionResponse,
            _upload_response,
        )
        assert isinstance(response, pb.UploadVersionResponse)
        return response

    async def DownloadVersion(
        self, request: pb.DownloadVersionRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.DownloadVersionResponse]:
        """See the contract."""
        call = current_call()
        version, plan = await self.rooms.downloads.open(
            call.scope_key, request.artifact_id, request.version, request.offset, request.length
        )
        yield pb.DownloadVersionResponse(version=version_to_proto(version))
        async for chunk in self.rooms.downloads.read(call.scope_key, version, plan):
            if call.draining.is_set:
                # The reader has what it has, and goes on elsewhere at that offset.
                raise ShuttingDown()
            yield pb.DownloadVersionResponse(chunk=chunk)

    async def GetArtifact(
        self, request: pb.GetArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetArtifactResponse:
        """See the contract."""
        found = await self.rooms.artifacts.get(current_call().scope_key, request.artifact_id, request.version)
        return pb.GetArtifactResponse(version=version_to_proto(found))

    async def ListArtifacts(
        self, request: pb.ListArtifactsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListArtifactsResponse:
        """See the contract."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[artifact_pb2.ArtifactVersion] = PageBuilder(page)
        before = page.after[0] if page.after is not None else None
        wanted = filter_from_proto(request)
        found = await self.rooms.artifacts.list_latest(call.scope_key, wanted, before, builder.wanted)
        for place, version in found:
            if not builder.add(version_to_proto(version), (place,)):
                break
        return pb.ListArtifactsResponse(
            artifacts=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def ListVersions(
        self, request: pb.ListVersionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListVersionsResponse:
        """See the contract."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[artifact_pb2.ArtifactVersion] = PageBuilder(page)
        before = page.after[0] if page.after is not None else None
        found = await self.rooms.artifacts.list_versions(call.scope_key, request.artifact_id, before, builder.wanted)
        for version in found:
            if not builder.add(version_to_proto(version), (version.version,)):
                break
        return pb.ListVersionsResponse(
            versions=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def DeleteArtifact(
        self, request: pb.DeleteArtifactRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteArtifactResponse:
        """See the contract."""
        call = current_call()
        expected = request.expected_version if request.HasField("expected_version") else None
        delete = self.rooms.artifacts.delete(call.scope_key, request.artifact_id, expected)

        async def work(connection: Connection) -> pb.DeleteArtifactResponse:
            return pb.DeleteArtifactResponse(version_count=await delete(connection))

        return await idempotent(self.rooms.database, call, request, pb.DeleteArtifactResponse, work)


async def _parts(call: Call, requests: AsyncIterator[pb.UploadVersionRequest]) -> AsyncIterator[bytes | ContentClaim]:
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


def _upload_response(version: ArtifactVersion) -> pb.UploadVersionResponse:
    return pb.UploadVersionResponse(version=version_to_proto(version))
