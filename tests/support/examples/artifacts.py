"""Example requests of the artifacts service."""

from google.protobuf.message import Message

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World, upload_frames
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
async def download_version(world: World) -> pb.DownloadVersionRequest:
    return pb.DownloadVersionRequest(artifact_id=(await world.artifact()).artifact_id)


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
