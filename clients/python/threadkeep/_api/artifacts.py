"""Artifacts: the calls without content; `threadkeep._content` moves content."""

from __future__ import annotations

from collections.abc import Mapping

from threadkeep._api.values import given
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion

UPLOAD = method(artifact_service_pb2, "ArtifactService", "UploadVersion")
_DOWNLOAD = method(artifact_service_pb2, "ArtifactService", "DownloadVersion")
_GET = method(artifact_service_pb2, "ArtifactService", "GetArtifact")
_LIST = method(artifact_service_pb2, "ArtifactService", "ListArtifacts")
_VERSIONS = method(artifact_service_pb2, "ArtifactService", "ListVersions")
_DELETE = method(artifact_service_pb2, "ArtifactService", "DeleteArtifact")


def header(
    name: str,
    *,
    artifact_id: str | None = None,
    type: str = "",
    media_type: str = "",
    labels: Mapping[str, str] | None = None,
    session_id: str | None = None,
    task_id: str | None = None,
    run_id: str | None = None,
    checkpoint_id: str | None = None,
    create_only: bool = False,
    expected_version: int | None = None,
    request_id: str | None = None,
) -> artifact_service_pb2.UploadHeader:
    """What an upload is for."""
    metadata = artifact_pb2.ArtifactMetadata(
        name=name,
        type=type,
        media_type=media_type,
        labels=dict(labels or {}),
        **given(session_id=session_id, task_id=task_id, run_id=run_id, checkpoint_id=checkpoint_id),
    )
    return artifact_service_pb2.UploadHeader(
        request_id=request_id or new_request_id(),
        create_only=create_only,
        metadata=metadata,
        **given(artifact_id=artifact_id, expected_version=expected_version),
    )


def download(
    artifact_id: str, version: int = 0, *, offset: int = 0, length: int = 0
) -> Call[artifact_service_pb2.DownloadVersionResponse]:
    """Streams a version's header and content once."""
    request = artifact_service_pb2.DownloadVersionRequest(
        artifact_id=artifact_id, version=version, offset=offset, length=length
    )
    return Call(_DOWNLOAD, request, whole)


def get(artifact_id: str, version: int = 0) -> Call[ArtifactVersion]:
    """Reads a version's metadata; version 0 is the latest. Raises ArtifactNotFound."""
    request = artifact_service_pb2.GetArtifactRequest(artifact_id=artifact_id, version=version)
    return Call(_GET, request, lambda response: response.version)


def list(
    *,
    name: str | None = None,
    type: str | None = None,
    session_id: str | None = None,
    run_id: str | None = None,
    checkpoint_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    page_size: int = 0,
) -> PagedCall[ArtifactVersion]:
    """The latest version of each artifact of the scope, newest artifact first."""
    request = artifact_service_pb2.ListArtifactsRequest(
        page_size=page_size,
        labels=dict(labels or {}),
        **given(name=name, type=type, session_id=session_id, run_id=run_id, checkpoint_id=checkpoint_id),
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.artifacts)


def list_versions(artifact_id: str, *, page_size: int = 0) -> PagedCall[ArtifactVersion]:
    """An artifact's versions, newest first. Raises ArtifactNotFound."""
    request = artifact_service_pb2.ListVersionsRequest(artifact_id=artifact_id, page_size=page_size)
    return PagedCall(Call(_VERSIONS, request, whole), lambda page: page.versions)


def delete(
    artifact_id: str, *, expected_version: int | None = None, request_id: str | None = None
) -> Call[artifact_service_pb2.DeleteArtifactResponse]:
    """Deletes an artifact with all of its versions. Raises ArtifactNotFound, RevisionConflict."""
    request = artifact_service_pb2.DeleteArtifactRequest(
        request_id=request_id or new_request_id(), artifact_id=artifact_id, **given(expected_version=expected_version)
    )
    return Call(_DELETE, request, whole)
