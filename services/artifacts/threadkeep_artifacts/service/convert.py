"""Between the contract's messages and the domain's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2, transfer_pb2
from threadkeep_artifacts.domain.values import (
    ArtifactFilter,
    ArtifactMetadata,
    ArtifactReference,
    ArtifactVersion,
    ContentClaim,
    SignedDownload,
    UploadIntent,
)
from threadkeep_artifacts.domain.visibility import Visibility
from threadkeep_chassis.errors import FieldInvalid

_OPTIONAL = ("session_id", "task_id", "run_id", "checkpoint_id", "path", "parent_version")
_PREFIX = "VISIBILITY_"


def metadata_from_proto(metadata: artifact_pb2.ArtifactMetadata, path: str = "header.metadata") -> ArtifactMetadata:
    """What the writer said. Raises FieldInvalid, naming the field below `path`."""
    return ArtifactMetadata(
        name=metadata.name,
        type=metadata.type,
        media_type=metadata.media_type,
        labels=dict(metadata.labels),
        visibility=_visibility(metadata, f"{path}.visibility"),
        produced_from=tuple(ArtifactReference(one.artifact_id, one.version) for one in metadata.produced_from),
        **_present(metadata, _OPTIONAL),
    )


def metadata_to_proto(metadata: ArtifactMetadata) -> artifact_pb2.ArtifactMetadata:
    """The same, back."""
    optional = {name: getattr(metadata, name) for name in _OPTIONAL if getattr(metadata, name) is not None}
    return artifact_pb2.ArtifactMetadata(
        name=metadata.name,
        type=metadata.type,
        media_type=metadata.media_type,
        labels=dict(metadata.labels),
        visibility=artifact_pb2.Visibility.Value(_PREFIX + metadata.visibility.value),
        produced_from=[
            artifact_pb2.ArtifactReference(artifact_id=one.artifact_id, version=one.version)
            for one in metadata.produced_from
        ],
        **optional,
    )


def change_of(request: artifact_service_pb2.UpdateArtifactRequest) -> Callable[[ArtifactMetadata], ArtifactMetadata]:
    """The change that an update's mask says. Raises FieldInvalid."""
    given = metadata_from_proto(request.metadata, "metadata")
    names = {field.name for field in fields(ArtifactMetadata)}
    if not request.update_mask.paths:
        raise FieldInvalid("update_mask", "is required")
    for path in request.update_mask.paths:
        if path not in names:
            raise FieldInvalid("update_mask", f"knows {', '.join(sorted(names))}")
    changed: dict[str, Any] = {path: getattr(given, path) for path in request.update_mask.paths}
    return lambda metadata: replace(metadata, **changed)


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


def intent_from_proto(
    header: transfer_pb2.UploadHeader | transfer_pb2.CreateVersionRequest | transfer_pb2.CopyVersionRequest,
) -> UploadIntent:
    """What a new version is for, as an upload's header or a request says it."""
    if isinstance(header, transfer_pb2.UploadHeader):
        path = "header.metadata"
        upload_id, offset = header.upload_id if header.HasField("upload_id") else None, header.offset
    else:
        path, upload_id, offset = "metadata", None, 0
    return UploadIntent(
        request_id=header.request_id,
        metadata=metadata_from_proto(header.metadata, path),
        artifact_id=header.artifact_id if header.HasField("artifact_id") else None,
        create_only=header.create_only,
        expected_version=header.expected_version if header.HasField("expected_version") else None,
        upload_id=upload_id,
        offset=offset,
    )


def identity_of(header: transfer_pb2.UploadHeader) -> bytes:
    """What makes two uploads of one request_id the same: all of the header but where its stream went on."""
    same = transfer_pb2.UploadHeader()
    same.CopyFrom(header)
    same.ClearField("upload_id")
    same.ClearField("offset")
    return same.SerializeToString(deterministic=True)


def signed_to_proto(signed: SignedDownload) -> transfer_pb2.SignDownloadResponse:
    """Addresses of content."""
    response = transfer_pb2.SignDownloadResponse(
        version=version_to_proto(signed.version),
        parts=[transfer_pb2.SignedPart(url=one.url, size=one.size, sha256=one.sha256) for one in signed.parts],
        next_part=signed.next_part,
    )
    if signed.expire_time is not None:
        response.expire_time.FromDatetime(signed.expire_time)
    return response


def claim_from_proto(trailer: transfer_pb2.UploadTrailer) -> ContentClaim:
    """An upload's trailer."""
    return ContentClaim(trailer.size, trailer.sha256)


def filter_from_proto(request: artifact_service_pb2.ListArtifactsRequest) -> ArtifactFilter:
    """Which artifacts a list holds."""
    named = ("name", "type", "session_id", "task_id", "run_id", "checkpoint_id", "path_prefix")
    return ArtifactFilter(labels=dict(request.labels), **_present(request, named))


def _visibility(metadata: artifact_pb2.ArtifactMetadata, path: str) -> Visibility:
    if metadata.visibility == artifact_pb2.VISIBILITY_UNSPECIFIED:
        return Visibility.PUBLIC
    try:
        return Visibility(artifact_pb2.Visibility.Name(metadata.visibility).removeprefix(_PREFIX))
    except ValueError:
        raise FieldInvalid(path, "is not known to this server") from None


def _present(message: Message, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}
