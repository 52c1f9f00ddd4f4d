"""Example requests of the artifacts service."""

import contextlib

import grpc
from google.protobuf import field_mask_pb2
from google.protobuf.message import Message

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World, upload_frames
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb


@register("ArtifactService.UploadVersion", "header.artifact_id")
async def upload_version(world: World) -> list[Message]:
    existing = await world.artifact()
    frames = upload_frames(b"the next version")
    header = frames[0].header
    header.artifact_id = existing.artifact_id
    header.create_only = False
    return frames


@register("ArtifactService.DownloadVersion", "artifact_id")
async def download_version(world: World) -> transfer_pb2.DownloadVersionRequest:
    return transfer_pb2.DownloadVersionRequest(artifact_id=(await world.artifact()).artifact_id)


@register("ArtifactService.GetArtifact", "artifact_id")
async def get_artifact(world: World) -> pb.GetArtifactRequest:
    return pb.GetArtifactRequest(artifact_id=(await world.artifact()).artifact_id)


@register("ArtifactService.ListArtifacts", "session_id")
async def list_artifacts(world: World) -> pb.ListArtifactsRequest:
    session_id = fresh_id("session")
    await world.artifact(session_id)
    return pb.ListArtifactsRequest(session_id=session_id)


@register("ArtifactService.ListVersions", "artifact_id")
async def list_versions(world: World) -> pb.ListVersionsRequest:
    return pb.ListVersionsRequest(artifact_id=(await world.artifact()).artifact_id)


@register("ArtifactService.DeleteArtifact", "artifact_id")
async def delete_artifact(world: World) -> pb.DeleteArtifactRequest:
    return pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=(await world.artifact()).artifact_id)


def _metadata() -> artifact_pb2.ArtifactMetadata:
    return artifact_pb2.ArtifactMetadata(name="report.md", type="report")


@register("ArtifactService.ResumeUpload", "upload_id")
async def resume_upload(world: World) -> transfer_pb2.ResumeUploadRequest:
    upload_id = fresh_id("upload")
    frames = upload_frames(b"begun")
    frames[0].header.upload_id = upload_id
    # Without its trailer the upload stays open.
    call = world.bind("ArtifactService.UploadVersion")(iter(frames[:-1]), metadata=world.metadata)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call
    return transfer_pb2.ResumeUploadRequest(upload_id=upload_id)


@register("ArtifactService.CreateVersion", "artifact_id")
async def create_version(world: World) -> transfer_pb2.CreateVersionRequest:
    existing = await world.artifact()
    return transfer_pb2.CreateVersionRequest(
        request_id=fresh_id(), artifact_id=existing.artifact_id, metadata=_metadata(), content=b"inline"
    )


@register("ArtifactService.CopyVersion", "artifact_id")
async def copy_version(world: World) -> transfer_pb2.CopyVersionRequest:
    existing = await world.artifact()
    return transfer_pb2.CopyVersionRequest(
        request_id=fresh_id(), artifact_id=existing.artifact_id, metadata=_metadata(), sha256=existing.sha256
    )


@register("ArtifactService.UpdateArtifact", "artifact_id")
async def update_artifact(world: World) -> pb.UpdateArtifactRequest:
    return pb.UpdateArtifactRequest(
        request_id=fresh_id(),
        artifact_id=(await world.artifact()).artifact_id,
        metadata=artifact_pb2.ArtifactMetadata(name="renamed.md"),
        update_mask=field_mask_pb2.FieldMask(paths=["name"]),
    )


@register("ArtifactService.DiffVersions", "artifact_id")
async def diff_versions(world: World) -> pb.DiffVersionsRequest:
    return pb.DiffVersionsRequest(artifact_id=(await world.artifact()).artifact_id, from_version=1)


@register("ArtifactService.SignDownload", "artifact_id")
async def sign_download(world: World) -> transfer_pb2.SignDownloadRequest:
    return transfer_pb2.SignDownloadRequest(artifact_id=(await world.artifact()).artifact_id)


@register("ArtifactService.GetUsage")
async def get_usage(world: World) -> pb.GetUsageRequest:
    await world.artifact()
    return pb.GetUsageRequest()


@register("ArtifactService.DeleteVersion", "artifact_id")
async def delete_version(world: World) -> pb.DeleteVersionRequest:
    existing = await world.artifact()
    again = transfer_pb2.CreateVersionRequest(
        request_id=fresh_id(), artifact_id=existing.artifact_id, metadata=_metadata(), content=b"second"
    )
    await world.call("ArtifactService.CreateVersion", again)
    return pb.DeleteVersionRequest(request_id=fresh_id(), artifact_id=existing.artifact_id, version=1)


@register("ArtifactService.RestoreArtifact", "artifact_id")
async def restore_artifact(world: World) -> pb.RestoreArtifactRequest:
    existing = await world.artifact()
    gone = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=existing.artifact_id)
    await world.call("ArtifactService.DeleteArtifact", gone)
    return pb.RestoreArtifactRequest(request_id=fresh_id(), artifact_id=existing.artifact_id)
