"""Artifacts: the calls without content; `threadkeep._content` moves content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from google.protobuf import field_mask_pb2

from threadkeep._api.values import given
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2, transfer_pb2
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion

UPLOAD = method(artifact_service_pb2, "ArtifactService", "UploadVersion")
_RESUME = method(artifact_service_pb2, "ArtifactService", "ResumeUpload")
_CREATE = method(artifact_service_pb2, "ArtifactService", "CreateVersion")
_COPY = method(artifact_service_pb2, "ArtifactService", "CopyVersion")
_DOWNLOAD = method(artifact_service_pb2, "ArtifactService", "DownloadVersion")
_SIGN = method(artifact_service_pb2, "ArtifactService", "SignDownload")
_GET = method(artifact_service_pb2, "ArtifactService", "GetArtifact")
_LIST = method(artifact_service_pb2, "ArtifactService", "ListArtifacts")
_VERSIONS = method(artifact_service_pb2, "ArtifactService", "ListVersions")
_UPDATE = method(artifact_service_pb2, "ArtifactService", "UpdateArtifact")
_DIFF = method(artifact_service_pb2, "ArtifactService", "DiffVersions")
_USAGE = method(artifact_service_pb2, "ArtifactService", "GetUsage")
_DELETE = method(artifact_service_pb2, "ArtifactService", "DeleteArtifact")
_DELETE_VERSION = method(artifact_service_pb2, "ArtifactService", "DeleteVersion")
_RESTORE = method(artifact_service_pb2, "ArtifactService", "RestoreArtifact")

Visibility = Literal["private", "run", "public"]
"""Who may read a version: the holder of the run's lease, readers of the session, everybody in the scope."""

Source = ArtifactVersion | tuple[str, int]
"""A version that another was produced from: itself, or artifact id and version."""


class MetadataFields(TypedDict, total=False):
    """What a writer says about a version, beside its name."""

    type: str
    media_type: str
    """Empty or absent: detected."""
    labels: Mapping[str, str]
    session_id: str | None
    task_id: str | None
    run_id: str | None
    checkpoint_id: str | None
    path: str | None
    """A virtual path, such as `/notes/plan.md`."""
    visibility: Visibility
    parent_version: int | None
    produced_from: Sequence[Source]


class VersionFields(MetadataFields, total=False):
    """What a new version is for. No artifact_id: a new artifact, whose id the server assigns."""

    artifact_id: str | None
    create_only: bool
    expected_version: int | None
    """The latest version that the caller saw; 0: the artifact must be new."""
    request_id: str | None


_OF_VERSION = ("artifact_id", "create_only", "expected_version", "request_id")


def metadata(**fields: Any) -> artifact_pb2.ArtifactMetadata:
    """What a writer says, as a message."""
    named = {name: value for name, value in fields.items() if value is not None}
    if "labels" in named:
        named["labels"] = dict(named["labels"])
    if "visibility" in named:
        named["visibility"] = artifact_pb2.Visibility.Value(f"VISIBILITY_{named['visibility'].upper()}")
    if "produced_from" in named:
        named["produced_from"] = [_reference(one) for one in named["produced_from"]]
    return artifact_pb2.ArtifactMetadata(**named)


def _reference(source: Source) -> artifact_pb2.ArtifactReference:
    artifact_id, version = (source.artifact_id, source.version) if isinstance(source, ArtifactVersion) else source
    return artifact_pb2.ArtifactReference(artifact_id=artifact_id, version=version)


def _new_version(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in fields.items() if key in _OF_VERSION and value is not None}
    said = {key: value for key, value in fields.items() if key not in _OF_VERSION}
    return {"request_id": new_request_id(), **own, "metadata": metadata(name=name, **said)}


def header(name: str, *, upload_id: str | None = None, **fields: Unpack[VersionFields]) -> transfer_pb2.UploadHeader:
    """What an upload is for."""
    return transfer_pb2.UploadHeader(**_new_version(name, fields), **given(upload_id=upload_id))


def resume(upload_id: str) -> Call[int]:
    """How many bytes of a broken upload are kept. Raises UploadNotFound."""
    return Call(_RESUME, transfer_pb2.ResumeUploadRequest(upload_id=upload_id), lambda response: int(response.offset))


def create(content: bytes | str, name: str, **fields: Unpack[VersionFields]) -> Call[ArtifactVersion]:
    """Creates a version with small content (text is sent as UTF-8) in one call.

    Raises IdTaken, RevisionConflict, PathTaken, LimitExceeded (upload it instead), QuotaExceeded.
    """
    raw = content.encode() if isinstance(content, str) else content
    request = transfer_pb2.CreateVersionRequest(**_new_version(name, fields), content=raw)
    return Call(_CREATE, request, lambda response: response.version)


