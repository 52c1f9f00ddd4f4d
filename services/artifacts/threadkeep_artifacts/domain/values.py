"""Artifacts as values: metadata, versions, an upload's intent and claim, stored content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from threadkeep_artifacts.domain.visibility import Visibility

DEFAULT_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class ArtifactReference:
    """A version (0: the latest) of an artifact of the same scope."""

    artifact_id: str
    version: int


@dataclass(frozen=True)
class ArtifactMetadata:
    """What a writer says about a version."""

    name: str
    type: str = ""
    media_type: str = ""
    """Empty only until the content is known: then it is detected."""
    labels: Mapping[str, str] = field(default_factory=dict)
    session_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    checkpoint_id: str | None = None
    path: str | None = None
    visibility: Visibility = Visibility.PUBLIC
    parent_version: int | None = None
    produced_from: tuple[ArtifactReference, ...] = ()


@dataclass(frozen=True)
class ArtifactVersion:
    """One version of an artifact. Sizes are in bytes; `sha256` is lower-case hexadecimal."""

    artifact_id: str
    version: int
    metadata: ArtifactMetadata
    size: int
    sha256: str
    create_time: datetime
    artifact_create_time: datetime


@dataclass(frozen=True)
class UploadIntent:
    """An upload's header."""

    request_id: str
    metadata: ArtifactMetadata
    artifact_id: str | None = None
    """None: a new artifact, whose id the server assigns."""
    create_only: bool = False
    expected_version: int | None = None
    """The latest version that the caller saw, 0 for none; None: not compared."""
    upload_id: str | None = None
    """The caller's name for a resumable upload."""
    offset: int = 0
    """Where the first chunk belongs."""


@dataclass(frozen=True)
class ContentClaim:
    """An upload's trailer: what its chunks together must be."""

    size: int
    sha256: str


@dataclass(frozen=True)
class StoredContent:
    """Where a version's bytes lie: chunks of `chunk_bytes` each (the last one may be shorter), with their digests."""

    blob_id: str
    size: int
    sha256: str
    chunk_bytes: int
    chunk_digests: bytes
    """SHA-256 of each chunk, 32 bytes each, in order: a part can be verified without reading the whole."""

    @property
    def chunk_count(self) -> int:
        """How many chunks there are; none when the content is empty."""
        return len(self.chunk_digests) // 32

    def chunk_digest(self, index: int) -> bytes:
        """The SHA-256 of a chunk, 32 bytes."""
        return self.chunk_digests[32 * index : 32 * index + 32]


@dataclass(frozen=True)
class SignedPart:
    """A chunk of content, and an address from which anybody can read it for a while."""

    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SignedDownload:
    """Addresses of a version's content, in order; none where there are none."""

    version: ArtifactVersion
    parts: Sequence[SignedPart] = ()
    next_part: int = 0
    """Where to ask for further parts; 0: there are no more."""
    expire_time: datetime | None = None


@dataclass(frozen=True)
class Usage:
    """What a scope uses. Sizes in bytes."""

    artifact_count: int = 0
    version_count: int = 0
    content_bytes: int = 0
    """The sizes of all versions together."""
    stored_bytes: int = 0
    """What is stored for them, and for what was deleted and not yet reclaimed."""


@dataclass(frozen=True)
class ArtifactFilter:
    """Which artifacts a list holds, by their latest version. None and an empty map: not filtered."""

    name: str | None = None
    type: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    checkpoint_id: str | None = None
    path_prefix: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
