"""Between the contract's messages and the domain's values."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2
from threadkeep_artifacts.domain.values import (
    DEFAULT_MEDIA_TYPE,
    ArtifactFilter,
    ArtifactMetadata,
    ArtifactVersion,
    ContentClaim,
    UploadIntent,
)

_OPTIONAL_IDS = ("session_id", "task_id", "run_id", "checkpoint_id")


def metadata_from_proto(metadata: artifact_pb2.ArtifactMetadata) -> ArtifactMetadata:
    """What the writer said; an empty media type is the default one."""
    return ArtifactMetadata(
        name=metadata.name,
        type=metadata.type,
        media_type=metadata.media_type or DEFAULT_MEDIA_TYPE,
        labels=dict(metadata.labels),
        **_present(metadata, _OPTIONAL_IDS),
    )


def metadata_to_proto(metadata: ArtifactMetadata) -> artifact_pb2.ArtifactMetadata:
    """The same, back."""
    ids = {name: getattr(metadata, name) for name in _OPTIONAL_IDS if getattr(metadata, name) is not None}
    return artifact_pb2.ArtifactMetadata(
        name=metadata.name, type=metadata.type, media_type=metadata.media_type, labels=dict(metadata.labels), **ids
    )


def version_to_proto(version: ArtifactVersion) -> artifact_pb2.ArtifactVersion:
    """A version."""
    created, artifact_created = Timestamp(), Timestamp()
    created.FromDatetime(version.create_time)
    artifact_created.FromDatetime(version.artifact_create_time)
    return artifact_pb2.ArtifactVersion(
        artifact_id=version.artifact_id,
        version=version.version,
        metadata=metadata_to_proto(version.metadata),
        size=version.size,
        sha256=version.sha256,
        create_time=created,
        artifact_create_time=artifact_created,
    )


def intent_from_proto(header: artifact_service_pb2.UploadHeader) -> UploadIntent:
    """An upload's header."""
    return UploadIntent(
        request_id=header.request_id,
        metadata=metadata_from_proto(header.metadata),
        artifact_id=header.artifact_id if header.HasField("artifact_id") else None,
        create_only=header.create_only,
        expected_version=header.expected_version if header.HasField("expected_version") else None,
    )


def claim_from_proto(trailer: artifact_service_pb2.UploadTrailer) -> ContentClaim:
    """An upload's trailer."""
    return ContentClaim(trailer.size, trailer.sha256)


def filter_from_proto(request: artifact_service_pb2.ListArtifactsRequest) -> ArtifactFilter:
    """Which artifacts a list holds."""
    named = ("name", "type", "session_id", "run_id", "checkpoint_id")
    return ArtifactFilter(labels=dict(request.labels), **_present(request, named))


def _present(message: Message, names: Iterable[str]) -> dict[str, str]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}