def copy(sha256: str, name: str, **fields: Unpack[VersionFields]) -> Call[ArtifactVersion]:
    """Creates a version from content that the scope has already, named by its digest; nothing is sent.

    Raises ArtifactNotFound (also when no version that the caller may read has that content), and as `create`.
    """
    request = transfer_pb2.CopyVersionRequest(**_new_version(name, fields), sha256=sha256)
    return Call(_COPY, request, lambda response: response.version)


def update(
    artifact_id: str,
    *,
    name: str | None = None,
    expected_version: int | None = None,
    request_id: str | None = None,
    **fields: Unpack[MetadataFields],
) -> Call[ArtifactVersion]:
    """Changes metadata, which makes a version with the same content. What is not given stays; None takes a field away.

    Raises ArtifactNotFound, RevisionConflict, PathTaken, QuotaExceeded.
    """
    changed: dict[str, Any] = {**given(name=name), **fields}
    request = artifact_service_pb2.UpdateArtifactRequest(
        request_id=request_id or new_request_id(),
        artifact_id=artifact_id,
        metadata=metadata(**changed),
        update_mask=field_mask_pb2.FieldMask(paths=sorted(changed)),
        **given(expected_version=expected_version),
    )
    return Call(_UPDATE, request, lambda response: response.version)


def download(
    artifact_id: str, version: int = 0, *, offset: int = 0, length: int = 0
) -> Call[transfer_pb2.DownloadVersionResponse]:
    """Streams a version's header and content once."""
    request = transfer_pb2.DownloadVersionRequest(
        artifact_id=artifact_id, version=version, offset=offset, length=length
    )
    return Call(_DOWNLOAD, request, whole)


def sign_download(
    artifact_id: str, version: int = 0, *, first_part: int = 0
) -> Call[transfer_pb2.SignDownloadResponse]:
    """Addresses of the content's parts in a bucket, for whoever is to read them without the server; none if there are
    none. `next_part` says where to ask for more. Raises ArtifactNotFound."""
    request = transfer_pb2.SignDownloadRequest(artifact_id=artifact_id, version=version, first_part=first_part)
    return Call(_SIGN, request, whole)


def get(artifact_id: str, version: int = 0) -> Call[ArtifactVersion]:
    """Reads a version's metadata; version 0 is the latest. Raises ArtifactNotFound."""
    request = artifact_service_pb2.GetArtifactRequest(artifact_id=artifact_id, version=version)
    return Call(_GET, request, lambda response: response.version)


def list(
    *,
    name: str | None = None,
    type: str | None = None,
    session_id: str | None = None,
    task_id: str | None = None,
    run_id: str | None = None,
    checkpoint_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    path_prefix: str | None = None,
    page_size: int = 0,
) -> PagedCall[ArtifactVersion]:
    """The latest version of each artifact of the scope, newest artifact first.

    With `path_prefix` those whose path starts with it, sorted by path; `/` is all that have one.
    """
    request = artifact_service_pb2.ListArtifactsRequest(
        page_size=page_size,
        labels=dict(labels or {}),
        **given(
            name=name,
            type=type,
            session_id=session_id,
            task_id=task_id,
            run_id=run_id,
            checkpoint_id=checkpoint_id,
            path_prefix=path_prefix,
        ),
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


def delete_version(
    artifact_id: str, version: int, *, request_id: str | None = None
) -> Call[artifact_service_pb2.DeleteVersionResponse]:
    """Deletes one version. Raises ArtifactNotFound, LastVersion."""
    request = artifact_service_pb2.DeleteVersionRequest(
        request_id=request_id or new_request_id(), artifact_id=artifact_id, version=version
    )
    return Call(_DELETE_VERSION, request, whole)


def restore(
    artifact_id: str, version: int = 0, *, request_id: str | None = None
) -> Call[artifact_service_pb2.RestoreArtifactResponse]:
    """Brings a deleted artifact back, or one deleted version. Raises ArtifactNotFound, PathTaken, QuotaExceeded."""
    request = artifact_service_pb2.RestoreArtifactRequest(
        request_id=request_id or new_request_id(), artifact_id=artifact_id, version=version
    )
    return Call(_RESTORE, request, whole)


def diff(
    artifact_id: str, from_version: int, to_version: int = 0, *, context_lines: int | None = None
) -> Call[artifact_service_pb2.DiffVersionsResponse]:
    """The unified diff of two versions of a text; version 0 is the latest.

    Raises ArtifactNotFound, ContentNotText, LimitExceeded.
    """
    request = artifact_service_pb2.DiffVersionsRequest(
        artifact_id=artifact_id,
        from_version=from_version,
        to_version=to_version,
        **given(context_lines=context_lines),
    )
    return Call(_DIFF, request, whole)


def usage() -> Call[artifact_service_pb2.GetUsageResponse]:
    """What the scope uses, and how much it may use."""
    return Call(_USAGE, artifact_service_pb2.GetUsageRequest(), whole)
