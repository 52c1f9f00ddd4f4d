"""Makes versions: from staged content, from content that is there, and from the latest version with other metadata.

Each method works inside the transaction of the caller's receipt, and takes the scope's row first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from threadkeep_artifacts.domain.decisions import creates, refuse_change, refuse_upload
from threadkeep_artifacts.domain.errors import ArtifactNotFound, PathTaken, QuotaExceeded, SessionGone
from threadkeep_artifacts.domain.media_types import detect
from threadkeep_artifacts.domain.metadata import check_metadata
from threadkeep_artifacts.domain.values import (
    DEFAULT_MEDIA_TYPE,
    ArtifactMetadata,
    ArtifactVersion,
    StoredContent,
    UploadIntent,
    Usage,
)
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_artifacts.store import artifacts, contents, followers, scopes, versions
from threadkeep_chassis.database import Connection
from threadkeep_chassis.errors import Contention
from threadkeep_chassis.limits import Limits

VERSION_QUOTA, CONTENT_QUOTA = "max_scope_versions", "max_scope_content_bytes"


class Writing:
    """Makes versions."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def check_quota(self, usage: Usage) -> None:
        """Raises QuotaExceeded if the scope would use more than it may."""
        for quota, actual in ((VERSION_QUOTA, usage.version_count), (CONTENT_QUOTA, usage.content_bytes)):
            if actual > self._limits[quota]:
                raise QuotaExceeded(quota, self._limits[quota], actual)

    async def from_content(
        self,
        connection: Connection,
        scope_key: str,
        reader: Reader,
        intent: UploadIntent,
        artifact_id: str,
        content: StoredContent,
        head: bytes,
    ) -> ArtifactVersion:
        """A version of content whose stage was closed in this transaction; `head` is its beginning.

        Raises ArtifactNotFound, IdTaken, RevisionConflict, PathTaken, QuotaExceeded.
        """
        metadata = _typed(intent.metadata, head)
        version = await self._add(
            connection, scope_key, reader, replace(intent, metadata=metadata), artifact_id, content.size, content.sha256
        )
        if await contents.refer(connection, scope_key, content, version.create_time):
            await scopes.change(connection, scope_key, stored=content.size)
        return version

    async def from_digest(
        self,
        connection: Connection,
        scope_key: str,
        reader: Reader,
        intent: UploadIntent,
        artifact_id: str,
        sha256: str,
    ) -> ArtifactVersion:
        """A version of content that a version which the reader may read has. Raises as `from_content`."""
        await scopes.change(connection, scope_key)
        source = await versions.find_by_digest(connection, scope_key, reader, sha256)
        if source is None:
            raise ArtifactNotFound("No version that the caller may read has content of this digest.")
        metadata = intent.metadata
        if not metadata.media_type:
            metadata = replace(metadata, media_type=detect(metadata.name, b"") or source.metadata.media_type)
        version = await self._add(
            connection, scope_key, reader, replace(intent, metadata=metadata), artifact_id, source.size, sha256
        )
        if not await contents.refer_again(connection, scope_key, sha256):
            raise Contention()
        return version

    async def with_metadata(
        self,
        connection: Connection,
        scope_key: str,
        reader: Reader,
        artifact_id: str,
        expected_version: int | None,
        change: Callable[[ArtifactMetadata], ArtifactMetadata],
    ) -> ArtifactVersion:
        """The latest version again, with other metadata (A1). Raises as `from_content`, and FieldInvalid."""
        await scopes.change(connection, scope_key)
        state = await artifacts.read_state(connection, scope_key, artifact_id)
        if (refusal := refuse_change(expected_version, state, reader)) is not None:
            raise refusal
        latest = await versions.read_version(connection, scope_key, reader, artifact_id, 0)
        if latest is None:
            raise ArtifactNotFound()
        metadata = _typed(change(replace(latest.metadata, parent_version=None)), b"")
        check_metadata(metadata, "metadata")
        intent = UploadIntent("", metadata, artifact_id, expected_version=expected_version)
        version = await self._add(connection, scope_key, reader, intent, artifact_id, latest.size, latest.sha256)
        if not await contents.refer_again(connection, scope_key, latest.sha256):
            raise Contention()
        return version

    async def check_path(
        self, connection: Connection, scope_key: str, metadata: ArtifactMetadata, mine: str | None
    ) -> None:
        """Raises PathTaken if an artifact other than mine has the path."""
        holder = await artifacts.path_holder(connection, scope_key, metadata)
        if holder is not None and holder != mine:
            raise PathTaken()

    async def _add(
        self,
        connection: Connection,
        scope_key: str,
        reader: Reader,
        intent: UploadIntent,
        artifact_id: str,
        size: int,
        sha256: str,
    ) -> ArtifactVersion:
        now = await connection.now()
        is_new = creates(intent)
        scope = await scopes.change(
            connection, scope_key, places=int(is_new), artifacts=int(is_new), versions=1, content=size
        )
        state = await artifacts.read_state(connection, scope_key, artifact_id)
        if (refusal := refuse_upload(intent, artifact_id, state, reader)) is not None:
            raise refusal
        self.check_quota(scope.usage)
        metadata = intent.metadata
        session_id = metadata.session_id
        if session_id is not None and await followers.is_session_gone(connection, scope_key, session_id):
            raise SessionGone()
        await self.check_path(connection, scope_key, metadata, None if is_new else artifact_id)
        if is_new:
            made = await artifacts.create(connection, scope_key, artifact_id, metadata, scope.last_list_number, now)
            number, created = 1, now
        else:
            advanced = await artifacts.advance(connection, scope_key, artifact_id, metadata, intent.expected_version)
            made = advanced is not None
            if advanced is not None:
                number, created = advanced
        if not made:
            # Cannot be while everybody takes the scope's row first; nothing is written.
            raise Contention()
        if metadata.parent_version is None and state is not None:
            metadata = replace(metadata, parent_version=state.latest_version)
        version = ArtifactVersion(artifact_id, number, metadata, size, sha256, now, created)
        await versions.insert_version(connection, scope_key, version)
        return version


def _typed(metadata: ArtifactMetadata, head: bytes) -> ArtifactMetadata:
    if metadata.media_type:
        return metadata
    return replace(metadata, media_type=detect(metadata.name, head) or DEFAULT_MEDIA_TYPE)
